"""Readers of a log: record batches from a position, across segments, following the tail; and ranges for dataflows."""

from __future__ import annotations

from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.clock import Clock
from scribengin.errors import DamagedEntry, EndOfStream, LogClosed
from scribengin.log.catalog import LogCatalog
from scribengin.log.dlsn import DLSN, TransactionId
from scribengin.log.entry import RECORD_SCHEMA, to_records
from scribengin.log.index import EntryPlace
from scribengin.log.ranges import RangePlan, plan_range
from scribengin.log.records import LogRecord

READ_SCHEMA = pa.schema(
    [
        *RECORD_SCHEMA,
        pa.field("segment", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("slot", pa.int64()),
        pa.field("sequence_id", pa.int64()),
    ]
)
"""What `read_batch` returns: a record, its DLSN and its sequence id."""

Start = DLSN | TransactionId | None


class LogReader:
    """Reads one log. Not thread-safe. Made by `LogNamespace.open_reader`.

    A reader that met damage raises DamagedEntry at every call: nothing is skipped.
    """

    def __init__(self, catalog: LogCatalog, start: Start, clock: Clock) -> None:
        self._catalog, self._clock = catalog, clock
        self._closed = False
        self._txid_min: int | None = None
        self._next: EntryPlace | None = None
        """Where the entry at `position` stands, when that is known."""
        if isinstance(start, TransactionId):
            self._txid_min = start.value
            self._position = self._find(start.value)
        elif start is None or start == DLSN.INITIAL:
            self._position = max(DLSN.INITIAL, catalog.state().head.first)
        else:
            catalog.check_position(start)
            self._position = start

    @property
    def directory(self) -> str:
        """What tells this log from another one that had, or will have, its name."""
        return self._catalog.log.directory

    @property
    def position(self) -> DLSN:
        """Of the first record that has not been read: a reader that starts there goes on."""
        return self._position

    def read_batch(self, records_max: int = 65_536, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next records, as READ_SCHEMA: at most `records_max`, all of one entry, mapped. None after the timeout.

        Raises EndOfStream (every time) behind the last record of a sealed log, DamagedEntry, PositionTruncated,
        LogNotFound, LogClosed.
        """
        return self._catalog.await_change(lambda: self._read_now(records_max), timeout_s)

    def read(self, records_max: int = 1000, timeout_s: float = 0.0) -> list[LogRecord]:
        """The next records: at least one unless the timeout passes, at most `records_max`. Raises as `read_batch`."""
        records: list[LogRecord] = []
        batch = self.read_batch(records_max, timeout_s)
        while batch is not None:
            records.extend(_records(batch))
            if len(records) >= records_max:
                break
            batch = self._read_more(records_max - len(records))
        return records

    def plan(self, start: DLSN, records_max: int, bytes_max: int) -> RangePlan | None:
        """What to read next from `start`, or None: see `ranges.plan_range`. Does not move the reader."""
        self._check_open()
        return plan_range(self._catalog, start, records_max=records_max, bytes_max=bytes_max)

    def wait(self, position: DLSN, timeout_s: float) -> bool:
        """Block until a record is visible at or behind `position`, or the timeout: whether one is. Raises as `lag`."""
        self._check_open()
        before = self._catalog.sequence_at(position)
        return self._catalog.await_change(lambda: self._catalog.end_sequence() > before or None, timeout_s) or False

    def lag(self, position: DLSN) -> int:
        """How many visible records lie at and behind `position`. Raises PositionTruncated, DamagedEntry,
        LogNotFound."""
        self._check_open()
        return self._catalog.end_sequence() - self._catalog.sequence_at(position)

    def ended(self, position: DLSN) -> bool:
        """Whether the log is sealed and nothing lies at or behind `position`, now or ever."""
        self._check_open()
        return self._catalog.state().head.end_of_stream and self.lag(position) == 0

    def end_position(self) -> DLSN:
        """The position behind the last visible record."""
        self._check_open()
        return self._catalog.end_position()

    def close(self) -> None:
        """Release everything. What was read stays valid. Idempotent."""
        self._closed = True
        self._catalog.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"log '{self._catalog.log.name}': the reader is closed; open a new one")

    def _read_more(self, records_max: int) -> pa.RecordBatch | None:
        """More, if it is there; an end or damage waits for the next call."""
        before = self._position, self._next
        try:
            return self._read_now(records_max)
        except (EndOfStream, DamagedEntry):
            self._position, self._next = before
            return None

    def _read_now(self, records_max: int) -> pa.RecordBatch | None:
        self._check_open()
        if self._position < self._catalog.state().head.first:
            self._catalog.check_position(self._position)  # raises
        while True:
            place = self._place()
            if place is None:
                if not self._advance_segment():
                    self._raise_if_ended()
                    return None
                continue
            batch = self._slice(place, records_max)
            if batch is not None:
                return batch

    def _place(self) -> EntryPlace | None:
        """The entry at the position, if it is visible."""
        segment = self._catalog.segment(self._position.segment)
        if segment is None:
            return None
        end = self._catalog.end(segment)
        entry = self._position.entry
        if entry >= end.entries:
            return None
        reader = self._catalog.reader(segment)
        if self._next is None or self._next.header.entry > entry:
            self._next = reader.find_entry(entry, end.end)
        elif self._next.header.entry < entry:
            self._next = next(reader.entries(self._next.end, end.end, entry), None)
        return self._next

    def _advance_segment(self) -> bool:
        segment = self._catalog.segment(self._position.segment)
        if segment is None or segment.in_progress or self._catalog.segment(segment.segment + 1) is None:
            return False
        self._position, self._next = DLSN(segment.segment + 1, 0, 0), None
        return True

    def _raise_if_ended(self) -> None:
        if self._catalog.state().head.end_of_stream:
            raise EndOfStream(f"log '{self._catalog.log.name}' was sealed, and everything in it has been read")

    def _slice(self, place: EntryPlace, records_max: int) -> pa.RecordBatch | None:
        """Records of the entry from the position on; None (and the position is behind it) if there is none."""
        header = place.header
        segment, entry, slot = self._position
        if not header.carries_records or slot >= header.records or self._before_start(place):
            self._position = DLSN(segment, entry + 1, 0)
            return None
        descriptor = self._catalog.segment(segment)
        assert descriptor is not None, "an entry was found in it"
        body = self._catalog.reader(descriptor).body(place)
        if self._txid_min is not None:
            at_least = pc.index(pc.greater_equal(body.column(0), self._txid_min), True).as_py()
            slot, self._txid_min = max(slot, at_least), None
        end = min(header.records, slot + max(1, records_max))
        batch = _with_place(to_records(body.slice(slot, end - slot)), segment, entry, slot, header.sequence + slot)
        self._position = DLSN(segment, entry, end) if end < header.records else DLSN(segment, entry + 1, 0)
        return batch

    def _before_start(self, place: EntryPlace) -> bool:
        return self._txid_min is not None and place.header.last_txid < self._txid_min

    def _find(self, txid: int) -> DLSN:
        """Where to start so that no record of at least `txid` is missed; smaller ones may follow, and are left out."""
        state = self._catalog.state()
        for segment in state.segments:
            end = self._catalog.end(segment)
            if segment.segment < state.head.first.segment or end.last_txid < txid:
                continue
            place = self._catalog.reader(segment).find_txid(txid, end.end)
            if place is not None:
                return max(state.head.first, DLSN(segment.segment, place.header.entry, 0))
        return max(state.head.first, self._catalog.end_position())


_FEW = 32
_COUNTED = 65_536
_COUNTING = pa.array(range(_COUNTED), pa.int64())


def _with_place(batch: pa.RecordBatch, segment: int, entry: int, slot: int, sequence: int) -> pa.RecordBatch:
    rows = batch.num_rows
    columns = [*batch.columns, _same(segment, rows), _same(entry, rows), _count(slot, rows), _count(sequence, rows)]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def _same(value: int, rows: int) -> pa.Array:
    if rows <= _FEW:
        return pa.array([value] * rows, pa.int64())
    return pa.repeat(pa.scalar(value, pa.int64()), rows)


def _count(start: int, rows: int) -> pa.Array:
    """start, start + 1, ... without a Python object for each, unless they are few: then that is faster."""
    if _FEW < rows <= _COUNTED:
        return pc.add(_COUNTING.slice(0, rows), start)
    return pa.array(range(start, start + rows), pa.int64())


def _records(batch: pa.RecordBatch) -> list[LogRecord]:
    columns = batch.to_pydict()
    rows = zip(*(columns[name] for name in READ_SCHEMA.names), strict=True)
    return [
        LogRecord(DLSN(segment, entry, slot), sequence, txid, payload, key, channel)
        for txid, channel, key, payload, segment, entry, slot, sequence in rows
    ]
