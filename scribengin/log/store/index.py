"""The index of a segment: every 64 KiB or so, which entry begins where. It is a hint, and can always be rebuilt.

A row repeats fields of the header it points to, so it is right exactly if that header's checksum holds and says the
same: the index needs no checksum of its own, and a missing, short or wrong one costs time, never a record.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryHeader, read_header
from scribengin.log.store.contract import SegmentView

INTERVAL_BYTES = 64 * 1024
_ROW = struct.Struct("<QQqq")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The entry `entry` begins at `offset`, with the record `sequence` and the transaction id `txid`."""

    entry: int
    offset: int
    sequence: int
    txid: int

    @classmethod
    def of(cls, header: EntryHeader, offset: int) -> IndexRow:
        return cls(header.entry, offset, header.sequence, header.first_txid)

    def to_bytes(self) -> bytes:
        return _ROW.pack(self.entry, self.offset, self.sequence, self.txid)


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """A valid header and where it stands."""

    offset: int
    header: EntryHeader

    @property
    def end(self) -> int:
        return self.offset + self.header.size


@dataclass(frozen=True, slots=True)
class DamagePlace:
    """Where no valid entry stands, and why not."""

    offset: int
    damage: Damage


def walk(view: SegmentView, start: int, end: int) -> Iterator[EntryPlace | DamagePlace]:
    """The headers of the entries in [start, end). Ends after the first damage. Bodies are not looked at."""
    window, base = memoryview(b""), start
    while start < end:
        if start + HEADER_BYTES > base + len(window):
            base = start
            window = memoryview(view.read(start, min(INTERVAL_BYTES, end - start)))
        header = read_header(window, start - base)
        if isinstance(header, EntryHeader) and start + header.size > end:
            header = Damage(f"the entry would end {start + header.size - end} bytes after the end of the segment")
        if isinstance(header, Damage):
            yield DamagePlace(start, header)
            return
        yield EntryPlace(start, header)
        start += header.size


def rows_of(kept: bytes) -> list[IndexRow]:
    """The whole rows of an index as it was kept. Nothing is checked."""
    return [IndexRow(*row) for row in _ROW.iter_unpack(kept[: len(kept) // _ROW.size * _ROW.size])]


class SegmentIndex:
    """The index of one open segment, grown as the segment does."""

    def __init__(self, view: SegmentView, kept: bytes) -> None:
        self._view = view
        self._rows = rows_of(kept)
        self._kept = kept
        if not self._ascends():
            self._rows.clear()

    @property
    def outgrew_kept(self) -> bool:
        """Whether it is worth keeping again: what was kept was short, or wrong."""
        return self.to_bytes() != self._kept

    def to_bytes(self) -> bytes:
        return b"".join(row.to_bytes() for row in self._rows)

    def before_entry(self, entry: int, end: int) -> IndexRow:
        """The last row at or before `entry` whose place is before `end`."""
        return self._before(lambda row: row.entry, entry, end)

    def before_sequence(self, sequence: int, end: int) -> IndexRow:
        """The last row at or before the record `sequence`."""
        return self._before(lambda row: row.sequence, sequence, end)

    def before_txid(self, txid: int, end: int) -> IndexRow:
        """The last row whose entry begins with a smaller transaction id: what comes before it is smaller, too."""
        return self._before(lambda row: row.txid, txid - 1, end)

    def _before(self, field: Callable[[IndexRow], int], value: int, end: int) -> IndexRow:
        self._extend(end, lambda row: field(row) > value)
        at = bisect_right(self._rows, value, key=field) - 1
        while at >= 0 and self._rows[at].offset >= end:
            at -= 1
        row = self._rows[at] if at >= 0 else IndexRow(0, 0, 0, 0)
        if row.offset and not self._holds(row):
            self._rows.clear()
            return self._before(field, value, end)
        return row

    def _extend(self, end: int, is_behind: Callable[[IndexRow], bool]) -> None:
        """As far as an entry behind what is looked for: who begins at the front of a segment reads no more of it."""
        if self._rows and self._rows[-1].offset < end and not self._holds(self._rows[-1]):
            self._rows.clear()
        last = self._rows[-1].offset if self._rows else 0
        if end - last <= INTERVAL_BYTES or (self._rows and is_behind(self._rows[-1])):
            return
        for place in walk(self._view, last, end):
            if isinstance(place, DamagePlace):
                return  # a reader that gets there will say so
            row = IndexRow.of(place.header, place.offset)
            if place.offset - last >= INTERVAL_BYTES:
                self._rows.append(row)
                last = place.offset
            if is_behind(row):
                return

    def _holds(self, row: IndexRow) -> bool:
        header = read_header(self._view.read(row.offset, HEADER_BYTES))
        return isinstance(header, EntryHeader) and IndexRow.of(header, row.offset) == row

    def _ascends(self) -> bool:
        pairs = zip(self._rows, self._rows[1:], strict=False)
        return all(a.offset < b.offset and a.entry < b.entry and a.sequence <= b.sequence for a, b in pairs)
