"""Looking for files: as often as it is cheap, and seldom where there are very many.

Files that have been still for `settle_s` are those that nobody is writing to any more, as far as can be told.

A file's own time of modification says so at once, also of a file that is seen for the first time; but it takes a wall
clock to read it, and those jump. The monotonic clock tells when that has happened. From then on a reader goes by what
it has seen itself: a file is still when it has looked the same for `settle_s`. That is later, and never too early.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from scribengin.base.clock import Clock
from scribengin.errors import DataflowError, SourceMissing
from scribengin.filesystems.contract import FileInfo, FileSystem
from scribengin.filesystems.paths import Pattern, any_of, file_system

MANY = 10_000
"""A listing of fewer files is made whenever somebody wants to know."""
REUSED_S = 1.0
"""A listing of many, and any while there is something to read in it, is good for this long ..."""
SHARE = 10
"""... or, of many, for so many times what it took, if that is longer."""
_ROTATED = re.compile(
    r"(.*[^/])(?:\.\d{1,3}|~|\.old|\.bak)"
    r"|(.*\.[A-Za-z]\w*)[.-]\d{4}[-_]?\d\d[-_]?\d\d(?:[-_T.]?\d\d(?:[-_:]?\d\d){0,2})?",
    re.DOTALL,
)
"""What logrotate, log4j and Python's handlers add to a name: a number, or a date behind the name's own ending."""
_MS_PER_S = 1000
_JUMP_MS = 1000
"""So far apart the two clocks may come from one look to the next."""
_SEEN_MAX = 10_000


@dataclass(slots=True)
class Listed:
    """The files that a path meant at one moment, and those `beside` them that it does not mean. `took_s`: how long it
    took to find them."""

    infos: list[FileInfo]
    beside: list[FileInfo]
    is_one_file: bool
    at_s: float
    took_s: float
    _streams: dict[tuple[int, int], list[FileInfo]] = field(default_factory=dict)

    def of_stream(self, stream: int, streams: int) -> list[FileInfo]:
        """Those of one stream of so many, by name."""
        if (stream, streams) not in self._streams:
            self._streams[stream, streams] = [i for i in self.infos if stream_of(i.name, streams) == stream]
        return self._streams[stream, streams]


def stream_of(name: str, streams: int) -> int:
    """The stream that a file of that name belongs to: the same one whatever rotation has added to its name, so that a
    file that is rotated while it is read stays with its reader."""
    if streams == 1:
        return 0
    return zlib.crc32(unrotated(name).encode()) % streams


def unrotated(name: str) -> str:
    """The name without what rotation has added to it."""
    while (rotated := _ROTATED.fullmatch(name)) is not None:
        name = rotated[1] or rotated[2]
    return name


class Listing:
    """What a path means, shared by the readers of a source. Thread-safe."""

    def __init__(self, path: str, clock: Clock, on_their_way: Iterable[str] = ()) -> None:
        """`on_their_way`: patterns of names that are not there yet. Raises ConfigInvalid when no file system opens the
        path.
        """
        self._on_their_way = any_of(on_their_way)
        self._pattern = Pattern.of(path)
        self._files, self._base = file_system(self._pattern.base)
        self._clock = clock
        self._lock = threading.Lock()
        self._last: Listed | None = None

    def check(self) -> None:
        """Raises SourceMissing."""
        if not self._files.is_directory(self._base):
            self._find()

    def known(self) -> Listed:
        """The files as of a moment ago, to go on with while there is something to read. Raises SourceMissing."""
        with self._lock:
            last = self._last
            return last if last is not None and self._age_s(last) < self._good_s(last) else self._look()

    def now(self, *, even_if_costly: bool = False) -> Listed:
        """The files as of now, or as of a moment ago where looking takes much of the time. Raises SourceMissing."""
        with self._lock:
            last = self._last
            costly = last is not None and len(last.infos) > MANY and not even_if_costly
            return last if last is not None and costly and self._age_s(last) < self._good_s(last) else self._look()

    def beside(self, listed: Listed) -> list[FileInfo]:
        """Files that are not meant, and one that was may be now: in the same directories."""
        if not listed.is_one_file:
            return listed.beside
        directory, _, name = self._base.rpartition("/")
        with suppress(FileNotFoundError):
            return [info for info in self._files.find(directory or "/", 1) if info.name != name]
        return []

    def url(self, info: FileInfo, listed: Listed) -> str:
        """Where any process finds the file."""
        if listed.is_one_file:
            return f"{self._pattern.base.rpartition('/')[0]}/{info.name}"
        return f"{self._pattern.base.rstrip('/')}/{info.name}"

    def at(self, url: str) -> tuple[FileSystem, str]:
        """The file system of one of the files, and its path there."""
        return file_system(url)

    def _good_s(self, listed: Listed) -> float:
        return max(REUSED_S, SHARE * listed.took_s) if len(listed.infos) > MANY else REUSED_S

    def _age_s(self, listed: Listed) -> float:
        return self._clock.monotonic_s() - listed.at_s

    def _look(self) -> Listed:
        begun_s = self._clock.monotonic_s()
        was_one_file = self._last is not None and self._last.is_one_file
        try:
            infos, beside = self._find()
        except SourceMissing:
            if not was_one_file:
                raise
            infos, beside = [], []  # it was renamed, and its writer makes the next one in a moment
        is_one_file = was_one_file or (self._pattern.names is None and not self._files.is_directory(self._base))
        ended_s = self._clock.monotonic_s()
        self._last = Listed(infos, beside, is_one_file, begun_s, ended_s - begun_s)
        return self._last

    def _find(self) -> tuple[list[FileInfo], list[FileInfo]]:
        """What the path means, and what else there is below its base."""
        try:
            found = self._files.find(self._base, self._pattern.depth_max)
        except FileNotFoundError:
            raise SourceMissing(
                f"there is no file or directory {self._pattern.base}: create it, or correct the source's path"
            ) from None
        meant = self._pattern.matching(found, self._on_their_way)
        for info in meant:
            try:
                info.name.encode()
            except UnicodeEncodeError:
                raise DataflowError(
                    f"{self._pattern.base}: the name {info.name!a} is not UTF-8, and no position holds it; rename it"
                ) from None
        if len(meant) == len(found):
            return meant, []
        names = {info.name for info in meant}
        return meant, [info for info in found if info.name not in names]


class Stillness:
    """Of the files of one stream. Used by one thread at a time."""

    def __init__(self, clock: Clock, settle_s: float) -> None:
        self._clock = clock
        self._settle_s = settle_s
        self._apart_ms = self._wall_ahead_ms()
        self._jumped = False
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def is_still(self, name: str, size_bytes: int, modified_ms: int) -> bool:
        """Whether the file, as it is listed now, has been still for long enough."""
        apart_ms = self._wall_ahead_ms()
        self._jumped = self._jumped or abs(apart_ms - self._apart_ms) > _JUMP_MS
        self._apart_ms = apart_ms
        if not self._jumped:
            return self._clock.now_ms() - modified_ms >= self._settle_s * _MS_PER_S
        return self._seen_for_s(name, (size_bytes, modified_ms)) >= self._settle_s

    def _seen_for_s(self, name: str, look: tuple[int, int]) -> float:
        now_s = self._clock.monotonic_s()
        known = self._seen.get(name)
        if known is None or known[0] != look:
            if len(self._seen) >= _SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[name] = known = (look, now_s)
        return now_s - known[1]

    def _wall_ahead_ms(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * _MS_PER_S
