"""A producer: numbers records, keeps them until stores have them, and answers who has missed some.

A record is kept until `acks_min` different stores have acknowledged it. Lives of one store begin with the same
`STORE_CHARS` of an address, and count once. A store that has gone takes its acknowledgements with it, but what was let
go of before stays so. What is fetched comes from what is kept, by sequence: whatever was acknowledged meanwhile, the
bytes under a sequence are those that were published under it.

An acknowledgement does not say whose it is: it counts as that of the peer whose socket it came from. Such a socket
connects again by itself, and another store may listen there by then. So a peer that listens to this producer no more
(`Attendance`) does not count: it has ended, and who acknowledges in its name is somebody else.

Records that wait to be sent go together in one frame, if whoever listens takes that (`Audience`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from scribengin.base.text.counting import many, which
from scribengin.dafka.state.audience import Attendance, Audience
from scribengin.dafka.state.instructions import DafkaPartition, Send
from scribengin.dafka.state.kept import KeptRecords, PublishTimes
from scribengin.dafka.wire import (
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    FindTime,
    GetHeads,
    Head,
    KnownOfTime,
    LiveBatch,
    LiveRecord,
    Message,
    StoreAck,
    Subscription,
    TimeFound,
    groups,
    within,
)
from scribengin.errors import ProducerFull

STORE_CHARS = 16
"""With so many characters all addresses of a store of ours begin, however often it is started. A C store has new ones
each time."""
_REQUESTERS_MAX = 1000


class _Answer(NamedTuple):
    """What a requester still is to get: sequences from `next` up to `end`."""

    next: int
    end: int


class ProducerState:
    """One producer of one topic. `next` is the sequence of the record to publish next, `acked` how far enough stores
    have all (the first sequence that is still kept). One that is `resumed` publishes again what stores may have: what
    is before `published`, where that is known. Without `batches`, each record has its frame, whoever listens."""

    def __init__(
        self,
        partition: DafkaPartition,
        *,
        acks_min: int = 1,
        records_max: int = 1_000_000,
        head_interval_s: float = 1.0,
        first: int = 0,
        resumed: bool = False,
        published: int | None = None,
        batches: bool = True,
    ) -> None:
        self.partition = partition
        self.ahead: int | None = None
        """How far a store has come that has more than was ever published as this producer, by all that it knows."""
        self._resumed = resumed
        self._published = published
        self._batches = batches
        self._audience = Audience(partition.subject)
        self._attendance = Attendance()
        self._acks_min = acks_min
        self._records_max = records_max
        self._head_interval_s = head_interval_s
        self._head_due_s: float | None = None
        self._kept = KeptRecords(first)
        self._times = PublishTimes()
        self._acked_by: dict[str, int] = {}
        self._answers: dict[str, _Answer] = {}

    @property
    def next(self) -> int:
        """The sequence of the record to publish next."""
        return self._kept.next

    @property
    def acked(self) -> int:
        """How far enough stores have all."""
        return self._kept.first

    @property
    def sends_batches(self) -> bool:
        """Whether records that wait go together."""
        return self._batches and self._audience.takes_batches

    @property
    def room(self) -> int:
        """How many records may be published before a store acknowledges some."""
        return self._records_max - len(self._kept)

    def publish(self, contents: Sequence[bytes], now_s: float, at_ms: int | None = None) -> int:
        """Number the records and keep them, and that it was then, if that is said. Returns the sequence of the first:
        the shell sends them (`live`). Raises ProducerFull, and keeps none of them."""
        if len(contents) > self.room:
            kept = len(self._kept)
            raise ProducerFull(
                f"{many(kept, 'record')} of '{self.partition.subject}' {which(kept, 'is', 'are')} unacknowledged, "
                f"of {self._records_max}"
            )
        first = self.next
        self._kept.add(contents)
        if at_ms is not None:
            self._times.add(first, at_ms)
        if self._head_due_s is None:
            self._head_due_s = now_s + self._head_interval_s
        return first

    def live(self, first: int, contents: Sequence[bytes]) -> Iterator[LiveRecord | LiveBatch]:
        """What to send of records that were published and wait, from the sequence `first` on."""
        subject, address = self.partition
        for group in _groups(contents, together=self.sends_batches):
            if len(group) == 1:
                yield LiveRecord(subject, address, subject, first, group[0])
            else:
                yield LiveBatch(subject, address, subject, first, group)
            first += len(group)

    def subscription(self, heard: Subscription) -> list[Send]:
        """Somebody listens from now on, or does not any more."""
        self._audience.heard(heard)
        if self._attendance.heard(heard) and self._acked_by:
            self._release()
        return []

    def message(self, message: Message, store: str) -> list[Send]:
        """A message has come from `store`: the address of the peer that it was received from."""
        match message:
            case StoreAck(to=self.partition.address, subject=self.partition.subject):
                self._acknowledged(store, message.sequence + 1)
            case Fetch(to=self.partition.address, subject=self.partition.subject):
                self._asked(message)
            case GetHeads(topic=self.partition.subject) if self.next > 0:
                return [Send(DirectHead(message.address, self.partition.address, message.topic, self.next - 1))]
            case FindTime(to=self.partition.address, producer=self.partition.address, subject=self.partition.subject):
                return [self._time_found(message)]
        return []

    def store_gone(self, store: str) -> None:
        """The peer is not there any more. What it has acknowledged does not count for what is still kept."""
        self._acked_by.pop(store, None)

    def answers(self, records_max: int, bytes_max: int = 1024 * 1024) -> list[Send]:
        """The next few records that were fetched, in turn for each requester. Empty: nobody waits for any."""
        sent: list[Send] = []
        records = size = 0
        while self._answers and records < records_max and size < bytes_max:
            to, (sequence, end) = next(iter(self._answers.items()))
            del self._answers[to]
            sequence = max(sequence, self.acked)  # what was acknowledged meanwhile, a store has
            stop = min(end, sequence + max(1, (records_max - records) // (len(self._answers) + 1)))
            contents = within(self._kept.between(sequence, stop), bytes_max - size)
            sent += map(Send, self._direct(to, sequence, contents))
            records += len(contents)
            size += sum(map(len, contents))
            if sequence + len(contents) < end:
                self._answers[to] = _Answer(sequence + len(contents), end)
        return sent

    def tick(self, now_s: float) -> list[Send]:
        """Time has passed."""
        if self._head_due_s is None or now_s < self._head_due_s:
            return []
        self._head_due_s = now_s + self._head_interval_s
        subject, address = self.partition
        return [Send(Head(subject, address, subject, self.next - 1))]

    def _acknowledged(self, store: str, end: int) -> None:
        if end > self.next:
            if not self._resumed:  # of a record that was never published: a lie
                return
            if self._published is not None and end > self._published:
                self.ahead = end
                return
            end = self.next
        self._acked_by[store] = max(end, self._acked_by.get(store, 0))
        self._release()

    def _release(self) -> None:
        """Let go of what enough stores have."""
        have: dict[str, int] = {}
        for address, at in self._acked_by.items():
            if not self._attendance.has_left(address):
                one = address[:STORE_CHARS]
                have[one] = max(at, have.get(one, 0))
        by_stores = sorted(have.values(), reverse=True)
        enough = by_stores[self._acks_min - 1] if len(by_stores) >= self._acks_min else 0
        if enough > self.acked:
            self._kept.release(enough)
            self._times.release(enough)

    def _direct(self, to: str, first: int, contents: Sequence[bytes]) -> Iterator[DirectRecord | DirectBatch]:
        subject, address = self.partition
        takes = self._batches and self._audience.takes_direct_batches(to)
        for group in _groups(contents, together=takes):
            if len(group) == 1:
                yield DirectRecord(to, address, subject, first, group[0])
            else:
                yield DirectBatch(to, address, subject, first, group)
            first += len(group)

    def _time_found(self, asked: FindTime) -> Send:
        """Of what was let go of, it does not know when it was published."""
        first = self._times.first_at(asked.at_ms, self.next)
        known, first = (KnownOfTime.NOTHING, 0) if first is None else (KnownOfTime.WHERE, first)
        subject, address = self.partition
        return Send(TimeFound(asked.address, address, address, subject, asked.at_ms, known, first))

    def _asked(self, fetch: Fetch) -> None:
        """A requester is answered from where it asks last: it asks again for what did not come. Who asks for what
        follows what it is getting, gets that behind it. What was let go of, a store has, and answers."""
        before = self._answers.pop(fetch.address, None)
        end = min(fetch.sequence + fetch.records, self.next)
        if before is not None and before.end == fetch.sequence < end:
            self._answers[fetch.address] = before._replace(end=end)
        elif self.acked <= fetch.sequence < end and len(self._answers) < _REQUESTERS_MAX:
            self._answers[fetch.address] = _Answer(fetch.sequence, end)


def _groups(contents: Sequence[bytes], *, together: bool) -> Iterable[Sequence[bytes]]:
    """What goes into a frame each."""
    return groups(contents) if together else ((content,) for content in contents)
