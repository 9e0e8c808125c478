"""Cold storage: completed segments as files of whatever a URL names: HDFS, an object store, a directory.

<place>/<18 digits>-<epoch>.cold-<token>.log     the bytes of a segment, as they stood in its store
                                        .idx     its index, a hint
                                        .keys    the least and greatest keys in it, a hint

A place is a directory of one log, below what its configuration names. A file is written once, under a name like no
other, and nobody opens it before the registry names it. So nothing is ever renamed, which an object store cannot do.

What a system does not answer in time raises StoreUnreachable. A file that is not there is
ColdSegmentMissing, a LogNotFound that says where it should be.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.failpoints import failpoint
from scribengin.errors import (
    ColdSegmentMissing,
    ConfigInvalid,
    DataflowError,
    LogClosed,
    LogWriteFailed,
    StoreUnreachable,
    SystemUnreachable,
    is_full,
)
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.paths import absolute, durable_file_system
from scribengin.log.store.contract import IndexKind, SegmentLocation, SegmentName, SegmentView, Tail
from scribengin.log.store.layout import INDEX_SUFFIXES, segments_of

WINDOW_BYTES_MIN = 256 * 1024
WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""How much is read at once: little for who looks something up, more and more for who reads on."""


def check_cold_url(url: str) -> None:
    """Whether segments can be kept there. Raises ConfigInvalid."""
    if absolute(url) != url:
        raise ConfigInvalid(f"cold_url '{url}': write it as {absolute(url)}, which is the same for every process")
    try:
        durable_file_system(url)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"cold_url: {error}") from None


def cold_place(url: str, directory: str) -> str:
    """The place of a log of that directory, below what its configuration says."""
    return f"{url.rstrip('/')}/{directory}"


def cold_names(place: str, directory: str) -> list[SegmentName]:
    """Every segment of the log of that directory that has a file in the place, sorted; none where there is no such
    directory. Raises StoreUnreachable, LogWriteFailed."""
    with _refusals(place):
        files, path = durable_file_system(place)
        return [name._replace(place=place) for name in segments_of(directory, files.names(path))]


def write_cold(name: SegmentName, blocks: Iterable[pa.Buffer]) -> None:
    """Make the file of a segment, which must not exist: durable, once this returns. What a failure leaves of it is
    there. Raises StoreUnreachable, LogWriteFailed."""
    with _refusals(name.place), failpoint("log.cold_write"):
        _write(name, ".log", blocks)


def remove_cold(name: SegmentName) -> int:
    """Remove a segment that nobody opens any more, and return how many bytes it had. Idempotent. Raises
    StoreUnreachable, LogWriteFailed."""
    with _refusals(name.place):
        files, path = _file(name, ".log")
        size = files.size(path) or 0
        with failpoint("log.cold_remove"):
            for suffix in (*INDEX_SUFFIXES.values(), ".log"):  # the segment goes last: while it is there, it is found
                files.remove(_file(name, suffix)[1])
        return size


def load_cold_index(name: SegmentName, kind: IndexKind) -> bytes:
    """As `SegmentStore.load_index`."""
    try:
        with _refusals(name.place):
            files, path = _file(name, INDEX_SUFFIXES[kind])
            return files.read(path, 0, files.size(path) or 0)
    except (FileNotFoundError, LogWriteFailed):
        return b""


def save_cold_index(name: SegmentName, index: bytes, kind: IndexKind) -> bool:
    """As `SegmentStore.save_index`. Whoever reads it while it is replaced finds none."""
    try:
        with _refusals(name.place), failpoint("log.cold_index"):
            files, path = _file(name, INDEX_SUFFIXES[kind])
            files.remove(path)
            _write(name, INDEX_SUFFIXES[kind], [pa.py_buffer(index)])
    except (FileNotFoundError, FileExistsError, LogWriteFailed):
        return False
    return True


@dataclass(frozen=True, slots=True)
class ColdLocation(SegmentLocation):
    """The URL of a segment in cold storage, which any process reads that reaches its system."""

    name: SegmentName

    def open(self) -> SegmentView:
        return ColdView(self.name)

    def __str__(self) -> str:
        return f"{self.name}.log"


class ColdView(SegmentView):
    """One segment in cold storage, open for reading. Raises ColdSegmentMissing, StoreUnreachable."""

    def __init__(self, name: SegmentName) -> None:
        self._name = name
        self._open = True
        self._window = pa.py_buffer(b"")
        self._window_start = 0
        self._ahead_bytes = WINDOW_BYTES_MIN
        with _refusals(name.place):
            self._files, self._path = _file(name, ".log")
            size = self._files.size(self._path)
        if size is None:
            raise self._gone()
        self._size = size

    def tail(self) -> Tail | None:
        return None

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        return None

    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> pa.Buffer:
        if not self._open:
            raise LogClosed(f"segment {self._name} is closed; open a new reader")
        at = offset - self._window_start
        if not 0 <= at <= at + length <= self._window.size:
            goes_on = self._window.size > 0 and 0 <= at <= self._window.size
            self._ahead_bytes = min(2 * self._ahead_bytes, WINDOW_BYTES_MAX) if goes_on else WINDOW_BYTES_MIN
            self._window = self._fetched(offset, min(offset + max(length, self._ahead_bytes), self._size))
            self._window_start, at = offset, 0
        return self._window.slice(at, min(length, self._window.size - at))

    def close(self) -> None:
        self._open = False
        self._window = pa.py_buffer(b"")

    def _fetched(self, start: int, end: int) -> pa.Buffer:
        try:
            with _refusals(self._name.place):
                return pa.py_buffer(self._files.read(self._path, start, end) if start < end else b"")
        except FileNotFoundError:
            raise self._gone() from None

    def _gone(self) -> ColdSegmentMissing:
        return ColdSegmentMissing(
            f"the cold segment {ColdLocation(self._name)} is missing: if its log was not truncated or deleted, bring "
            "the file back from a copy",
            segment=self._name.segment,
        )


def _write(name: SegmentName, suffix: str, blocks: Iterable[pa.Buffer]) -> None:
    files, path = _file(name, suffix)
    directory = posixpath.dirname(path)
    files.make_directories(directory)
    file = files.create(path)
    try:
        for block in blocks:
            file.append(memoryview(block))
        file.sync()
    finally:
        file.close()
    files.sync_directory(directory)


def _file(name: SegmentName, suffix: str) -> tuple[DurableFileSystem, str]:
    files, path = durable_file_system(name.place)
    return files, posixpath.join(path, f"{name.file}{suffix}")


@contextmanager
def _refusals(place: str) -> Iterator[None]:
    """What the system of a place raises, as what a store raises: a missing file and a taken name stay."""
    try:
        yield
    except SystemUnreachable as error:
        if is_full(error):
            raise LogWriteFailed(f"the cold storage {place} has no room: {error}") from error
        raise StoreUnreachable(f"the cold storage {place} does not answer: {error}") from error
    except (DataflowError, ConfigInvalid) as error:
        raise LogWriteFailed(f"the cold storage {place} refuses: {error}") from error
