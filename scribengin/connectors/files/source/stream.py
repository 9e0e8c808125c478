"""Reading one stream of files: which of them are next, how far a round may go, and where that leaves the position."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol

from scribengin.base.clock import Clock
from scribengin.base.model import Position
from scribengin.connectors.contract import PlannedAgain, PlannedRange, ReadSplit, RoundLimits, SourceStreamReader
from scribengin.connectors.files.formats.reading import MARK_BYTES, FileReading, FileToRead, Scanned, mark_of
from scribengin.connectors.files.matching import Question, match
from scribengin.connectors.files.source.again import ReadFile, kept, read_before
from scribengin.connectors.files.source.finished import FinishedFiles, fold
from scribengin.connectors.files.source.listing import Listed, Listing, Stillness
from scribengin.connectors.files.source.position import INLINE_BYTES_MAX, FilePosition, SeenFile, Unread
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo, FileSystem, is_lasting

LAG_BYTES_MAX = 64 * 1024 * 1024
"""Unread bytes beyond this are not counted record by record but estimated from those that were."""
GONE_S = 60.0
"""A finished file is forgotten that no listing has shown for so long. What is forgotten is read once more if it comes
back: a listing has missed it, being made while it was renamed; its directory was not mounted for a while; a power
failure took its name back until its writer had recovered."""
_POLL_MIN_S = 0.01
_POLL_MAX_S = 0.5
_MANY = 2**62
_ONE = RoundLimits(records_max=1, bytes_max=1)
_LOOKS_MAX = 3
_SAME_KEPT = 10_000
_TICK_MS = 100
"""Longer than a tick of a file system's clock."""
_NOTHING = Scanned(end=0, records=0, size_bytes=0, splits=(), complete=True)
"""What there is in a whole file without records."""


class Readings(Protocol):
    """How files are read, by their names."""

    def of(self, name: str) -> FileReading: ...


@dataclass(frozen=True, slots=True)
class _Standing:
    """A position held against a listing: what it leaves to read. Good for as long as both are the same.

    `gone`: finished files that no listing has shown for GONE_S.
    """

    listed: Listed
    given: Position
    position: FilePosition
    sizes: Mapping[str, int]
    gone: frozenset[str]
    unread: list[Unread]


@dataclass(slots=True)
class _Picked:
    """What a round takes of the files: how far each is read, which whole ones to their ends, and the splits."""

    read: dict[str, SeenFile] = field(default_factory=dict)
    done: dict[str, SeenFile] = field(default_factory=dict)
    splits: list[ReadSplit] = field(default_factory=list)
    pieces: list[ReadFile] = field(default_factory=list)
    """Where that is found again."""
    records: int = 0
    size_bytes: int = 0


class FileStreamReader(SourceStreamReader):
    """Reads the files of one stream. Holds no file open between calls but a compressed one that it is in the middle of.

    `plan` must be given committed positions: what nodes hold of files that were finished later is deleted then.
    """

    def __init__(
        self,
        listing: Listing,
        stream: int,
        readings: Readings,
        finished: FinishedFiles | None,
        clock: Clock,
        *,
        what: str,
        streams: int,
        settle_s: float,
        follow: bool,
    ) -> None:
        self._listing = listing
        self._stream = stream
        self._readings = readings
        self._finished = finished
        self._clock = clock
        self._what = what
        self._streams = streams
        self._stillness = Stillness(clock, settle_s)
        self._follow = follow
        self._standing: _Standing | None = None
        self._missing: Mapping[str, float] = {}
        """Finished files that the last listings have not shown, and the time of the first of those."""
        self._folded: tuple[tuple[str, ...], dict[str, SeenFile]] = ((), {})
        self._swept = -1
        self._empty: set[FileInfo] = set()
        self._counts: dict[FileInfo, Scanned] = {}
        self._is_same = lru_cache(maxsize=_SAME_KEPT)(self._look_whether_same)
        self._ours: tuple[Position | None, Position | None] = (None, None)
        """Where the last round of this reader began and ended."""
        self._foreign_s = 0.0
        """When it was last given a position that it had not made itself: what an older listing does not show may have
        been found, and finished, by the one who did."""
        self._closed = threading.Event()

    def initial_position(self) -> Position:
        return FilePosition(self._streams).to_position(what=self._what)

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        self._sweep(self._parse(position))
        if position not in self._ours:
            self._ours = (position, None)
            self._foreign_s = self._clock.monotonic_s()
            self._standing = None
            self._missing = {}
        standing, picked = self._next(position, limits)
        if not picked.records:
            return None
        end = standing.position.moved(picked.read, standing.sizes, gone=standing.gone, done=picked.done)
        if self._finished is not None and end.inline_bytes > INLINE_BYTES_MAX:
            end = fold(end, self._finished)
        given = end.to_position(what=self._what)
        self._go_on(standing, end, given)
        self._ours = (position, given)
        return PlannedRange(position, given, picked.records, tuple(picked.splits), kept(picked.pieces))

    def plan_again(self, before: PlannedAgain) -> PlannedRange | None:
        """As of any source. Of the files nothing but what `before.again` names is looked at."""
        if before.again is None:
            return super().plan_again(before)
        splits: list[ReadSplit] = []
        records = 0
        for piece in read_before(before.again, what=self._what):
            scanned = self._scan_again(piece)
            splits += scanned.splits
            records += scanned.records
        return PlannedRange(before.start, before.end, records, tuple(splits), before.again)

    def _scan_again(self, piece: ReadFile) -> Scanned:
        file = piece.to_read()
        reading = self._readings.of(piece.url)
        limits = RoundLimits(_MANY if reading.grows else piece.end - piece.first, _MANY)
        try:
            scanned = reading.scan(file, piece.first, limits, alone=True)
        except FileNotFoundError:
            raise DataflowError(f"{file.url} was deleted while it was read; put it back to go on") from None
        if scanned.end != piece.end:
            raise DataflowError(
                f"{file.url} was read from {piece.first} to {piece.end}, and what is there now ends at {scanned.end}: "
                "it was changed; put it back as it was"
            )
        return scanned

    def wait(self, position: Position, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + timeout_s
        pause_s = _POLL_MIN_S
        while not self._next(position, _ONE)[1].records:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or self._closed.wait(min(pause_s, left_s)):
                return False
            pause_s = min(2 * pause_s, _POLL_MAX_S)
        return True

    def lag(self, position: Position) -> int:
        """Exact up to LAG_BYTES_MAX unread bytes; beyond that estimated from the records that were counted."""
        counted = records = of_files = uncounted = 0
        standing = self._stand_now(position)
        for unread in standing.unread:
            if counted >= LAG_BYTES_MAX:
                uncounted += unread.info.size_bytes
                continue
            scanned = self._counted(unread, standing.listed, LAG_BYTES_MAX - counted)
            if scanned is not None:
                records += scanned.records
                counted += scanned.size_bytes
                of_files += scanned.file_bytes
                uncounted += scanned.left_bytes
        return records + (max(1, uncounted * records // max(of_files, 1)) if uncounted else 0)

    def _counted(self, unread: Unread, listed: Listed, bytes_max: int) -> Scanned | None:
        """What a file holds that was not read, up to a limit: looked at once, if it is a whole one."""
        if not unread.offset and unread.info in self._counts:
            return self._counts[unread.info]
        try:
            found = self._scan(unread, listed, RoundLimits(_MANY, bytes_max), alone=False)
        except FileNotFoundError:
            return None  # deleted since it was found
        if found is None:
            return None
        scanned = found[1]
        if scanned.complete and not (unread.offset or self._grows(unread.info.name)):
            self._counts[unread.info] = replace(scanned, splits=())
        return scanned

    def ended(self, position: Position) -> bool:
        if self._follow:
            return False
        standing, picked = self._next(position, _ONE)
        return not picked.records and not any(self._is_written(file, standing.listed) for file in standing.unread)

    def close(self) -> None:
        self._closed.set()

    # -- where a position stands

    def _parse(self, position: Position) -> FilePosition:
        return FilePosition.parse(position, streams=self._streams, what=self._what)

    def _stand(self, position: Position, listed: Listed) -> _Standing:
        last = self._standing
        if last is None or last.listed is not listed or last.given != position:
            parsed = self._parse(position)
            folded = self._load(parsed)
            found = match(parsed, folded, listed.of_stream(self._stream, self._streams), self._question(listed))
            sizes = {info.name: info.size_bytes for info in found.infos}
            unread = found.position.unread(found.infos, folded)
            left = {file.info for file in unread}
            self._counts = {info: scanned for info, scanned in self._counts.items() if info in left}
            self._empty &= left
            gone = self._gone(found.position, folded, sizes, listed.at_s)
            last = self._standing = _Standing(listed, position, found.position, sizes, gone, unread)
        return last

    def _gone(
        self, position: FilePosition, folded: Mapping[str, SeenFile], sizes: Mapping[str, int], at_s: float
    ) -> frozenset[str]:
        """Files that were finished, and that no listing has shown for long. `at_s`: when this one was made."""
        held = (*position.finished, *(name for name in folded if name not in position.dropped))
        self._missing = {name: self._missing.get(name, at_s) for name in held if name not in sizes}
        return frozenset(name for name, since_s in self._missing.items() if at_s - since_s >= GONE_S)

    def _stand_now(self, position: Position) -> _Standing:
        """Against the files that are there now. Raises DataflowError."""
        for looks_left in reversed(range(_LOOKS_MAX)):
            try:
                return self._stand(position, self._listing.now(even_if_costly=looks_left < _LOOKS_MAX - 1))
            except FileNotFoundError as error:
                if not looks_left:
                    raise self._vanishing(error) from None
        raise AssertionError("the last look returns or raises")

    def _go_on(self, standing: _Standing, end: FilePosition, given: Position) -> None:
        """Most often the next round begins where this one ends: what is unread then, of what was."""
        infos = [unread.info for unread in standing.unread]
        there = {info.name for info in infos}
        if not there.issuperset(end.open):
            return
        unread = end.unread(infos, self._load(end))
        self._standing = _Standing(standing.listed, given, end, standing.sizes, frozenset(), unread)

    def _question(self, listed: Listed) -> Question:
        return Question(
            is_same=partial(self._whether_same, listed),
            grows=self._grows,
            beside=lambda: self._listing.beside(listed),
            is_settled=lambda info: self._stillness.is_still(info.name, info.size_bytes, info.modified_ms),
            elsewhere=lambda: listed.infos,
            what=self._what,
        )

    def _whether_same(self, listed: Listed, info: FileInfo, seen: SeenFile) -> bool:
        """Whether what was read of a file is still before the place where reading stopped. What cannot be read just now
        is judged when it can, and nothing is read of it before. Raises FileNotFoundError."""
        url = self._listing.url(info, listed)
        files, path = self._listing.at(url)
        if files.readable(path, info.size_bytes) < seen.read:
            return True
        look = self._look_whether_same if self._is_just_written(info) else self._is_same
        return look(url, info, seen)

    def _is_just_written(self, info: FileInfo) -> bool:
        """Whether more may be written in the same tick of the file system's clock: its time says nothing then."""
        return is_lasting(info.identity) and self._clock.now_ms() - info.modified_ms < _TICK_MS

    def _look_whether_same(self, url: str, info: FileInfo, seen: SeenFile) -> bool:
        files, path = self._listing.at(url)
        return mark_of(files.read_same(path, info.identity, max(seen.read - MARK_BYTES, 0), seen.read)) == seen.mark

    def _grows(self, name: str) -> bool:
        return self._readings.of(name).grows

    def _load(self, position: FilePosition) -> dict[str, SeenFile]:
        if position.nodes and self._finished is None:
            raise DataflowError(f"{self._what}: its position names nodes of a registry, and it was opened without one")
        if self._finished is not None and self._folded[0] != position.nodes:
            self._folded = (position.nodes, self._finished.load(position.nodes))
        return self._folded[1] if position.nodes else {}

    def _sweep(self, position: FilePosition) -> None:
        if self._finished is not None and position.fold != self._swept:
            self._finished.sweep(position.fold, position.nodes)
            self._swept = position.fold

    # -- what a round takes

    def _next(self, position: Position, limits: RoundLimits) -> tuple[_Standing, _Picked]:
        """What a round takes, of the files that are known or, when it is nothing, of those that are there now."""
        begun_s = self._clock.monotonic_s()
        listed = self._listing.known()
        if listed.at_s < self._foreign_s:
            listed = self._listing.now(even_if_costly=True)  # what it does not show is forgotten with the round
        for looks_left in reversed(range(_LOOKS_MAX)):
            is_fresh = listed.at_s >= begun_s
            try:
                standing = self._stand(position, listed)
                picked = self._pick(standing, limits)
            except (FileNotFoundError, DataflowError) as error:
                # Of files as they were a moment ago, that says little: look again. An open file that was deleted is
                # missed then, any other was never there.
                if isinstance(error, DataflowError) and is_fresh:
                    raise
                if not looks_left:
                    raise self._vanishing(error) from None
                listed = self._listing.now(even_if_costly=True)
                continue
            if picked.records or is_fresh:
                break
            begun_s, listed = 0.0, self._listing.now()  # the last look, whatever it finds
        return standing, picked

    def _vanishing(self, error: FileNotFoundError | DataflowError) -> DataflowError:
        if isinstance(error, DataflowError):
            return error
        return DataflowError(f"{error.filename or self._what} was deleted while it was read; put it back to go on")

    def _pick(self, standing: _Standing, limits: RoundLimits) -> _Picked:
        picked = _Picked()
        for unread in standing.unread:
            left = RoundLimits(limits.records_max - picked.records, limits.bytes_max - picked.size_bytes)
            if left.records_max < 1 or left.bytes_max < 1 or len(picked.pieces) == limits.files_max:
                break
            self._pick_file(picked, unread, standing.listed, left)
        return picked

    def _pick_file(self, picked: _Picked, unread: Unread, listed: Listed, limits: RoundLimits) -> None:
        info = unread.info
        found = self._scan(unread, listed, limits, alone=not picked.records)
        if found is None:
            return
        file, scanned = found
        grows = self._grows(info.name)
        size = scanned.end if grows else info.size_bytes
        is_done = scanned.complete and not grows
        if scanned.records or is_done:
            modified_ms = 0 if self._is_just_written(info) else info.modified_ms  # 0: to be looked at again
            mark = file.mark(size)
            half_read = None if grows or is_done else scanned.end
            known = SeenFile(size, modified_ms, mark, info.identity, half_read)
            (picked.done if is_done else picked.read)[info.name] = known
            if scanned.records:
                picked.pieces.append(ReadFile(file.url, info.identity, mark, size, unread.offset, scanned.end))
        picked.splits += scanned.splits
        picked.records += scanned.records
        picked.size_bytes += scanned.size_bytes

    def _scan(
        self, unread: Unread, listed: Listed, limits: RoundLimits, *, alone: bool
    ) -> tuple[FileToRead, Scanned] | None:
        """What may be read of a file now, None when it has to wait. Raises FileNotFoundError."""
        info, reading = unread.info, self._readings.of(unread.info.name)
        file = self._file(unread, listed)
        if file is None:
            return None
        if info in self._empty:
            return file, _NOTHING
        scanned = reading.scan(file, unread.offset, limits, alone=alone)
        if scanned.complete and not (reading.grows or unread.offset or scanned.records):
            self._empty.add(info)
        return file, scanned

    def _file(self, unread: Unread, listed: Listed) -> FileToRead | None:
        """The file, unless it has to wait: half written, or not shown yet."""
        info, reading = unread.info, self._readings.of(unread.info.name)
        url = self._listing.url(info, listed)
        files, path = self._listing.at(url)
        size = files.readable(path, info.size_bytes)
        if size <= unread.offset if reading.grows else size < info.size_bytes:
            return None
        read = partial(files.read_same, path, info.identity)
        file = FileToRead(url, size, self._is_settled(info, files, path), read, info)
        return file if reading.is_ready(file) else None

    def _is_written(self, unread: Unread, listed: Listed) -> bool:
        """Whether more is to come of a file, as its system says."""
        files, path = self._listing.at(self._listing.url(unread.info, listed))
        return not files.is_complete(path, unread.info)

    def _is_settled(self, info: FileInfo, files: FileSystem, path: str) -> bool:
        """Whether what stands at its end is its end."""
        is_still = not self._follow or self._stillness.is_still(info.name, info.size_bytes, info.modified_ms)
        return is_still and files.is_complete(path, info)
