"""A consumer: every partition of its topics in order, each record once, from where it was told to begin.

Where it begins in a partition that it has not met (`StartOf`): with the first record that anybody keeps, with the next
one that comes, with the first of a time (`since`), or where its reader has stored that it stands. Only who begins in
the past asks stores for heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Literal, NamedTuple

from scribengin.dafka.state.heads import HeadsTimer
from scribengin.dafka.state.instructions import ConsumerInstruction, DafkaPartition, Deliver, HaltPartition, Send
from scribengin.dafka.state.intake import IntakeLimits, PartitionIntake
from scribengin.dafka.state.since import Begun, Found, SinceLimits, SinceState
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    GetHeads,
    Head,
    LiveBatch,
    LiveRecord,
    Message,
    RecordsMessage,
    StoreHello,
    Subscription,
    TimeFound,
    Truncated,
    topic_prefix,
)

Positions = Mapping[DafkaPartition, int]
"""The sequence of the record that a reader wants next, for each partition that it has read of."""


class StartOf(NamedTuple):
    """Where to begin in a partition: at its position if it has one, else with the first record of the time `since_ms`,
    if one is said, else at `edge`."""

    edge: Literal["earliest", "latest"]
    positions: Positions = {}
    since_ms: int | None = None


EARLIEST = StartOf("earliest")
LATEST = StartOf("latest")


class ConsumerState:
    """One consumer. `exact`: only records of the topics themselves; else of all that begin as they do, which is what C
    programs get. Without `batches` it takes a frame for each record alone, as they do."""

    def __init__(
        self,
        address: str,
        *,
        start: StartOf = LATEST,
        exact: bool = True,
        skip_gone: bool = False,
        limits: IntakeLimits | None = None,
        heads_interval_s: float = 10.0,
        partitions_max: int = 100_000,
        batches: bool = True,
        since_limits: SinceLimits | None = None,
    ) -> None:
        self.address = address
        self._batches = batches
        self._since_limits = since_limits or SinceLimits()
        self._since = None if start.since_ms is None else SinceState(address, start.since_ms, self._since_limits)
        self.refused_partitions = 0
        """Messages of partitions that were one too many."""
        self._start = start
        self._exact = exact
        self._skip_gone = skip_gone
        self._limits = limits or IntakeLimits()
        self._heads = HeadsTimer(heads_interval_s)
        self._partitions_max = partitions_max
        self._topics: dict[str, None] = {}
        self._intakes: dict[DafkaPartition, PartitionIntake] = {}
        self._behind: dict[DafkaPartition, PartitionIntake] = {}

    @property
    def positions(self) -> dict[DafkaPartition, int]:
        """What was handed out of each partition: the sequence that comes next."""
        return {partition: intake.next for partition, intake in self._intakes.items()}

    def own_prefixes(self) -> list[bytes]:
        """What to subscribe to before anything else."""
        batches = [DirectBatch] if self._batches else []
        answers = [] if self._since is None else [TimeFound]
        kinds = (DirectRecord, *batches, DirectHead, StoreHello, Truncated, *answers)
        return [topic_prefix(kind, self.address, exact=False) for kind in kinds]

    def subscribe(self, topic: str) -> tuple[list[bytes], list[ConsumerInstruction]]:
        """Read a topic, too: what to subscribe to, and what to send."""
        self._topics[topic] = None
        batches = [LiveBatch] if self._batches else []
        prefixes = [topic_prefix(kind, topic, exact=self._exact) for kind in (LiveRecord, *batches, Head)]
        return prefixes, [Send(GetHeads(topic, self.address))] if self._looks_back else []

    def subscription(self, heard: Subscription) -> list[ConsumerInstruction]:
        """Somebody has subscribed to this consumer: a store that waits for its hello, a producer for its question for
        heads, or one of them for questions for a time."""
        if self._since is not None:
            self._since.heard(heard)
        if not heard.begins:
            return []
        if (store := heard.address_of(ConsumerHello)) is not None:
            return [self._hello(store)]
        asked = [t for t in self._topics if heard.prefix == topic_prefix(GetHeads, t)] if self._looks_back else []
        return [Send(GetHeads(topic, self.address)) for topic in asked]

    def messages(self, messages: Iterable[Message], now_s: float) -> list[ConsumerInstruction]:
        """What has come, in its order."""
        done: list[ConsumerInstruction] = []
        deliver: Deliver | None = None
        for message in messages:
            match message:
                case LiveRecord() | DirectRecord() | LiveBatch() | DirectBatch():
                    partition = DafkaPartition(message.subject, message.address)
                    intake = self._intakes.get(partition)
                    if intake is None:
                        intake, found = self._met_with(partition, message, now_s)
                        done += found
                    if intake is None:
                        continue
                    first = intake.next
                    if ready := intake.records(message.sequence, message.contents, now_s):
                        if deliver is not None and deliver.partition == partition:
                            deliver.contents.extend(ready)
                        else:
                            deliver = Deliver(partition, first, ready)
                            done.append(deliver)
                    elif intake.is_behind:
                        self._behind[partition] = intake
                case _:
                    done += self._other(message, now_s)
        return [*done, *self._fetches(now_s)]

    def tick(self, now_s: float) -> list[ConsumerInstruction]:
        """Time has passed."""
        due = self._heads.is_due(now_s, wanted=bool(self._topics))
        asked = [Send(GetHeads(topic, self.address)) for topic in self._topics if due]
        found = [] if self._since is None else self._begun(self._since.tick(now_s))
        return [*asked, *found, *self._fetches(now_s)]

    def rest(self, now_s: float) -> None:
        """Nothing is taken from the network now, until it is called otherwise again."""
        if self._since is not None:
            self._since.rest(now_s)

    def peer_gone(self, peer: str) -> None:
        """Nobody has heard of the peer for a while."""
        if self._since is not None:
            self._since.peer_gone(peer)

    @property
    def _begins_in_the_past(self) -> bool:
        return self._start.edge == "earliest" or self._since is not None

    @property
    def _looks_back(self) -> bool:
        return self._begins_in_the_past or bool(self._start.positions)

    def _other(self, message: Message, now_s: float) -> list[ConsumerInstruction]:
        match message:
            case Head() | DirectHead():
                partition = DafkaPartition(message.subject, message.address)
                intake, done = self._met_with(partition, message, now_s)
                if intake is not None:
                    intake.head(message.sequence)
                    self._watch(partition, intake)
                return done
            case TimeFound() if self._since is not None:
                return self._begun(self._since.told(message, now_s))
            case Truncated():
                partition = DafkaPartition(message.subject, message.address)
                if (intake := self._intakes.get(partition)) is not None:
                    intake.truncated(message.sequence)
                    self._watch(partition, intake)
            case StoreHello():
                return [self._hello(message.address)]
        return []

    def _met_with(
        self, partition: DafkaPartition, message: RecordsMessage | Head | DirectHead, now_s: float
    ) -> tuple[PartitionIntake | None, list[ConsumerInstruction]]:
        """The partition is met for the first time, or where it begins is looked for; and what to do. None: that is
        still looked for, or the partition is of no topic of this consumer, or one too many."""
        known = self._intakes.get(partition)
        if known is not None or not self._wants(partition.subject):
            return known, []
        if self._is_one_too_many(partition):
            self.refused_partitions += 1
            return None, []
        latest, end = _places(message)
        if self._since is not None and partition not in self._start.positions:
            first = isinstance(message, LiveRecord | LiveBatch) and message.sequence == 0
            done = self._begun(self._since.met(partition, end, now_s, from_the_first=first))
            return self._intakes.get(partition), done
        edge = 0 if self._start.edge == "earliest" else latest
        intake = PartitionIntake(self._start.positions.get(partition, edge), self._limits)
        self._intakes[partition] = intake
        return intake, []

    def _is_one_too_many(self, partition: DafkaPartition) -> bool:
        since = self._since
        if since is None or not len(since):
            return len(self._intakes) >= self._partitions_max
        return not since.knows(partition) and len(self._intakes) + len(since) >= self._partitions_max

    def _begun(self, found: Iterable[Found]) -> list[ConsumerInstruction]:
        """Begin with the partitions of which is known by now where. Somebody has told so, and may keep what another
        does not: he is waited for."""
        done: list[ConsumerInstruction] = []
        tries_min = ceil(self._since_limits.patience_s / self._limits.retry_s)
        for one in found:
            if isinstance(one, Begun):
                intake = PartitionIntake(one.first, self._limits, tries_min=tries_min)
                self._intakes[one.partition] = intake
                if one.end > one.first:
                    intake.head(one.end - 1)
                self._watch(one.partition, intake)
            else:
                done.append(one)
        return done

    def _wants(self, subject: str) -> bool:
        if self._exact:
            return subject in self._topics
        return any(subject.startswith(topic) for topic in self._topics)

    def _watch(self, partition: DafkaPartition, intake: PartitionIntake) -> None:
        if intake.is_behind:
            self._behind[partition] = intake

    def _fetches(self, now_s: float) -> list[ConsumerInstruction]:
        done: list[ConsumerInstruction] = []
        for partition, intake in list(self._behind.items()):
            if not intake.is_behind:
                del self._behind[partition]
            elif (missing := intake.missing(now_s)) is not None:
                done.append(Send(Fetch(partition.address, self.address, partition.subject, *missing)))
            elif intake.halted_at is not None:
                done += self._gone(partition, intake, intake.halted_at, now_s)
        return done

    def _gone(
        self, partition: DafkaPartition, intake: PartitionIntake, first_kept: int, now_s: float
    ) -> list[ConsumerInstruction]:
        """Nobody keeps what comes next. Who begins in the past begins with what is kept."""
        begins = not intake.has_begun and self._begins_in_the_past and partition not in self._start.positions
        before = intake.next
        if not begins and not self._skip_gone:
            return [HaltPartition(partition, before, first_kept)]
        ready = intake.skip_to(first_kept, now_s)
        return [Deliver(partition, first_kept, ready)] if ready else []

    def _hello(self, store: str) -> Send:
        return Send(ConsumerHello(store, self.address, tuple(self._topics) if self._looks_back else ()))


def _places(message: RecordsMessage | Head | DirectHead) -> tuple[int, int]:
    """Where who begins with the latest begins, and how far the partition was published, by that message."""
    if isinstance(message, Head | DirectHead):
        return message.sequence + 1, message.sequence + 1
    return message.sequence, message.sequence + len(message.contents)
