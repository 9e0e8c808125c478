"""Where the next good entry stands behind damage, for readers that were told to pass over it.

Every entry begins at a multiple of 64 bytes, with a header that has its own checksum and says the segment's epoch, the
entry's number and its sequence id. The mistake to avoid: taking something for an entry that is part of a payload, when
a log carries pieces of other logs. So what is found must fit between the damage and what follows: runs of entries are
collected, each continuing the one before without a gap, and from the segment's end backwards only those are kept whose
numbers and sequence ids fit before the run that comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scribengin.log.format.entry import ALIGNMENT
from scribengin.log.store.contract import SegmentView, Tail
from scribengin.log.store.index import EntryPlace, walk

_CHUNK_BYTES = 4 * 1024 * 1024
_ENTRY_AT, _EPOCH_AT, _WORDS = 6, 7, 8  # a header as eight little-endian uint64


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries that follow each other without a gap."""

    first: EntryPlace
    last: EntryPlace


def next_good_entry(view: SegmentView, epoch: int, *, offset: int, entry: int, end: Tail) -> EntryPlace | None:
    """The first good header behind the damage at `offset`, where `entry` should stand; None: none up to `end`."""
    entries, sequence = end.entries, end.sequence
    found = None
    for run in reversed(list(_runs(view, epoch, offset, entry, end))):
        last = run.last.header
        if last.entry < entries and last.end_sequence <= sequence:
            found, entries, sequence = run.first, run.first.header.entry, run.first.header.sequence
    return found


def _runs(view: SegmentView, epoch: int, offset: int, entry: int, end: Tail) -> Iterator[_Run]:
    beyond = offset
    for at in _candidates(view, epoch, offset, entry, end):
        if at < beyond:
            continue  # part of the run before
        run = _run(view, epoch, at, end.end)
        if run is not None:
            beyond = run.last.offset + ALIGNMENT
            yield run


def _candidates(view: SegmentView, epoch: int, offset: int, entry: int, end: Tail) -> Iterator[int]:
    """Offsets that may hold a header: the epoch is right, and the entry's number is behind the damage."""
    for start in range(offset, min(end.end, view.size()), _CHUNK_BYTES):  # `end` may be as damaged as all the rest
        data = view.read(start, min(_CHUNK_BYTES, end.end - start))
        rows = np.frombuffer(data, dtype="<u8", count=len(data) // ALIGNMENT * _WORDS).reshape(-1, _WORDS)
        numbers = rows[:, _ENTRY_AT]
        hits = (rows[:, _EPOCH_AT] == epoch) & (numbers > entry) & (numbers < end.entries)
        yield from (start + int(row) * ALIGNMENT for row in np.flatnonzero(hits))


def _run(view: SegmentView, epoch: int, offset: int, end: int) -> _Run | None:
    first = last = None
    for place in walk(view, offset, end):
        if not isinstance(place, EntryPlace) or place.header.epoch != epoch:
            break
        if last is not None and not _continues(last, place):
            break
        first, last = first or place, place
    return None if first is None or last is None else _Run(first, last)


def _continues(before: EntryPlace, after: EntryPlace) -> bool:
    said = (after.header.entry, after.header.sequence)
    return said == (before.header.entry + 1, before.header.end_sequence)
