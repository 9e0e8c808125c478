"""One pass over the bytes of one segment that readers see, which goes on behind damage. Read only.

A reader stops at the first thing that is wrong, and recovery decides by it (scan/unfinished.py); whoever has to mend a
log wants to know all of it, and what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.text.counting import many, which
from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryType, read_body
from scribengin.log.format.staged import read_control
from scribengin.log.metadata.check import Finding
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.scan.resync import next_good_entry
from scribengin.log.scan.unfinished import EntryFold
from scribengin.log.store.contract import SegmentName, SegmentStore, SegmentView, Tail
from scribengin.log.store.index import DamagePlace, EntryPlace, walk

TXID_UNKNOWN = -(2**63)
"""The last transaction id before a segment whose predecessor is gone."""


class SegmentCheck:
    """Iterate it: it yields the entries whose header holds, and findings where something is wrong, in order.

    `end` is how far readers see the segment, `start_txid` the last transaction id before it, and with `check_txids`
    none may decrease. Without `bodies` only headers are looked at.
    """

    def __init__(
        self,
        view: SegmentView,
        segment: SegmentDescriptor,
        end: Tail,
        *,
        start_txid: int = TXID_UNKNOWN,
        check_txids: bool = False,
        bodies: bool = True,
    ) -> None:
        self._view = view
        self._segment = segment
        self._end = end
        self._bodies = bodies
        self._check_txids = check_txids
        self._knows_txid = start_txid != TXID_UNKNOWN
        self._fold = EntryFold(segment, Tail(0, 0, start_txid, segment.start_sequence))
        self._damaged = False
        """Whether what came before is not all there: then a control record may name what was lost."""
        self.entries: Counter[str] = Counter()
        """Entries by type whose header holds."""
        self.records = 0
        """Records of the entries that hold."""
        self.first_txid: int | None = None
        self.last_txid: int | None = None

    def __iter__(self) -> Iterator[EntryPlace | Finding]:
        at = 0
        while at < self._end.end:
            for place in walk(self._view, at, self._end.end):
                if isinstance(place, DamagePlace):
                    at, finding = self._pass_over(place)
                    yield finding
                    break
                at = place.end
                yield place
                yield from self._take(place)
        if not self._damaged:
            yield from self._compare()

    def _take(self, place: EntryPlace) -> Iterator[Finding]:
        header = place.header
        self.entries[EntryType(header.type).name.lower()] += 1
        body = self._body(place)
        before = self._fold.at
        wrong = self._fold.add(header, lambda: read_control(body) if isinstance(body, pa.RecordBatch) else None)
        if isinstance(body, Damage):
            yield self._finding(place, f"{body.reason}; {_lost(0, header.records)}")
        if wrong is not None:
            yield self._finding(place, wrong.reason)
        elif self._fold.contradiction is not None and not self._damaged and not isinstance(body, Damage):
            yield self._finding(place, self._fold.contradiction)
        if wrong is not None or isinstance(body, Damage) or self._fold.contradiction is not None:
            self._damaged = True
            after = Tail(place.end, header.entry + 1, max(before.last_txid, header.last_txid), header.end_sequence)
            self._fold = EntryFold(self._segment, after, group_index=header.group_index)
        if header.carries_records:
            yield from self._txids(place, body, before.last_txid)

    def _body(self, place: EntryPlace) -> pa.RecordBatch | Damage | None:
        header = place.header
        if not self._bodies and header.type != EntryType.CONTROL:
            return None
        stored = self._view.read(place.offset + HEADER_BYTES, header.body_bytes)
        return read_body(header, stored, decoded_bytes_max=self._segment.decoded_bytes_max)

    def _txids(self, place: EntryPlace, body: pa.RecordBatch | Damage | None, before: int) -> Iterator[Finding]:
        header = place.header
        if self._check_txids and header.first_txid < before:
            yield self._finding(place, f"its first transaction id is {header.first_txid}, after {before}")
        if isinstance(body, Damage):
            return
        if body is not None:
            txids = body.column(0)
            ends = (txids[0].as_py(), txids[-1].as_py())
            if ends != (header.first_txid, header.last_txid):
                said = f"{header.first_txid} to {header.last_txid}"
                yield self._finding(place, f"its transaction ids are {ends[0]} to {ends[1]}, its header says {said}")
            if self._check_txids and len(txids) > 1 and not pc.all(pc.less_equal(txids[:-1], txids[1:])).as_py():
                yield self._finding(place, "its transaction ids decrease")
        self.records += header.records
        self.first_txid = header.first_txid if self.first_txid is None else self.first_txid
        self.last_txid = header.last_txid

    def _pass_over(self, hole: DamagePlace) -> tuple[int, Finding]:
        """Where it goes on behind a hole, and what is to be said of it."""
        at = self._fold.at
        self._damaged = True
        epoch = self._segment.epoch
        found = next_good_entry(self._view, epoch, offset=hole.offset, entry=at.entries, end=self._end)
        if found is None:
            lost = _lost(self._end.entries - at.entries, self._end.sequence - at.sequence)
            what = f"{hole.damage.reason}; nothing follows up to byte {self._end.end:,}: {lost}"
            return self._end.end, Finding(what, self._segment.segment, at.entries, hole.offset)
        header = found.header
        lost = _lost(header.entry - at.entries, header.sequence - at.sequence)
        what = f"{hole.damage.reason}; it goes on with entry {header.entry} at byte {found.offset:,}: {lost}"
        begin = Tail(found.offset, header.entry, at.last_txid, header.sequence)
        self._fold = EntryFold(self._segment, begin, group_index=header.group_index - 1)
        return found.offset, Finding(what, self._segment.segment, at.entries, hole.offset)

    def _compare(self) -> Iterator[Finding]:
        found, end = self._fold.at, self._end
        if not self._knows_txid:
            found = Tail(found.end, found.entries, end.last_txid, found.sequence)
        if found != end:
            source = "its tail" if self._segment.in_progress else "the registry"
            yield Finding(f"{source} says {_told(end)}; its file holds {_told(found)}", self._segment.segment)

    def _finding(self, place: EntryPlace, what: str) -> Finding:
        return Finding(what, self._segment.segment, place.header.entry, place.offset)


def wrong_in(store: SegmentStore, segment: SegmentDescriptor, name: SegmentName, size: int) -> str | None:
    """Read the first `size` bytes of a file of a segment, which should be all of it: what does not hold, if anything
    does not. Raises LogNotFound, LogWriteFailed."""
    end = Tail(size, segment.entries, segment.last_txid, segment.end_sequence)
    view = store.open(name)
    try:
        found = next((entry for entry in SegmentCheck(view, segment, end) if isinstance(entry, Finding)), None)
    finally:
        view.close()
    return None if found is None else str(found)


def _lost(entries: int, records: int) -> str:
    if entries < 1 and not records:
        return "no record is lost"
    if entries < 1:
        return which(records, "its record is lost", f"its {records:,} records are lost")
    return f"{many(entries, 'entry', 'entries')} with {many(records, 'record')} lost"


def _told(tail: Tail) -> str:
    return (
        f"{many(tail.entries, 'entry', 'entries')}, {tail.end:,} bytes, up to sequence id {tail.sequence:,} "
        f"and transaction id {tail.last_txid}"
    )
