"""What stands in a segment that was left unfinished, and where it therefore ends. Pure, but for reading the segment.

Theory. What one fsync covers is a *group* of entries; the next group is written after that fsync. An entry says how
many entries of its own group stand before it. Entries are numbered without a gap, and each continues the sequence ids
of the one before. So a power failure can leave a hole only in the last group, and whatever is found behind a hole
either belongs to the group that the hole is in (nobody was told that it is safe) or shows that what is missing had
been made durable: damage.

| what stands after the last visible entry | then |
|---|---|
| records (type 1) whose checksums hold | they are part of the log: they may have been acknowledged |
| staged entries that the commit log names | they are part of the log; the segment ends after them |
| staged entries that it does not name | the segment ends before them: rolled back |
| named by the commit log, but not there | refuse: a committed round is missing |
| no valid entry, and no valid entry of a later group after it | a torn tail: the segment ends before it |
| the same, and a valid entry of a later group after it | damage: refuse, cut nothing |
| the same, and `.tail` shows that readers were promised more | damage: refuse, cut nothing |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryHeader, EntryType, read_body, read_header
from scribengin.log.format.staged import StagedRange, read_control
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.store.contract import SegmentView, Tail
from scribengin.log.store.index import DamagePlace, EntryPlace, walk


@dataclass(frozen=True, slots=True)
class StagedRun:
    """Staged entries that no control record has named yet. `end` is the tail as it would be after them."""

    first_entry: int
    end: Tail

    @property
    def last_entry(self) -> int:
        return self.end.entries - 1


@dataclass(frozen=True, slots=True)
class Found:
    """What a scan found: everything up to `visible` counts; then, perhaps, a staged run; then, perhaps, a hole."""

    visible: Tail
    staged: StagedRun | None = None
    hole: DamagePlace | None = None
    later_group: int | None = None
    """Offset of a valid entry behind the hole that belongs to a later group."""
    contradiction: str | None = None
    """What no writer does; whoever wrote it did not follow the protocol."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing may be decided."""

    reason: str


def decide(segment: SegmentDescriptor, found: Found, tail: Tail | None, named: StagedRange | None) -> Tail | Refusal:
    """Where the segment ends. `named` is the staged range that its commit log says has committed."""
    if found.contradiction is not None:
        return Refusal(found.contradiction)
    if found.hole is not None and segment.fsync:
        where = f"at byte {found.hole.offset} (entry {_next_entry(found)}): {found.hole.damage.reason}"
        if found.later_group is not None:
            return Refusal(f"damage {where}; what stands at byte {found.later_group} shows that it was safe before")
    if tail is not None and tail.end > found.visible.end and segment.fsync:
        return Refusal(f"readers were shown {tail.end} bytes, only {found.visible.end} of them are valid")
    if named is None or (named.directory, named.segment) != (segment.directory, segment.segment):
        return found.visible
    if named.last_entry < found.visible.entries:
        return found.visible
    staged = found.staged
    if staged is None or (staged.first_entry, staged.last_entry) != (named.first_entry, named.last_entry):
        there = "none are there" if staged is None else f"{staged.first_entry} to {staged.last_entry} are there"
        return Refusal(
            f"its commit log says that staged entries {named.first_entry} to {named.last_entry} have committed, {there}"
        )
    return staged.end


def scan(view: SegmentView, segment: SegmentDescriptor, *, start_txid: int) -> Found:
    """Read the whole segment, both checksums of every entry. `start_txid` is the last one before it."""
    size = view.size()
    fold = EntryFold(segment, Tail(end=0, entries=0, last_txid=start_txid, sequence=segment.start_sequence))
    for place in walk(view, 0, size):
        damage = place.damage if isinstance(place, DamagePlace) else _add(fold, view, place, segment)
        if damage is not None:
            later = _later_group(view, segment, _behind(fold, view, place.offset), size, fold.at)
            return fold.found(DamagePlace(place.offset, damage), later)
        if fold.contradiction is not None:
            break
    return fold.found(None, None)


def _add(fold: EntryFold, view: SegmentView, place: EntryPlace, segment: SegmentDescriptor) -> Damage | None:
    stored = view.read(place.offset + HEADER_BYTES, place.header.body_bytes)
    body = read_body(place.header, stored, decoded_bytes_max=segment.decoded_bytes_max)
    return body if isinstance(body, Damage) else fold.add(place.header, lambda: read_control(body))


class EntryFold:
    """What entries, added one after the other, come to. Before the first, `group_index` stood right before `start`."""

    def __init__(self, segment: SegmentDescriptor, start: Tail, *, group_index: int = -1) -> None:
        self._epoch = segment.epoch
        self._group_index = group_index
        self.visible = self.at = start
        self.staged_first: int | None = None
        self.contradiction: str | None = None

    def expects(self, header: EntryHeader) -> bool:
        """Whether that is the header of the entry that comes next."""
        expected = (self._epoch, self.at.entries, self.at.sequence)
        return (header.epoch, header.entry, header.sequence) == expected and (
            header.group_index in (0, self._group_index + 1)
        )

    def add(self, header: EntryHeader, control: Callable[[], tuple[int, int] | None]) -> Damage | None:
        """Take the next entry, or say why it cannot be the next."""
        if not self.expects(header):
            place = (header.epoch, header.entry, header.sequence)
            expected = (self._epoch, self.at.entries, self.at.sequence)
            return Damage(f"(epoch, entry, sequence id) is {place} and not {expected}")
        before, self.at = self.at, self.at.after(header)
        self._group_index = header.group_index
        if header.type == EntryType.STAGED:
            self.staged_first = before.entries if self.staged_first is None else self.staged_first
        elif header.type == EntryType.CONTROL:
            self._commit(control(), before.entries)
        elif self.staged_first is not None:
            self.contradiction = f"entry {header.entry} of type {header.type} stands among staged entries"
        else:
            self.visible = self.at
        return None

    def _commit(self, named: tuple[int, int] | None, entries: int) -> None:
        if named != (self.staged_first, entries - 1):
            self.contradiction = (
                f"control entry {entries} names entries {named}, staged are {self.staged_first} to {entries - 1}"
            )
            return
        self.staged_first = None
        self.visible = self.at

    def found(self, hole: DamagePlace | None, later_group: int | None) -> Found:
        staged = None if self.staged_first is None else StagedRun(self.staged_first, self.at)
        return Found(self.visible, staged, hole, later_group, self.contradiction)


def _next_entry(found: Found) -> int:
    return found.staged.end.entries if found.staged is not None else found.visible.entries


def _behind(fold: EntryFold, view: SegmentView, hole: int) -> int:
    """Where other entries may stand: behind the torn one, if its header says how long it is. Inside of it they are its
    payload: somebody may keep segments in a log."""
    header = read_header(view.read(hole, HEADER_BYTES))
    return hole + header.size if isinstance(header, EntryHeader) and fold.expects(header) else hole


def _later_group(view: SegmentView, segment: SegmentDescriptor, start: int, size: int, missing: Tail) -> int | None:
    """The first valid entry at or behind `start` whose group began after the entry that is missing there."""
    epoch_bytes = segment.epoch.to_bytes(8, "little")
    for at in range(start, size - HEADER_BYTES + 1, HEADER_BYTES):
        raw = view.read(at, HEADER_BYTES)
        if memoryview(raw)[56:] != epoch_bytes:
            continue
        header = read_header(raw)
        if isinstance(header, Damage) or header.sequence < missing.sequence:
            continue
        if header.entry - header.group_index <= missing.entries:
            continue
        stored = view.read(at + HEADER_BYTES, header.body_bytes)
        if not isinstance(read_body(header, stored, decoded_bytes_max=segment.decoded_bytes_max), Damage):
            return at
    return None
