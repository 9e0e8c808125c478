"""Cold storage: completed segments as files of whatever a URL names: HDFS, an object store, a directory.

<place>/<18 digits>-<epoch>.cold-<token>.log     the bytes of a segment, as they stood in its store
                                        .idx     its index, a hint
                                        .keys    the least and greatest keys in it, a hint
<place>/.cold-<token>                            its mark, which the log's head names (metadata/cold_places.py)

A place is a directory of one log, below what its configuration names. A file is written once, under a name like no
other, and nobody opens it before the registry names it. So nothing is ever renamed, which an object store cannot do.

A directory whose disk is not mounted, and a bucket of the wrong account, look like a place that is empty. So no place
is believed to be empty, and nothing is made in it, unless its mark is there. The mark is a name: one listing shows it
beside the segments, so that what it vouches for was seen at the same moment. Its directory's name is one log's for
ever. So any mark in it, or any segment, tells that the place is there, and the token tells that it is the same one.

What a system does not answer in time raises StoreUnreachable, and so does a place that is not there. A file that is
not there, in a place that is, is ColdSegmentMissing, a LogNotFound that says where it should be.
"""

from __future__ import annotations

import os.path
import posixpath
import shlex
import threading
import uuid
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
    LogError,
    LogWriteFailed,
    StoreUnreachable,
    SystemUnreachable,
    is_full,
)
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.paths import absolute, durable_file_system
from scribengin.log.store.contract import IndexKind, SegmentLocation, SegmentName, SegmentView, Tail
from scribengin.log.store.layout import INDEX_SUFFIXES, segments_of

MARK = ".cold-"
"""How the name of a mark begins; the token follows."""
_MARK_TEXT = b"Cold storage of a log of Scribengin. Without this file it counts as not mounted.\n"
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
    if os.path.isfile(url):
        raise ConfigInvalid(f"cold_url '{url}' is a file: name a directory")


def cold_place(url: str, directory: str) -> str:
    """The place of a log of that directory, below what its configuration says."""
    return f"{url.rstrip('/')}/{directory}"


@dataclass(frozen=True, slots=True)
class ColdListing:
    """What one look at a place has shown: the tokens of its marks (one, but for what a crash has left), and every
    segment that has a file there, sorted."""

    marks: tuple[str, ...]
    names: tuple[SegmentName, ...]

    @property
    def is_there(self) -> bool:
        """Whether it is the log's place, and not what stands for it where that is not mounted."""
        return bool(self.marks or self.names)


def look_into(place: str, directory: str) -> ColdListing:
    """What the place of the log of that directory holds; nothing where there is no such directory. Raises
    StoreUnreachable, LogWriteFailed."""
    with _refusals(place):
        files, path = durable_file_system(place)
        found = files.names(path)
    marks = tuple(name.removeprefix(MARK) for name in found if name.startswith(MARK))
    return ColdListing(marks, tuple(name._replace(place=place) for name in segments_of(directory, found)))


def cold_names(place: str, directory: str, token: str | None = None) -> list[SegmentName]:
    """Every segment of the log of that directory that has a file in the place, sorted. With the `token` of its mark,
    none is believed without it. Raises StoreUnreachable (the mark is not there, too), LogWriteFailed."""
    found = look_into(place, directory)
    if token is not None and token not in found.marks:
        raise not_there(place, token)
    return list(found.names)


def mark_cold(place: str) -> str:
    """Make the place, and a mark in it, durably: its token. Raises StoreUnreachable, LogWriteFailed."""
    token = uuid.uuid4().hex[:12]
    with _refusals(place), failpoint("log.cold_mark"):
        files, path = durable_file_system(place)
        files.make_directories(path)
        _write(files, _mark(path, token), [_MARK_TEXT])
    return token


def settle_mark(place: str) -> None:
    """Make a mark durable that stands there: whoever made it may have died before that. Raises StoreUnreachable,
    LogWriteFailed."""
    with _refusals(place), failpoint("log.cold_mark_settle"):
        files, path = durable_file_system(place)
        files.make_directories(path)
        files.sync_directory(path)


def unmark_cold(place: str, token: str) -> None:
    """Remove a mark. Idempotent. Raises StoreUnreachable, LogWriteFailed."""
    with _refusals(place), failpoint("log.cold_unmark"):
        files, path = durable_file_system(place)
        files.remove(_mark(path, token))


def check_cold(place: str, token: str) -> None:
    """Raises StoreUnreachable, unless that mark stands there."""
    with _refusals(place):
        files, path = durable_file_system(place)
        if files.size(_mark(path, token)) is None:
            raise not_there(place, token)


def not_there(place: str, token: str | None = None) -> StoreUnreachable:
    """The error of who finds another place than that, or none. Without a `token` any mark would do."""
    mark = f"{MARK}{token or uuid.uuid4().hex[:12]}"
    step = ""
    if place.startswith("/"):  # else there is no command that everybody has
        step = f": `mkdir -p {shlex.quote(place)} && touch {shlex.quote(posixpath.join(place, mark))}`"
    return StoreUnreachable(
        f"the cold storage {place} is not there: it should hold the file {mark}; mount what belongs there (if it is "
        "the right place, or if that is gone for good with all that it alone had, which `scribengin log inspect` shows"
        f", make that file in it{step})"
    )


def write_cold(name: SegmentName, blocks: Iterable[pa.Buffer], token: str) -> None:
    """Make the file of a segment, which must not exist, in a place with that mark: durable, once this returns. What a
    failure leaves of it is there. Raises StoreUnreachable, LogWriteFailed."""
    check_cold(name.place, token)
    try:
        with _refusals(name.place), failpoint("log.cold_write"):
            _write(*_file(name, ".log"), blocks)
    except FileNotFoundError:  # of its directory: it went meanwhile
        raise not_there(name.place, token) from None


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
            _write(files, path, [pa.py_buffer(index)])
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

    def _gone(self) -> LogError:
        """What to raise where the file is not there."""
        if not look_into(self._name.place, self._name.directory).is_there:
            return not_there(self._name.place)
        return ColdSegmentMissing(
            f"the cold segment {ColdLocation(self._name)} is missing: if its log was not truncated or deleted, bring "
            "the file back from a copy",
            segment=self._name.segment,
        )


def _write(files: DurableFileSystem, path: str, blocks: Iterable[bytes | pa.Buffer]) -> None:
    """In a directory that is there: one that is made anew where a disk is not mounted would be taken for the place."""
    file = files.create(path)
    try:
        for block in blocks:
            file.append(memoryview(block))
        file.sync()
    finally:
        file.close()
    files.sync_directory(posixpath.dirname(path))


def _mark(path: str, token: str) -> str:
    return posixpath.join(path, f"{MARK}{token}")


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
