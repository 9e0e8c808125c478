"""Goes through a log from entry to entry, across segments, as far as they are visible. Headers only; who wants a body
asks for it.

The mistake to avoid: deciding from two looks at the log. "This segment has no more entries" and "there is a next
segment" must come from one reading of the metadata: a segment that was in progress at the first look and is complete
at the second may have grown in between, and its last entries would be skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scribengin.errors import DamagedEntry, EndOfStream
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import Damage
from scribengin.log.read.catalog import LogCatalog, SegmentReader, damaged
from scribengin.log.scan.resync import next_good_entry
from scribengin.log.store.contract import Tail
from scribengin.log.store.index import EntryPlace

_NOTHING = Tail(0, 0, 0, 0)


@dataclass(slots=True)
class PassedOver:
    """What was damaged and left out: entries, and their bytes as stored."""

    entries: int = 0
    bytes: int = 0

    def add(self, entries: int, size: int) -> None:
        self.entries += entries
        self.bytes += size


class EntryCursor:
    """Stands before an entry. Not thread-safe; shares its catalog with whoever made it.

    With `skip_damaged` it passes over headers that do not hold, to the next one that does, and counts them.
    """

    def __init__(self, catalog: LogCatalog, position: DLSN, *, skip_damaged: bool) -> None:
        self._catalog = catalog
        self._skip_damaged = skip_damaged
        self._segment = position.segment
        self._entry = position.entry
        self._reader: SegmentReader | None = None
        """Of the segment, if it has been looked into."""
        self._end = _NOTHING
        """How far the segment could be read when that was last looked at."""
        self._at: tuple[int, int, int | None] | None = None
        """An entry at or before the one it stands before, its offset, and its first sequence id if that is known."""
        self._walk: Iterator[EntryPlace] | None = None
        """The places from there on."""
        self.passed_over = PassedOver()

    @property
    def position(self) -> DLSN:
        """Of the entry it stands before."""
        return DLSN(self._segment, self._entry, 0)

    def next(self) -> tuple[SegmentReader, EntryPlace] | None:
        """The entry it stands before, which it passes; None: there is none just now.

        Raises EndOfStream behind the last entry of a sealed log, DamagedEntry, LogNotFound, InconsistentLog.
        """
        while self._entry < self._end.entries or self._catalog.settled(self._look):
            reader = self._opened()
            try:
                place = self._place(reader)
            except DamagedEntry as error:
                if not self._skip_damaged:
                    raise
                self._pass_over(reader, error)
                continue
            number = place.header.entry
            self._at = (number + 1, place.end, place.header.end_sequence)
            if number >= self._entry:
                self._entry = number + 1
                return reader, place
        return None

    def _look(self) -> bool:
        """Whether there is an entry where it stands, or at the beginning of a later segment, where it stands then."""
        state = self._catalog.state()
        if self.position[:2] < state.head.first[:2]:
            self._go_to(self._catalog.check_position(self.position))
        segment = self._catalog.segment(self._segment, state)
        while segment is not None:
            end = self._catalog.end(segment, beyond=self._entry)
            if self._entry < end.entries:
                self._end = end
                self._walk = None
                return True
            if segment.in_progress:
                return False
            segment = self._catalog.segment(self._segment + 1, state)
            if segment is not None:
                self._go_to(DLSN(segment.segment, 0, 0))
        if state.head.end_of_stream:
            raise EndOfStream(f"log '{self._catalog.log.name}' was sealed, and everything in it has been read")
        return False

    def _go_to(self, position: DLSN) -> None:
        self._segment = position.segment
        self._entry = position.entry
        self._reader = None
        self._end = _NOTHING

    def _opened(self) -> SegmentReader:
        """The segment's reader. Offsets hold for one reader: it may have been closed for others meanwhile."""
        descriptor = self._catalog.segment(self._segment)
        assert descriptor is not None, "an entry of it is visible"
        reader = self._catalog.reader(descriptor)
        if reader is not self._reader:
            self._end = self._catalog.end(descriptor)  # which may fail: then nothing has changed
            self._reader = reader
            self._at = self._walk = None
        return reader

    def _place(self, reader: SegmentReader) -> EntryPlace:
        if self._at is None:
            place = reader.find_entry(self._entry, self._end.end)
        else:
            if self._walk is None:
                number, offset, sequence = self._at
                self._walk = reader.entries(offset, self._end.end, number, sequence)
            place = next(self._walk, None)
        if place is None:
            reader.view.doubt()
            short = Damage(f"the segment ends here, but should hold {self._end.entries} entries")
            raise damaged(self._catalog.log.name, self._segment, self._entry, self._end.end, short, reader.cold)
        return place

    def _pass_over(self, reader: SegmentReader, error: DamagedEntry) -> None:
        """Go on behind the damage, which may lie before the entry that it stands before."""
        lost, end = DLSN.parse(error.position).entry, self._end
        found = next_good_entry(reader.view, reader.segment.epoch, offset=error.offset, entry=lost, end=end)
        number, offset = (end.entries, end.end) if found is None else (found.header.entry, found.offset)
        if number > self._entry:
            self.passed_over.add(number - max(lost, self._entry), offset - error.offset)
        self._entry = max(number, self._entry)
        self._at = (number, offset, None)
        self._walk = None
