"""Where a reader can start, and how that becomes a position.

A start that is still to come (a transaction id or a sequence id that no record has yet) becomes the end of the log and
a `StartFilter`: what is written until then and does not belong to the start is left out.

Time. Records carry no time of their own, but writers that are not told a transaction id take the time in milliseconds,
and every segment knows when it was created and completed. So `Time(ms)` leaves out the segments that were completed
before `ms`, up to the first that was not: also where a clock went back behind that. It is found by bisection, since
each segment says when the latest up to it was completed (`SegmentDescriptor.latest_ms`). Within the first one that is
left it goes by transaction ids, if those are times: if the segment's first one lies within an hour of the segment's
creation. If they are not, it starts with the segment: too early rather than too late. A time that is still to come
starts at the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.errors import ConfigInvalid, DamagedEntry, PositionTruncated
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import EntryHeader
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.read.batches import first_true
from scribengin.log.read.catalog import LogCatalog

_TIMES_WITHIN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Start at the first record whose transaction id is at least `value`; earlier ones that come later are left out."""

    value: int


@dataclass(frozen=True, slots=True)
class SequenceId:
    """Start at the record with that sequence id, counted from 0 over the whole log. 0: the first that is kept.

    Raises PositionTruncated for one that was truncated; one that is still to come is waited for.
    """

    value: int


@dataclass(frozen=True, slots=True)
class Time:
    """Start at the first record written at that time (ms since the epoch) or later; see the top of this file."""

    ms: int


class StartEdge(Enum):
    """FIRST: the first record that is kept. LAST: the last one that is visible. TAIL: the first that comes after it."""

    FIRST = "first"
    LAST = "last"
    TAIL = "tail"


FIRST = StartEdge.FIRST
"""The first record that is kept."""
LAST = StartEdge.LAST
"""The last record that is visible."""
TAIL = StartEdge.TAIL
"""The first record that comes after it."""

Start = DLSN | TransactionId | SequenceId | Time | StartEdge | None
"""None is FIRST, and so are DLSN.INITIAL and DLSN.NON_INCLUSIVE_LOWER_BOUND."""

_TXID_MIN = -(2**63)
"""Arrow compares a column with no number that does not fit into it. One that is too large, no header gets as far as."""
_FIRST = (None, FIRST, DLSN.INITIAL, DLSN.NON_INCLUSIVE_LOWER_BOUND)


def check_start(log: str, start: object) -> None:
    """Raises ConfigInvalid for what is no start: it would be read as one, and nothing would ever come."""
    if isinstance(start, DLSN | TransactionId | SequenceId | Time | StartEdge | None):
        return
    raise ConfigInvalid(
        f"log '{log}': {start!r:.100} is no place to start at: pass FIRST, LAST, TAIL, Time(ms), TransactionId(n), "
        "SequenceId(n), a DLSN, or None for FIRST"
    )


class StartFilter(Protocol):
    """Leaves out what comes before the start. Once it has let a record through, everything passes."""

    def first_slot(self, header: EntryHeader, body: pa.RecordBatch) -> int | None:
        """The first record of an entry that passes; None: none does."""
        ...


@dataclass(frozen=True, slots=True)
class TxidGate:
    """Passes the first record whose transaction id is at least `value`."""

    value: int

    def first_slot(self, header: EntryHeader, body: pa.RecordBatch) -> int | None:
        if header.last_txid < self.value:
            return None
        slot = first_true(pc.greater_equal(body.column(0), max(self.value, _TXID_MIN)))
        return None if slot < 0 else slot


@dataclass(frozen=True, slots=True)
class SequenceGate:
    """Passes the record `value`, or whatever is left after it."""

    value: int

    def first_slot(self, header: EntryHeader, body: pa.RecordBatch) -> int | None:
        return None if header.end_sequence <= self.value else max(0, self.value - header.sequence)


def locate(catalog: LogCatalog, start: Start, *, skip_damaged: bool = False) -> tuple[DLSN, StartFilter | None]:
    """The position of `start`, and what to leave out from there on.

    With `skip_damaged`, damage in the way of a lookup makes it start further ahead, where the gate sees to the rest.
    Raises PositionTruncated, InconsistentLog (no position of this log), DamagedEntry, LogNotFound, ConfigInvalid.
    """
    check_start(catalog.log.name, start)
    return catalog.settled(lambda: _located(catalog, start, skip_damaged=skip_damaged))


def _located(catalog: LogCatalog, start: Start, *, skip_damaged: bool) -> tuple[DLSN, StartFilter | None]:
    if start in _FIRST:
        return max(DLSN.INITIAL, catalog.state().head.first), None
    if isinstance(start, DLSN):
        return catalog.check_position(start), None
    if isinstance(start, TransactionId):
        return _at_txid(catalog, start.value, skip_damaged=skip_damaged), TxidGate(start.value)
    if isinstance(start, SequenceId):
        return _at_sequence(catalog, start.value, skip_damaged=skip_damaged), SequenceGate(start.value)
    if isinstance(start, Time):
        return _at_time(catalog, start.ms, skip_damaged=skip_damaged)
    return (_last(catalog) if start is LAST else catalog.end_position()), None


def find_txid(catalog: LogCatalog, txid: int) -> DLSN | None:
    """The first record that is kept whose transaction id is at least `txid`; None if there is none yet.

    Looks at the index, then at some headers, then at one body. Raises DamagedEntry, LogNotFound.
    """
    gate = TxidGate(txid)
    first = catalog.state().head.first
    for segment in catalog.kept_from(lambda segment: catalog.end(segment).last_txid >= txid):
        end = catalog.end(segment)
        place = catalog.reader(segment).find_txid(txid, end.end) if end.last_txid >= txid else None
        if place is not None:
            slot = gate.first_slot(place.header, catalog.reader(segment).body(place))
            found = DLSN(segment.segment, place.header.entry, slot or 0)
            return found if found >= first else _first_visible(catalog)
    return None


def _first_visible(catalog: LogCatalog) -> DLSN | None:
    first = catalog.settled(lambda: catalog.sequence_at(catalog.state().head.first))
    return catalog.position_of(first) if first < catalog.end_sequence() else None


def _at_txid(catalog: LogCatalog, txid: int, *, skip_damaged: bool) -> DLSN:
    """Where to start so that no record of at least `txid` is missed; smaller ones may follow."""
    for segment in catalog.kept_from(lambda segment: catalog.end(segment).last_txid >= txid):
        found = _entry_of_txid(catalog, segment, txid, skip_damaged=skip_damaged)
        if found is not None:
            return max(catalog.state().head.first, found)
    return max(catalog.state().head.first, catalog.end_position())


def _entry_of_txid(catalog: LogCatalog, segment: SegmentDescriptor, txid: int, *, skip_damaged: bool) -> DLSN | None:
    try:
        place = catalog.reader(segment).find_txid(txid, catalog.end(segment).end)
    except DamagedEntry:
        if not skip_damaged:
            raise
        return DLSN(segment.segment, 0, 0)
    return None if place is None else DLSN(segment.segment, place.header.entry, 0)


def _at_sequence(catalog: LogCatalog, sequence: int, *, skip_damaged: bool) -> DLSN:
    first = catalog.state().head.first
    try:
        kept = catalog.sequence_at(first)
        if 0 < sequence < kept:
            raise PositionTruncated(
                f"log '{catalog.log.name}': the record with sequence id {sequence} was truncated, the first kept is "
                f"{kept} at {first}; start from there, from a transaction id, or from the end"
            )
        return max(first, catalog.position_of(max(sequence, kept)))
    except DamagedEntry:
        if not skip_damaged:
            raise
        return first


def _at_time(catalog: LogCatalog, ms: int, *, skip_damaged: bool) -> tuple[DLSN, StartFilter | None]:
    first = catalog.state().head.first
    for segment in catalog.kept_from(lambda segment: segment.reaches(ms)):
        if segment.completed_ms is not None and segment.completed_ms < ms:
            continue  # it comes behind one that was completed later, and was purged since
        begin = max(first, DLSN(segment.segment, 0, 0))
        if segment.created_ms >= ms or not _txids_are_times(catalog, segment):
            return begin, None
        found = _entry_of_txid(catalog, segment, ms, skip_damaged=skip_damaged)
        if found is not None:
            return max(first, found), TxidGate(ms)
    return max(first, catalog.end_position()), None


def _txids_are_times(catalog: LogCatalog, segment: SegmentDescriptor) -> bool:
    try:
        places = catalog.reader(segment).entries(0, catalog.end(segment).end, 0)
        header = next((place.header for place in places if place.header.carries_records), None)
    except DamagedEntry:
        return False
    return header is not None and abs(header.first_txid - segment.created_ms) <= _TIMES_WITHIN_MS


def _last(catalog: LogCatalog) -> DLSN:
    first, end = catalog.state().head.first, catalog.end_sequence()
    return max(first, catalog.position_of(end - 1) if end else catalog.end_position())
