"""A store: takes what producers publish, acknowledges what is durable, and answers who has missed some.

It has two addresses, as the C store: as the writer it asks producers and other stores for what it has missed, as the
reader it answers. A record is acknowledged once it is durable, one acknowledgement a partition and group. What comes a
second time is acknowledged again, and so is a head of which everything is stored: an acknowledgement may have been
lost. It asks the other stores for their heads when it starts, and again and again: what it has missed of a producer
that is not there any more, it takes from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scribengin.dafka.state.audience import Audience
from scribengin.dafka.state.instructions import (
    Append,
    DafkaPartition,
    FindStored,
    HaltPartition,
    ReadStored,
    Send,
    StoreInstruction,
)
from scribengin.dafka.state.intake import IntakeLimits, PartitionIntake
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    FindTime,
    GetHeads,
    Head,
    HeadsTold,
    KnownOfTime,
    LiveBatch,
    LiveRecord,
    Message,
    RecordsMessage,
    StoreAck,
    StoreHello,
    Subscription,
    TimeFound,
    Truncated,
    topic_prefix,
)

_FIRST_WAIT_S = 0.5
"""A store that has just started is connected to the others bit by bit: it asks them soon again, then less often."""


class StoredRange(NamedTuple):
    """What a store keeps of a partition: sequences from `first` up to `next`."""

    first: int
    next: int


class StoreState:
    """One store. `stored` is what it finds when it starts."""

    def __init__(
        self,
        writer: str,
        reader: str,
        stored: Mapping[DafkaPartition, StoredRange],
        *,
        limits: IntakeLimits | None = None,
        heads_interval_s: float = 10.0,
        partitions_max: int = 100_000,
        batches: bool = True,
    ) -> None:
        self._batches = batches
        self._audience = Audience()
        self.writer = writer
        self.reader = reader
        self.refused_partitions = 0
        """Messages of partitions that were one too many."""
        self._limits = limits or IntakeLimits()
        self._heads_interval_s = heads_interval_s
        self._heads_due_s = 0.0
        self._heads_wait_s = _FIRST_WAIT_S
        self._partitions_max = partitions_max
        self._stored = dict(stored)
        self._intakes = {p: PartitionIntake(found.next, self._limits) for p, found in stored.items()}
        self._behind: dict[DafkaPartition, PartitionIntake] = {}
        self._stuck: dict[DafkaPartition, PartitionIntake] = {}
        self._acknowledge: dict[DafkaPartition, None] = {}
        self._refused: dict[DafkaPartition, float] = {}
        """Until when nothing is taken of partitions that could not be made durable."""

    @property
    def stored(self) -> Mapping[DafkaPartition, StoredRange]:
        """What is durable of each partition."""
        return self._stored

    def stuck(self) -> dict[DafkaPartition, int]:
        """Partitions that stand still, each with the record that comes next: nobody sends it, or nobody keeps it."""
        self._stuck = {p: one for p, one in self._stuck.items() if one.is_stuck and self._intakes[p] is one}
        return {partition: intake.next for partition, intake in self._stuck.items()}

    def writer_prefixes(self) -> list[bytes]:
        """What the writer subscribes to: what it has fetched, and all that is published."""
        direct, live = ([DirectBatch], [LiveBatch]) if self._batches else ([], [])
        kinds = (DirectRecord, *direct, DirectHead, Truncated)
        fetched = [topic_prefix(kind, self.writer, exact=False) for kind in kinds]
        return [*fetched, *(topic_prefix(kind, "", exact=False) for kind in (LiveRecord, *live, Head))]

    def reader_prefixes(self) -> list[bytes]:
        """What the reader subscribes to."""
        asked = [topic_prefix(kind, "", exact=False) for kind in (Fetch, GetHeads)]
        return [*asked, *(topic_prefix(kind, self.reader, exact=False) for kind in (ConsumerHello, FindTime))]

    def messages(self, messages: Iterable[Message], now_s: float) -> list[StoreInstruction]:
        """What the writer has got, in its order."""
        appends: dict[DafkaPartition, Append] = {}
        for message in messages:
            match message:
                case LiveRecord() | DirectRecord() | LiveBatch() | DirectBatch():
                    self._record(message, appends, now_s)
                case Head() | DirectHead():
                    self._head(DafkaPartition(message.subject, message.address), message.sequence, now_s)
                case Truncated():
                    if (intake := self._intakes.get(DafkaPartition(message.subject, message.address))) is not None:
                        intake.truncated(message.sequence)
        return [*appends.values(), *self._acks(), *self._fetches(now_s)]

    def durable(self, partition: DafkaPartition, first: int, end: int) -> list[StoreInstruction]:
        """Records from `first` up to `end` are durable, as an Append has said."""
        before = self._stored.get(partition, StoredRange(first, first))
        self._stored[partition] = StoredRange(before.first, end)
        return [self._ack(partition, end - 1)]

    def refuse(self, partition: DafkaPartition, until_s: float) -> None:
        """What is not durable of the partition could not be made so. It is as if it had never come, and until then
        nothing more is taken."""
        stored = self._stored.get(partition)
        self._intakes[partition] = PartitionIntake(0 if stored is None else stored.next, self._limits)
        self._behind.pop(partition, None)
        self._refused[partition] = until_s

    def found(self, partition: DafkaPartition, stored: StoredRange) -> None:
        """What is durable of a partition is known by now, which was refused until then."""
        if stored.next:
            self._stored[partition] = stored
        self._intakes[partition] = PartitionIntake(stored.next, self._limits)
        self._behind.pop(partition, None)
        self._refused.pop(partition, None)

    def truncated(self, partition: DafkaPartition, first: int) -> None:
        """What was before `first` is not kept any more."""
        stored = self._stored[partition]
        self._stored[partition] = stored._replace(first=min(first, stored.next))

    def tick(self, now_s: float) -> list[StoreInstruction]:
        """Time has passed."""
        asked: list[StoreInstruction] = []
        if now_s >= self._heads_due_s:
            self._heads_due_s = now_s + self._heads_wait_s
            self._heads_wait_s = min(2 * self._heads_wait_s, self._heads_interval_s)
            asked.append(Send(GetHeads("", self.writer)))
        return [*asked, *self._fetches(now_s)]

    def asked(self, message: Message) -> list[StoreInstruction]:
        """What the reader has got."""
        match message:
            case Fetch():
                return self._fetched(message)
            case GetHeads() if message.address != self.writer:
                return self._heads(message.address, [message.topic])
            case ConsumerHello(to=self.reader):
                return self._heads(message.address, message.subjects)
            case FindTime(to=self.reader):
                partition = DafkaPartition(message.subject, message.producer)
                if partition in self._stored:
                    return [FindStored(message.address, partition, message.at_ms)]
                return [self.time_found(message, KnownOfTime.NOTHING, 0)]
        return []

    def subscription(self, heard: Subscription) -> list[StoreInstruction]:
        """Somebody has subscribed to the reader, or has ended that. A consumer is greeted."""
        self._audience.heard(heard)
        consumer = heard.address_of(StoreHello) if heard.begins else None
        return [] if consumer is None else [Send(StoreHello(consumer, self.reader))]

    def time_found(self, asked: FindTime | FindStored, known: KnownOfTime, sequence: int) -> Send:
        """What to tell who has asked for a time."""
        if isinstance(asked, FindStored):
            to, (subject, producer) = asked.to, asked.partition
        else:
            to, subject, producer = asked.address, asked.subject, asked.producer
        return Send(TimeFound(to, self.reader, producer, subject, asked.at_ms, known, sequence))

    def answers_in_batches(self, to: str) -> bool:
        """Whether what a requester reads of what is stored may go many records to a frame."""
        return self._batches and self._audience.takes_direct_batches(to)

    def _record(self, message: RecordsMessage, appends: dict[DafkaPartition, Append], now_s: float) -> None:
        partition = DafkaPartition(message.subject, message.address)
        intake = self._intakes.get(partition) or self._met(partition)
        if intake is None or (self._refused and self._is_refused(partition, now_s)):
            return
        first = intake.next
        if message.sequence + len(message.contents) <= first:
            if partition in self._stored:
                self._acknowledge[partition] = None
        elif ready := intake.records(message.sequence, message.contents, now_s):
            append = appends.get(partition)
            if append is None:
                appends[partition] = Append(partition, first, ready)
            else:
                append.contents.extend(ready)
        elif intake.is_behind:
            self._behind[partition] = intake

    def _head(self, partition: DafkaPartition, sequence: int, now_s: float) -> None:
        intake = self._intakes.get(partition) or self._met(partition)
        if intake is None or (self._refused and self._is_refused(partition, now_s)):
            return
        intake.head(sequence)
        if intake.is_behind:
            self._behind[partition] = intake
        elif (stored := self._stored.get(partition)) is not None and sequence < stored.next:
            self._acknowledge[partition] = None

    def _is_refused(self, partition: DafkaPartition, now_s: float) -> bool:
        until_s = self._refused.get(partition)
        if until_s is not None and now_s >= until_s:
            del self._refused[partition]
            return False
        return until_s is not None

    def _met(self, partition: DafkaPartition) -> PartitionIntake | None:
        if len(self._intakes) >= self._partitions_max:
            self.refused_partitions += 1
            return None
        intake = self._intakes[partition] = PartitionIntake(0, self._limits)
        return intake

    def _acks(self) -> list[StoreInstruction]:
        again, self._acknowledge = self._acknowledge, {}
        return [self._ack(partition, self._stored[partition].next - 1) for partition in again]

    def _ack(self, partition: DafkaPartition, sequence: int) -> Send:
        return Send(StoreAck(partition.address, partition.subject, sequence))

    def _fetches(self, now_s: float) -> list[StoreInstruction]:
        done: list[StoreInstruction] = []
        for partition, intake in list(self._behind.items()):
            if not intake.is_behind:
                del self._behind[partition]
            elif (missing := intake.missing(now_s)) is not None:
                done.append(Send(Fetch(partition.address, self.writer, partition.subject, *missing)))
            elif intake.halted_at is not None:
                done += self._gone(partition, intake, intake.halted_at, now_s)
            if intake.is_stuck:
                self._stuck[partition] = intake
        return done

    def _gone(
        self, partition: DafkaPartition, intake: PartitionIntake, first_kept: int, now_s: float
    ) -> list[StoreInstruction]:
        """Other stores keep nothing of what comes next. A store that has nothing of the partition begins as they do; a
        hole in what it has is not made."""
        before = intake.next
        if partition in self._stored or intake.has_begun:
            return [HaltPartition(partition, before, first_kept)]
        ready = intake.skip_to(first_kept, now_s)
        return [Append(partition, first_kept, ready)] if ready else []

    def _fetched(self, fetch: Fetch) -> list[StoreInstruction]:
        """Exactly what was asked for, as far as it is stored from its first record on."""
        partition = DafkaPartition(fetch.subject, fetch.to)
        stored = self._stored.get(partition)
        if stored is None or fetch.address in (self.writer, self.reader):
            return []
        if fetch.sequence < stored.first:
            return [Send(Truncated(fetch.address, fetch.to, fetch.subject, stored.first))]
        count = min(fetch.records, stored.next - fetch.sequence)
        return [ReadStored(fetch.address, partition, fetch.sequence, count)] if count > 0 else []

    def _heads(self, to: str, topics: Iterable[str]) -> list[StoreInstruction]:
        """Of topics that begin as one that was asked for: a C program reads all of them, ours leave out the others."""
        begins = tuple(topics)
        heads = [
            Send(DirectHead(to, partition.address, partition.subject, stored.next - 1))
            for partition, stored in self._stored.items()
            if partition.subject.startswith(begins)
        ]
        return [*heads, Send(HeadsTold(to, self.reader))]
