"""Looking for files: as often as it is cheap, and seldom where there are very many."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass, field

from scribengin.clock import Clock
from scribengin.connectors.files.paths import Pattern, file_system
from scribengin.connectors.files.system import FileInfo, FileSystem
from scribengin.errors import DataflowError, SourceMissing

MANY = 10_000
"""A listing of fewer files is made whenever somebody wants to know."""
REUSED_S = 1.0
"""A listing of many, and any while there is something to read in it, is good for this long ..."""
SHARE = 10
"""... or, of many, for so many times what it took, if that is longer."""


@dataclass(slots=True)
class Listed:
    """The files that a path meant at one moment. `took_s`: how long it took to find them."""

    infos: list[FileInfo]
    is_one_file: bool
    at_s: float
    took_s: float
    _streams: dict[tuple[int, int], list[FileInfo]] = field(default_factory=dict)

    def of_stream(self, stream: int, streams: int) -> list[FileInfo]:
        """Those of one stream of so many, by name."""
        if (stream, streams) not in self._streams:
            self._streams[stream, streams] = [i for i in self.infos if zlib.crc32(i.name.encode()) % streams == stream]
        return self._streams[stream, streams]


class Listing:
    """What a path means, shared by the readers of a source. Thread-safe."""

    def __init__(self, path: str, clock: Clock) -> None:
        """Raises ConfigInvalid when no file system opens the path."""
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

    def url(self, info: FileInfo, listed: Listed) -> str:
        """Where any process finds the file."""
        return self._pattern.base if listed.is_one_file else f"{self._pattern.base.rstrip('/')}/{info.name}"

    def at(self, url: str) -> tuple[FileSystem, str]:
        """The file system of one of the files, and its path there."""
        return file_system(url)

    def _good_s(self, listed: Listed) -> float:
        return max(REUSED_S, SHARE * listed.took_s) if len(listed.infos) > MANY else REUSED_S

    def _age_s(self, listed: Listed) -> float:
        return self._clock.monotonic_s() - listed.at_s

    def _look(self) -> Listed:
        begun_s = self._clock.monotonic_s()
        infos = self._find()
        is_one_file = self._pattern.names is None and not self._files.is_directory(self._base)
        ended_s = self._clock.monotonic_s()
        self._last = Listed(infos, is_one_file, begun_s, ended_s - begun_s)
        return self._last

    def _find(self) -> list[FileInfo]:
        try:
            found = self._pattern.matching(self._files.find(self._base, self._pattern.depth_max))
            for info in found:
                info.name.encode()
        except FileNotFoundError:
            raise SourceMissing(
                f"there is no file or directory {self._pattern.base}: create it, or correct the source's path"
            ) from None
        except UnicodeEncodeError as error:
            raise DataflowError(
                f"{self._pattern.base}: the name {error.object!a} is not UTF-8, and no position holds it; rename it"
            ) from None
        return found
