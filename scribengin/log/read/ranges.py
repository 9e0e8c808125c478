"""Ranges of a log for a round: planned from headers alone, read by any process that reaches the store, without a
registry.

The mistake to avoid: a plan that depends on how the log was cut into entries *later*. Entries never change, so a range
between two positions reads the same records for ever, or raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from scribengin.base.text.counting import many, which
from scribengin.errors import DamagedEntry, LogNotFound, RangeGone
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryHeader, read_body, to_records
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.read.catalog import LogCatalog, damaged, misplaced
from scribengin.log.store.cold import ColdLocation
from scribengin.log.store.contract import SegmentLocation, SegmentView
from scribengin.log.store.index import DamagePlace, EntryPlace, walk

SPLIT_BYTES_MIN = 4 * 1024 * 1024
"""Ranges are cut into splits of at least this size (the last of a segment may be smaller)."""
_SMALL_ROWS = 256
_JOINED_ROWS = 4096


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in fewer batches: small ones are joined, large ones are passed on as they are.

    A log that is written record by record has an entry for each, and what costs little a record costs much a batch.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    failure: DamagedEntry | None = None
    while True:
        try:
            batch = next(batches, None)
        except DamagedEntry as error:  # what came before it is good
            batch, failure = None, error
        if waiting and (batch is None or batch.num_rows >= _SMALL_ROWS or rows >= _JOINED_ROWS):
            yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
            waiting, rows = [], 0
        if failure is not None:
            raise failure
        if batch is None:
            return
        if batch.num_rows >= _SMALL_ROWS:
            yield batch
        else:
            waiting.append(batch)
            rows += batch.num_rows


@dataclass(frozen=True, slots=True)
class EntryRange:
    """A run of entries of one segment, some of whose records are wanted. Picklable; `read` needs the store,
    and no registry.

    The bytes [offset, end) of the segment at `location` hold entries `first_entry` and following. Of the first entry
    the slots before `first_slot` are left out, of the last one those from `last_slot_end` on. No body expands to more
    than `decoded_bytes_max`.
    """

    log: str
    location: SegmentLocation
    segment: int
    epoch: int
    first_entry: int
    offset: int
    end: int
    first_slot: int
    last_slot_end: int
    records: int
    decoded_bytes_max: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries, headers included."""
        return self.end - self.offset

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records in order, in RECORD_SCHEMA; mapped, but for small or compressed entries.

        Raises DamagedEntry when it gets to damage, RangeGone when the file is not there any more.
        """
        return (to_records(body) for body in joined(body for _header, _slot, body in self.entries()))

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """Log and DLSN of some of the records, by their numbers from 0, ascending. Raises as `read`."""
        told: list[str] = []
        before = 0
        for header, slot, batch in self.entries():
            while len(told) < len(indices) and indices[len(told)] < before + batch.num_rows:
                at = slot + indices[len(told)] - before
                told.append(f"log {self.log}, DLSN {self.segment}/{header.entry}/{at}")
            before += batch.num_rows
            if len(told) == len(indices):
                break
        return told

    def entries(self) -> Iterator[tuple[EntryHeader, int, pa.RecordBatch]]:
        """For each entry its header, the first slot that is wanted, and the wanted rows as BODY_SCHEMA, not joined.

        Raises as `read`.
        """
        try:
            yield from self._entries()
        except LogNotFound as error:
            raise RangeGone(f"log '{self.log}', segment {self.segment}: {error}; or plan the range again") from None

    def _entries(self) -> Iterator[tuple[EntryHeader, int, pa.RecordBatch]]:
        view = self.location.open()
        try:
            entry, records, sequence = self.first_entry, 0, None
            for place in walk(view, self.offset, self.end):
                batch = self._body(view, place, entry, sequence)
                if isinstance(place, EntryPlace):
                    sequence = place.header.end_sequence
                    if batch is not None:
                        records += batch.num_rows
                        yield place.header, self.first_slot if entry == self.first_entry else 0, batch
                entry += 1
            if records != self.records:
                raise self._damaged(
                    entry,
                    self.end,
                    Damage(f"{many(records, 'record')} {which(records, 'was', 'were')} read, {self.records} planned"),
                )
        except DamagedEntry:
            view.doubt()
            raise
        finally:
            view.close()

    def _body(
        self, view: SegmentView, place: EntryPlace | DamagePlace, entry: int, sequence: int | None
    ) -> pa.RecordBatch | None:
        if isinstance(place, DamagePlace):
            raise self._damaged(entry, place.offset, place.damage)
        header = place.header
        wrong = misplaced(header, entry=entry, epoch=self.epoch, sequence=sequence)
        if wrong is not None:
            raise self._damaged(entry, place.offset, wrong)
        if not header.carries_records:
            return None
        stored = view.read(place.offset + HEADER_BYTES, header.body_bytes)
        body = read_body(header, stored, decoded_bytes_max=self.decoded_bytes_max)
        if isinstance(body, Damage):
            raise self._damaged(entry, place.offset, body)
        start = self.first_slot if entry == self.first_entry else 0
        end = self.last_slot_end if place.end == self.end else header.records
        return body if end - start == header.records else body.slice(start, end - start)

    def _damaged(self, entry: int, offset: int, damage: Damage) -> Exception:
        cold = self.location if isinstance(self.location, ColdLocation) else None
        return damaged(self.log, self.segment, entry, offset, damage, cold)


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The records in [start, end). `splits`, read one after the other, give them in order."""

    start: DLSN
    end: DLSN
    records: int
    splits: tuple[EntryRange, ...]


def plan_range(catalog: LogCatalog, start: DLSN, *, records_max: int, bytes_max: int) -> RangePlan | None:
    """What to read next from `start`, within the limits (but at least one record), or None: nothing is there just now.

    Does not block, and asks the registry only if the log's metadata changed. Raises PositionTruncated,
    InconsistentLog, LogNotFound, and DamagedEntry if the damage is where the range would begin.
    """
    return catalog.settled(lambda: _planned(catalog, _Planner(catalog.check_position(start), records_max, bytes_max)))


def _planned(catalog: LogCatalog, planner: _Planner) -> RangePlan | None:
    while not planner.full:
        segment = catalog.segment(planner.position.segment)
        if segment is None:
            break
        end = catalog.end(segment)
        if planner.position.entry < end.entries:
            reader = catalog.reader(segment)
            planner.open_segment(catalog.log.name, reader.location, segment)
            place = reader.find_entry(planner.position.entry, end.end)
            if place is not None:
                _take(planner, reader.entries(place.offset, end.end, place.header.entry))
        if planner.full or segment.in_progress or catalog.segment(segment.segment + 1) is None:
            break
        planner.position = DLSN(segment.segment + 1, 0, 0)
    return planner.plan()


def _take(planner: _Planner, places: Iterator[EntryPlace]) -> None:
    try:
        for place in places:
            planner.add(place)
            if planner.full:
                return
    except DamagedEntry:
        if not planner.records:
            raise
        planner.full = True  # the next range begins at the damage, and says so


@dataclass(slots=True)
class _Run:
    """The split that is being collected."""

    first_entry: int
    offset: int
    first_slot: int
    end: int = 0
    last_slot_end: int = 0
    records: int = 0


class _Planner:
    """Collects entries until a limit is reached."""

    def __init__(self, start: DLSN, records_max: int, bytes_max: int) -> None:
        self._start = start
        self.position = start
        self.records = 0
        self.full = False
        self._records_left = max(1, records_max)
        self._bytes_left = bytes_max
        self._splits: list[EntryRange] = []
        self._source: tuple[str, SegmentLocation, SegmentDescriptor] | None = None
        self._run: _Run | None = None

    def open_segment(self, log: str, location: SegmentLocation, segment: SegmentDescriptor) -> None:
        """What is added from now on stands in that segment."""
        self._close_split()
        self._source = (log, location, segment)

    def add(self, place: EntryPlace) -> None:
        header = place.header
        first = self.position.slot if header.entry == self.position.entry else 0
        there = header.records - first
        if not header.carries_records or there <= 0:
            self.position = DLSN(self.position.segment, header.entry + 1, 0)
            return
        take = self._fit(place, there)
        if take:
            self._grow(place, first, first + take)
            self._records_left -= take
            self._bytes_left -= header.size * take // header.records
            self.records += take
        whole = take == there
        self.position = DLSN(self.position.segment, header.entry + whole, 0 if whole else first + take)
        self.full = not whole or self._records_left <= 0 or self._bytes_left <= 0

    def plan(self) -> RangePlan | None:
        self._close_split()
        if not self.records:
            return None
        return RangePlan(self._start, self.position, self.records, tuple(self._splits))

    def _fit(self, place: EntryPlace, there: int) -> int:
        record_bytes = max(1, place.header.size // place.header.records)
        fit = min(there, self._records_left, max(0, self._bytes_left) // record_bytes)
        return fit if fit or self.records else 1

    def _grow(self, place: EntryPlace, first_slot: int, slot_end: int) -> None:
        if self._run is not None and self._run.end - self._run.offset >= SPLIT_BYTES_MIN:
            self._close_split()
        if self._run is None:
            self._run = _Run(place.header.entry, place.offset, first_slot)
        self._run.end = place.end
        self._run.last_slot_end = slot_end
        self._run.records += slot_end - first_slot

    def _close_split(self) -> None:
        if self._run is None or self._source is None:
            return
        log, location, segment = self._source
        place = EntryRange(
            log=log,
            location=location,
            segment=segment.segment,
            epoch=segment.epoch,
            decoded_bytes_max=segment.decoded_bytes_max,
            **asdict(self._run),
        )
        self._splits.append(place)
        self._run = None
