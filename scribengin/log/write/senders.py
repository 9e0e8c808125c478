"""Which numbers of which senders are in the log, so that what is sent again is not written again.

A sender numbers its records from 1 on, without a gap. What a request holds of the log is decided here, without I/O:
what was written already, what is on its way, what is new. Where the numbers are kept is docs/internals/proxies.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from scribengin.base.text.counting import many
from scribengin.errors import DamagedEntry, LogError, SenderUnknown
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import HEADER_BYTES, Damage, EncodedEntry, EntryType, encode, read_body
from scribengin.log.format.sender_marks import SENDER_BYTES, GroupRow, SenderMark, SentRun, mark_entry, read_mark
from scribengin.log.metadata.segments import LogMetadata, SegmentDescriptor, SegmentsHead
from scribengin.log.store.contract import SegmentStore, SegmentView
from scribengin.log.store.index import DamagePlace, walk
from scribengin.log.write.results import SlotRange

SENDERS_MAX = 10_000
"""How many senders are remembered. The one that wrote longest ago is forgotten first."""


class SenderTable:
    """Of each sender, the records that it may ask for again, and the last one in any case. Not thread-safe."""

    def __init__(self, senders_max: int = SENDERS_MAX) -> None:
        self._senders_max = senders_max
        self._runs: dict[bytes, deque[SentRun]] = {}
        """In the order in which the senders last wrote."""

    def __len__(self) -> int:
        return len(self._runs)

    def last(self, sender: bytes) -> int:
        """The last number of the sender that is in the log; 0: it is not known."""
        runs = self._runs.get(sender)
        return runs[-1].last if runs else 0

    def add(self, run: SentRun) -> None:
        """It is in the log, behind all others."""
        runs = self._runs.pop(run.sender, None) or deque()
        runs.append(run)
        self._runs[run.sender] = runs
        if len(self._runs) > self._senders_max:
            del self._runs[next(iter(self._runs))]

    def may_have_forgotten(self, segment: int) -> bool:
        """Whether it may have forgotten a sender that last wrote into that segment, or a later one."""
        if len(self._runs) < self._senders_max:
            return False
        oldest = next(iter(self._runs.values()))  # who was forgotten has written nothing since
        return oldest[-1].first.segment >= segment

    def answered(self, sender: bytes, number: int) -> None:
        """The sender has had the answers up to that number, and will not ask for these again."""
        runs = self._runs.get(sender)
        while runs is not None and len(runs) > 1 and runs[0].last <= number:
            runs.popleft()

    def find(self, sender: bytes, number: int, last: int) -> list[SentRun]:
        """Where the records from `number` to `last` stand, which are in the log. Raises SenderUnknown if that is
        forgotten."""
        found = []
        for run in self._runs.get(sender, ()):
            if run.last >= number and run.number <= last:
                part = run.from_number(max(run.number, number))
                found.append(part._replace(records=min(part.last, last) - part.number + 1))
        if sum(run.records for run in found) != last - number + 1:
            raise SenderUnknown(
                f"records {number} to {last} of a sender are in the log, and where is forgotten: it had said that it "
                "knows; send only what was not answered"
            )
        return found

    def runs(self) -> Iterator[SentRun]:
        """All of it, for a mark, in the order in which `add` makes it again."""
        for runs in self._runs.values():
            yield from runs


@dataclass
class _Waiting:
    sender: bytes
    number: int
    last: int
    future: Future[tuple[SlotRange, ...]] = field(default_factory=Future)


class Senders:
    """The table of a log's writer, what is on its way to it, and who waits for that. Thread-safe.

    `admit` and `sent` are called in the order of the log's records.
    """

    def __init__(self, log: str, table: SenderTable) -> None:
        self._log = log
        self._table = table
        self._lock = threading.Lock()
        """Of all below, and the table."""
        self._queued: dict[bytes, int] = {}
        """The last number that is on its way, of each sender that has any."""
        self._waiting: dict[bytes, list[_Waiting]] = {}
        """By sender: what is written of one wakes nobody else."""
        self._failure: BaseException | None = None

    def admit(self, sender: bytes, number: int, records: int, answered: int, since: int = 0) -> int:
        """How many of `records` records, numbered from `number` on, are written or on their way: the first so many.
        What is sent again may be in the log from segment `since` on; 0: it is sent for the first time.

        Raises SenderUnknown (there would be a gap; or the sender has had answers that the log does not know of, or may
        have written and been forgotten), LogError (no such thing can be sent).
        """
        if len(sender) != SENDER_BYTES or number < 1 or records < 1 or not 0 <= answered < number:
            raise LogError(
                f"log '{self._log}': a sender has {SENDER_BYTES} bytes, and numbers its records from 1 on: "
                f"{len(sender)} bytes, {many(records, 'record')} from {number} on, answered up to {answered}"
            )
        with self._lock:
            last = max(self._queued.get(sender, 0), self._table.last(sender))
            if number > last + 1:
                raise SenderUnknown(
                    f"log '{self._log}': records from {number} on were sent, the log knows of {last} of that sender; "
                    "whether what was not answered is in the log cannot be told: read it, and begin as a new sender"
                )
            if since and not last and self._table.may_have_forgotten(since):
                raise SenderUnknown(
                    f"log '{self._log}': the first records of a sender were sent again, and so many other senders have "
                    "written that it may be forgotten; whether they are in the log cannot be told: read it, and begin "
                    "as a new sender"
                )
            self._table.answered(sender, answered)
            return min(records, last - number + 1)

    def sent(self, sender: bytes, number: int, records: int) -> Future[tuple[SlotRange, ...]]:
        """They are on their way, all of them, or there. Where they stand, once they are written; it raises what ended
        the writer, SenderUnknown."""
        waiting = _Waiting(sender, number, number + records - 1)
        waiting.future.set_running_or_notify_cancel()  # what is on its way to the disk cannot be called back
        with self._lock:
            if waiting.last > self._table.last(sender):
                self._queued[sender] = max(self._queued.get(sender, 0), waiting.last)
            self._waiting.setdefault(sender, []).append(waiting)
            done = self._take_written([sender])
            failure = self._failure
        _resolve(done)
        if failure is not None:
            self.fail(failure)
        return waiting.future

    def mark(self, rows: Sequence[GroupRow], txid: int, *, begins: bool) -> EncodedEntry | None:
        """What the group begins with; None: there is nothing to say. `begins`: the segment begins with it, too."""
        with self._lock:
            table = tuple(self._table.runs()) if begins else ()
        return mark_entry(table, rows, txid) if table or rows else None

    def written(self, runs: Iterable[SentRun]) -> None:
        """They are durable, and in order."""
        wrote = set()
        with self._lock:
            for run in runs:
                wrote.add(run.sender)
                self._table.add(run)
                if self._queued.get(run.sender) == run.last:
                    del self._queued[run.sender]
            done = self._take_written(wrote)
        _resolve(done)

    def fail(self, error: BaseException) -> None:
        """Nothing more will be written."""
        with self._lock:
            self._failure = self._failure or error
            waiting = self._waiting
            self._waiting = {}
        for one in chain.from_iterable(waiting.values()):
            one.future.set_exception(error)

    def _take_written(self, senders: Iterable[bytes]) -> list[tuple[_Waiting, list[SentRun] | SenderUnknown]]:
        done: list[tuple[_Waiting, list[SentRun] | SenderUnknown]] = []
        for sender in senders:
            waiting = self._waiting.pop(sender, [])
            last = self._table.last(sender)
            left = [one for one in waiting if one.last > last]
            if left:
                self._waiting[sender] = left
            done += [(one, self._found(one)) for one in waiting if one.last <= last]
        return done

    def _found(self, waiting: _Waiting) -> list[SentRun] | SenderUnknown:
        try:
            return self._table.find(waiting.sender, waiting.number, waiting.last)
        except SenderUnknown as error:
            return error


def _resolve(done: Iterable[tuple[_Waiting, list[SentRun] | SenderUnknown]]) -> None:
    for waiting, found in done:
        if isinstance(found, SenderUnknown):
            waiting.future.set_exception(found)
        else:
            waiting.future.set_result(tuple(SlotRange(run.first, run.records) for run in found))


class PendingShared:
    """Records of senders that wait to become one entry, whoever sent them."""

    entries_count = 1

    def __init__(self, senders: Senders) -> None:
        self._senders = senders
        self._bodies: list[pa.RecordBatch] = []
        self.rows: list[GroupRow] = []
        """Of the mark, as if this entry stood right behind it."""
        self.records = self.body_bytes = self.size_bytes = 0

    def add(self, sender: bytes, number: int, body: pa.RecordBatch, size_bytes: int) -> None:
        """Take records of that size, in the order of the log."""
        self.rows.append(GroupRow(sender, number, 0, self.records, body.num_rows))
        self._bodies.append(body)
        self.records += body.num_rows
        self.body_bytes += size_bytes
        self.size_bytes += size_bytes

    def entries(self, codec: str) -> Sequence[EncodedEntry]:
        body = self._bodies[0] if len(self._bodies) == 1 else pa.concat_batches(self._bodies)
        return [encode(body, codec=codec)]

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        segment, entry, _slot = firsts[0]
        self._senders.written(row.at(segment, entry - 1) for row in self.rows)
        return DLSN(segment, entry, self.records - 1)

    def fail(self, error: BaseException) -> None:
        self._senders.fail(error)


def read_senders(metadata: LogMetadata, store: SegmentStore, head: SegmentsHead) -> SenderTable:
    """The table as the log holds it, which has no unfinished segment. Raises DamagedEntry, and what the registry
    raises."""
    table = SenderTable()
    segment = metadata.completed_segment(head.senders) if head.senders else None
    if segment is None:  # no senders; or retention has removed what they wrote
        return table
    with closing(store.open(segment.file)) as view:
        for entry, mark in _marks(metadata.log, view, segment):
            for run in mark.table:
                table.add(run)
            for row in mark.group:
                if entry + 1 + row.ahead < segment.entries:  # else a crash has taken the entry
                    table.add(row.at(segment.segment, entry))
    return table


def _marks(log: str, view: SegmentView, segment: SegmentDescriptor) -> Iterator[tuple[int, SenderMark]]:
    for place in walk(view, 0, segment.file_bytes):
        if isinstance(place, DamagePlace):
            raise _damaged(log, segment, place.offset, place.damage)
        if place.header.type != EntryType.KEEP_ALIVE:
            continue
        stored = view.read(place.offset + HEADER_BYTES, place.header.body_bytes)
        body = read_body(place.header, stored, decoded_bytes_max=segment.decoded_bytes_max)
        if isinstance(body, Damage):
            raise _damaged(log, segment, place.offset, body)
        mark = read_mark(body)
        if mark is not None:
            yield place.header.entry, mark


def _damaged(log: str, segment: SegmentDescriptor, offset: int, damage: Damage) -> DamagedEntry:
    return DamagedEntry(
        f"log '{log}', segment {segment.segment}, byte {offset}: {damage.reason}; which numbers of senders are in the "
        "log stands there: bring the file back from a copy",
        position=str(DLSN(segment.segment, 0, 0)),
        offset=offset,
    )
