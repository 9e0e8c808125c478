"""A follower: what comes next of the partitions that somebody reads, held within limits until it is taken.

It reads as a consumer does, live and from stores, but each partition at its reader's pace. A partition of which enough
is held takes nothing more: what passes by then is fetched once there is room. So live and stored records are one
stream, and which of the two a record was makes no difference. A reader may go back to any sequence that is kept.

It knows every partition of its topic, whether it is read or not, by what is published and by what stores tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from scribengin.dafka.state.heads import HeadsTimer
from scribengin.dafka.state.instructions import DafkaPartition, Send
from scribengin.dafka.state.intake import SEQUENCES_END, IntakeLimits, PartitionIntake
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    GetHeads,
    Head,
    HeadsTold,
    LiveBatch,
    LiveRecord,
    Message,
    RecordsMessage,
    StoreHello,
    Subscription,
    Truncated,
    topic_prefix,
)
from scribengin.errors import RecordsGone

_ADDRESS_MAX = 64
_STORES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How much of one partition is held for its reader."""

    records_max: int = 100_000
    bytes_max: int = 16 * 1024 * 1024


class HeldRecords(NamedTuple):
    """Records of a partition, in order, from the sequence `first` on."""

    first: int
    contents: list[bytes]


class _Held:
    """What is held of one partition: from `first` on, up to where its intake stands."""

    def __init__(self, sequence: int, limits: HoldLimits, intake_limits: IntakeLimits) -> None:
        self.first = sequence
        self.contents: list[bytes] = []
        self.bytes = 0
        self.intake = PartitionIntake(sequence, intake_limits)
        self._began = sequence
        """Where its reader stands, where nothing from there up to `first` is kept by anybody."""
        self._limits = limits
        self._record_bytes = 1
        """The size of the largest record of late, by which it is told how many to ask for."""

    @property
    def next(self) -> int:
        """The sequence that comes next."""
        return self.first + len(self.contents)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken."""
        return self.bytes >= self._limits.bytes_max or len(self.contents) >= self._limits.records_max

    @property
    def room(self) -> int:
        """How many records to ask for: none as long as half of the room is taken."""
        free = self._limits.bytes_max - 2 * self.bytes
        if free <= 0 or 2 * len(self.contents) >= self._limits.records_max:
            return 0
        return min(self._limits.records_max // 2 + 1, free // (2 * self._record_bytes) + 1)

    def add(self, contents: list[bytes]) -> None:
        self.contents += contents
        self.bytes += sum(map(len, contents))
        self._record_bytes = max(len(contents[-1]), self._record_bytes // 2, 1)

    def goes_on(self, sequence: int) -> bool:
        """Whether what is held is what comes for a reader who stands there."""
        return sequence == self._began or self.first <= sequence <= self.next

    def trim(self, sequence: int) -> None:
        """What is before `sequence` is not wanted any more."""
        count = sequence - self.first
        if count < 0:
            return
        self.bytes -= sum(map(len, self.contents[:count]))
        del self.contents[:count]
        self.first = self._began = sequence

    def skip_to(self, first_kept: int, now_s: float) -> None:
        """Nobody keeps what is before, and nothing is held."""
        ready = self.intake.skip_to(first_kept, now_s)
        self.first = first_kept
        if ready:
            self.add(ready)


class FollowerState:
    """One follower of one topic."""

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        skip_gone: bool = False,
        limits: HoldLimits | None = None,
        intake_limits: IntakeLimits | None = None,
        heads_interval_s: float = 10.0,
        partitions_max: int = 100_000,
        batches: bool = True,
        told_within_s: float = 4.0,
    ) -> None:
        self.address = address
        self._batches = batches
        self.refused_partitions = 0
        """Messages of partitions that were one too many, have no name that an address is, or say to have come where no
        partition comes."""
        self._topic = topic
        self._skip_gone = skip_gone
        self._limits = limits or HoldLimits()
        self._intake_limits = intake_limits or IntakeLimits()
        self._heads = HeadsTimer(heads_interval_s)
        self._partitions_max = partitions_max
        self._ends: dict[DafkaPartition, int] = {}
        self._heard_s: dict[DafkaPartition, float] = {}
        self._held: dict[DafkaPartition, _Held] = {}
        self._behind: dict[DafkaPartition, _Held] = {}
        self._told_within_s = told_within_s
        self._told: set[str] = set()
        self._awaited: dict[str, float | None] = {}
        """Stores that were greeted and have not told yet of all that they have, and until when they are waited for."""

    @property
    def ends(self) -> Mapping[DafkaPartition, int]:
        """Every partition that is known, and the sequence behind its last record that is."""
        return self._ends

    def heard_s(self, partition: DafkaPartition) -> float | None:
        """When its producer has said anything last. None: it never has."""
        return self._heard_s.get(partition)

    @property
    def is_told(self) -> bool:
        """Whether every store that it is connected to has told of all that it has. One that has not for a while never
        says so, as one of C programs, or is not there."""
        return not self._awaited

    def prefixes(self) -> list[bytes]:
        """What to subscribe to."""
        fetched, live = ([DirectBatch], [LiveBatch]) if self._batches else ([], [])
        own = (DirectRecord, *fetched, DirectHead, StoreHello, Truncated, HeadsTold)
        direct = [topic_prefix(kind, self.address, exact=False) for kind in own]
        return [*direct, *(topic_prefix(kind, self._topic) for kind in (LiveRecord, *live, Head))]

    def follow(self, partition: DafkaPartition, sequence: int, now_s: float) -> list[Send]:
        """Hold what comes from `sequence` on. What is held before that is let go of; who goes back, or ahead of what is
        held, begins anew there."""
        held = self._held.get(partition)
        if held is not None and held.goes_on(sequence):
            held.trim(sequence)
        else:
            held = self._held[partition] = _Held(sequence, self._limits, self._intake_limits)
            self._behind.pop(partition, None)
            if (end := self._ends.get(partition, 0)) > sequence:
                held.intake.head(end - 1)
            self._watch(partition, held)
        if held.intake.halted_at is not None:
            self._gone(held, held.intake.halted_at, now_s)
        return self._fetches(now_s)

    def leave(self, partition: DafkaPartition) -> None:
        """Nobody reads it any more."""
        self._held.pop(partition, None)
        self._behind.pop(partition, None)

    def held(self, partition: DafkaPartition, records_max: int, bytes_max: int) -> HeldRecords:
        """The next records, within limits: a single one may be larger. They stay held. Raises RecordsGone where nobody
        keeps what comes next."""
        held = self._held[partition]
        if not held.contents and held.intake.halted_at is not None:
            raise RecordsGone(
                f"topic '{partition.subject}', producer {partition.address}: nobody keeps the records from {held.next} "
                f"to {held.intake.halted_at - 1} any more"
            )
        contents = held.contents[:records_max]
        if held.bytes > bytes_max:
            sizes = accumulate(map(len, contents))
            contents = contents[: max(1, sum(size <= bytes_max for size in sizes))]
        return HeldRecords(held.first, contents)

    def holds_all(self, partition: DafkaPartition, end: int, bytes_max: int) -> bool:
        """Whether nothing more has to be waited for by who wants the records before `end`, or so many bytes."""
        held = self._held[partition]
        return held.next >= end or held.bytes >= bytes_max or not held.room or held.intake.halted_at is not None

    def next_of(self, partition: DafkaPartition) -> int:
        """The sequence behind what is held."""
        return self._held[partition].next

    def messages(self, messages: Iterable[Message], now_s: float) -> list[Send]:
        """What has come, in its order."""
        done: list[Send] = []
        for message in messages:
            match message:
                case LiveRecord() | DirectRecord() | LiveBatch() | DirectBatch():
                    partition = DafkaPartition(message.subject, message.address)
                    end = message.sequence + len(message.contents)
                    if self._knows(partition, end, message, now_s) and (held := self._held.get(partition)) is not None:
                        self._record(partition, held, message, now_s)
                case Head() | DirectHead():
                    partition = DafkaPartition(message.subject, message.address)
                    end = message.sequence + 1
                    if self._knows(partition, end, message, now_s) and (held := self._held.get(partition)) is not None:
                        held.intake.head(message.sequence)
                        self._watch(partition, held)
                case Truncated():
                    partition = DafkaPartition(message.subject, message.address)
                    if (held := self._held.get(partition)) is not None:
                        held.intake.truncated(message.sequence)
                        self._watch(partition, held)
                case StoreHello():
                    done.append(self._hello(message.address))
                case HeadsTold():
                    if message.address in self._awaited:
                        del self._awaited[message.address]
                        self._told.add(message.address)
        return [*done, *self._fetches(now_s)]

    def subscription(self, heard: Subscription) -> list[Send]:
        """Somebody has subscribed to this follower: a store that waits for its hello, or a producer for its question
        for heads."""
        if not heard.begins:
            return []
        if (store := heard.address_of(ConsumerHello)) is not None:
            return [self._hello(store)]
        return [Send(GetHeads(self._topic, self.address))] if self._asks(heard.prefix) else []

    def peer_gone(self, peer: str) -> None:
        """Nothing more is told by it."""
        self._awaited.pop(peer, None)
        self._told.discard(peer)

    def tick(self, now_s: float) -> list[Send]:
        """Time has passed."""
        for store, until_s in list(self._awaited.items()):
            if until_s is None:
                self._awaited[store] = now_s + self._told_within_s
            elif now_s >= until_s:
                del self._awaited[store]
        asked = [Send(GetHeads(self._topic, self.address))] if self._heads.is_due(now_s) else []
        return [*asked, *self._fetches(now_s)]

    def _asks(self, prefix: bytes) -> bool:
        return prefix == topic_prefix(GetHeads, self._topic)

    def _hello(self, store: str) -> Send:
        if store not in self._told and len(self._awaited) + len(self._told) < _STORES_MAX:
            self._awaited.setdefault(store, None)
        return Send(ConsumerHello(store, self.address, (self._topic,)))

    def _knows(self, partition: DafkaPartition, end: int, message: Message, now_s: float) -> bool:
        """Whether the partition is one of the topic, which is known from now on. What everybody hears, only its
        producer has said; what is said to one, a store may have."""
        before = self._ends.get(partition)
        if end > SEQUENCES_END:
            self.refused_partitions += 1
            return False
        if before is None:
            if partition.subject != self._topic:
                return False
            fits = len(self._ends) < self._partitions_max and len(partition.address) <= _ADDRESS_MAX
            if not fits or not partition.address.isalnum():
                self.refused_partitions += 1
                return False
        if before is None or end > before:
            self._ends[partition] = end
        if isinstance(message, LiveRecord | LiveBatch | Head):
            self._heard_s[partition] = now_s
        return True

    def _record(self, partition: DafkaPartition, held: _Held, message: RecordsMessage, now_s: float) -> None:
        if held.is_full:
            held.intake.head(message.sequence + len(message.contents) - 1)
        elif ready := held.intake.records(message.sequence, message.contents, now_s):
            held.add(ready)
        self._watch(partition, held)

    def _watch(self, partition: DafkaPartition, held: _Held) -> None:
        if held.intake.is_behind:
            self._behind[partition] = held

    def _fetches(self, now_s: float) -> list[Send]:
        done: list[Send] = []
        for partition, held in list(self._behind.items()):
            intake = held.intake
            if not intake.is_behind:
                del self._behind[partition]
            elif not held.room:
                continue
            elif (missing := intake.missing(now_s, held.room)) is not None:
                done.append(Send(Fetch(partition.address, self.address, partition.subject, *missing)))
            elif intake.halted_at is not None:
                self._gone(held, intake.halted_at, now_s)
        return done

    def _gone(self, held: _Held, first_kept: int, now_s: float) -> None:
        """Nobody keeps what comes next. Who begins with the first record begins with the first that is kept."""
        if held.contents or not (self._skip_gone or held.next == 0):
            return
        held.skip_to(first_kept, now_s)
