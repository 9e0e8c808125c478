"""The segments of logs on a `MemoryDisk`: the store `memory`, for tests and simulations.

It passes the conformance suite that the store of files passes (`conformance.segments`), the same failpoints on the way,
and random histories on both are compared (`tests/property/test_memory_segments.py`). A namespace is bound to it by
the disk's name:

    disk = MemoryDisk("a machine")
    LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from posixpath import dirname

import pyarrow as pa

from scribengin.base.failpoints import failpoint
from scribengin.errors import Fenced, LogClosed, LogNotFound, LogWriteFailed, StoreNotMounted
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    PlacedEntry,
    SegmentAppender,
    SegmentLocation,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.log.store.index import INTERVAL_BYTES, IndexRow
from scribengin.log.store.layout import (
    INDEX_SUFFIXES,
    SLOT_BYTES,
    SUFFIXES,
    TAIL_BYTES,
    read_tail,
    segments_of,
    slot_of,
)
from scribengin.log.store.opening import StoreKind, add_store_kind
from scribengin.testing.memory.disk import ROOT, MemoryDisk, MemoryFile, disk_named

MEMORY_STORE = "memory"
"""What a namespace's node says of such a store. Its location is the disk's name."""
_MADE = ".made"
_ATTEMPTS_MAX = 3
_WINDOW_BYTES = 64 * 1024
_ALIGNED_BYTES = 64


class MemoryKind(StoreKind):
    """Disks by their names."""

    def resolved(self, location: str) -> str:
        return location

    def check_location(self, location: str) -> None:
        disk_named(location)

    def prepare(self, location: str) -> str:
        with failpoint("log.mark"):
            return _token(disk_named(location))

    def retire(self, location: str, token: str) -> None:
        disk = disk_named(location)
        if _token(disk) == token:
            with failpoint("log.unmark"):
                disk.retired += 1

    def open(self, location: str, token: str | None) -> SegmentStore:
        return MemorySegmentStore(disk_named(location), token)


@dataclass(frozen=True, slots=True)
class MemoryLocation(SegmentLocation):
    """The disk's name, and the segment's."""

    disk: str
    segment: SegmentName

    def open(self) -> SegmentView:
        return MemorySegmentStore(disk_named(self.disk)).open(self.segment)

    def __str__(self) -> str:
        return f"{self.disk}:{self.segment}.log"


class MemorySegmentStore(SegmentStore):
    """What one process sees of the disk. With a `token`, only while it is mounted."""

    def __init__(self, disk: MemoryDisk, token: str | None = None) -> None:
        self._disk = disk
        self._token = token
        self._process = disk.next_process()

    def check_mounted(self) -> None:
        if self._token is not None and not (self._disk.mounted and self._token == _token(self._disk)):
            raise StoreNotMounted(f"{self._disk.name} is not this namespace's disk; mount the one that belongs there")

    def why_unwritable(self) -> str | None:
        return None

    def create_log(self, directory: str) -> None:
        self.check_mounted()
        try:
            self._make_directory(directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot make the log directory {directory}: {error.strerror}") from error

    def delete_log(self, directory: str) -> None:
        self.check_mounted()
        for attempt in range(_ATTEMPTS_MAX):
            try:
                with failpoint("log.log_directory_remove"):
                    self._disk.remove_tree(directory)
            except FileNotFoundError:
                if not self._disk.exists(directory):
                    return
            except OSError as error:
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise LogWriteFailed(f"cannot remove {directory}: {error.strerror}; remove it by hand") from error

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        self.check_mounted()
        path = _file(name)
        try:
            if not name.copy:
                self._announce(name)
            with failpoint("log.segment_create"):
                file = self._disk.create(path)
                try:
                    self._sync_directory(name.directory)
                except OSError:
                    self._disk.unlink(path)
                    raise
        except FileNotFoundError:
            self.check_mounted()
            raise Fenced(f"the log directory {name.directory} is gone: the log was deleted; create it again") from None
        except OSError as error:
            raise LogWriteFailed(f"cannot create segment {path}: {error.strerror}") from error
        return MemoryAppender(self._disk, name, file, fsync=fsync, check_mounted=self.check_mounted)

    def fence(self, name: SegmentName) -> None:
        try:
            with failpoint("log.fence"):
                self._disk.open_or_create(_file(name, ".fence"))
            self._sync_directory(name.directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot fence segment {_file(name)}: {error.strerror}") from error

    def make_durable(self, name: SegmentName) -> None:
        try:
            file = self._disk.open(_file(name))
            with failpoint("log.settle"):
                file.sync()
        except OSError as error:
            raise LogWriteFailed(f"cannot make segment {_file(name)} durable: {error.strerror}") from error

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        try:
            return MemoryView(self._disk, name, from_disk=from_disk)
        except FileNotFoundError:
            self.check_mounted()
            raise LogNotFound(
                f"segment {self.location(name)} is gone: its log was deleted or truncated; list the logs there are"
            ) from None

    def location(self, name: SegmentName) -> MemoryLocation:
        return MemoryLocation(self._disk.name, name)

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        try:
            file = self._disk.open(_file(name, INDEX_SUFFIXES[kind]))
            return file.read(0, file.size())
        except OSError:
            return b""

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        path = _file(name, INDEX_SUFFIXES[kind])
        draft = f"{path}-{self._process}"
        try:
            with failpoint("log.index_save"):
                with suppress(FileNotFoundError):
                    self._disk.unlink(draft)
                self._disk.create(draft).write(index)
                self._disk.rename(draft, path)
        except OSError:
            return False
        return True

    def names(self, directory: str) -> list[SegmentName]:
        self.check_mounted()
        try:
            return segments_of(directory, self._disk.list(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def announce(self, name: SegmentName) -> None:
        self.check_mounted()
        try:
            self._announce(name)
        except OSError as error:
            raise LogWriteFailed(f"cannot announce a segment in {name.directory}: {error.strerror}") from error

    def announced(self, directory: str) -> Announced:
        self.check_mounted()
        try:
            epoch, segment = max(self._announcements(directory), default=(0, 0))
        except FileNotFoundError:
            return Announced(0, None)
        except OSError as error:
            raise LogWriteFailed(f"cannot look at {directory}: {error.strerror}") from error
        return Announced(epoch, segment if epoch else None)

    def remove(self, name: SegmentName) -> int:
        self.check_mounted()
        try:
            size = self._disk.open(_file(name)).size() if self._disk.exists(_file(name)) else 0
            with failpoint("log.segment_remove"):
                for suffix in SUFFIXES:
                    with suppress(FileNotFoundError):
                        self._disk.unlink(_file(name, suffix))
        except OSError as error:
            raise LogWriteFailed(f"cannot remove segment {_file(name)}: {error.strerror}; remove it by hand") from error
        return size

    def move(self, name: SegmentName, to: SegmentName) -> None:
        try:
            self._make_directory(to.directory)
            with failpoint("log.segment_move"):
                for suffix in SUFFIXES:
                    with suppress(FileNotFoundError):
                        self._disk.rename(_file(name, suffix), _file(to, suffix))
            self._sync_directory(to.directory)
            self._sync_directory(name.directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot move segment {_file(name)} to {_file(to)}: {error.strerror}") from error

    def _announce(self, name: SegmentName) -> None:
        place = f"{name.directory}/{_MADE}"
        with failpoint("log.announce"):
            with suppress(FileExistsError):
                self._disk.make_directory(place)
            self._disk.open_or_create(f"{place}/{name.epoch}-{name.segment:018d}")
        self._sync_directory(place)
        with failpoint("log.announced_remove"):
            for epoch, segment in self._announcements(name.directory):
                if (epoch, segment) < (name.epoch, name.segment):
                    with suppress(FileNotFoundError):
                        self._disk.unlink(f"{place}/{epoch}-{segment:018d}")

    def _announcements(self, directory: str) -> list[tuple[int, int]]:
        parted = (name.partition("-") for name in self._disk.list(f"{directory}/{_MADE}"))
        return [(int(epoch), int(segment)) for epoch, _, segment in parted]

    def _make_directory(self, path: str) -> None:
        """As `filesystems.directories.make_directory`."""
        above = dirname(path) or ROOT
        if not self._disk.is_directory(path):
            self._make_directory(above)
            with failpoint("log.log_directory"), suppress(FileExistsError):
                self._disk.make_directory(path)
        self._sync_directory(above)

    def _sync_directory(self, path: str) -> None:
        with failpoint("log.directory_sync"):
            self._disk.sync_directory(path)


class MemoryAppender(SegmentAppender):
    """Writes one segment, which it has just created."""

    def __init__(
        self, disk: MemoryDisk, name: SegmentName, file: MemoryFile, *, fsync: bool, check_mounted: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._name = name
        self._file = file
        self._fsync = fsync
        self._check_mounted = check_mounted
        self._tail: MemoryFile | None = None
        self._index: MemoryFile | None = None
        self._tails = 0
        self._indexed_end = 0
        self._index_rows: list[IndexRow] = []

    def write(self, entries: Sequence[PlacedEntry]) -> None:
        group = bytearray()
        for entry in entries:
            group += entry.header.to_bytes()
            for buffer in entry.encoded.buffers:
                group += memoryview(buffer)
            if entry.offset - self._indexed_end >= INTERVAL_BYTES:
                self._index_rows.append(IndexRow.of(entry.header, entry.offset))
                self._indexed_end = entry.offset
        try:
            with failpoint("log.segment_write"):
                self._file.write(bytes(group))
        except OSError as error:
            raise self._failed("write to", error) from error

    def sync(self) -> None:
        try:
            with failpoint("log.segment_sync"):
                if self._fsync:
                    self._file.sync()
        except OSError as error:
            raise self._failed("sync", error) from error
        fenced = self._disk.exists(_file(self._name, ".fence"))
        if fenced or not self._disk.exists(_file(self._name)):
            if not fenced:
                self._check_mounted()
            raise Fenced(
                f"segment {_file(self._name)} was fenced: another writer owns the log now; open a new writer to go on"
            )

    def make_durable(self) -> None:
        try:
            with failpoint("log.segment_settle"):
                self._file.sync()
        except OSError as error:
            raise self._failed("sync", error) from error

    def publish(self, tail: Tail) -> None:
        try:
            with failpoint("log.tail_write"):
                if self._tail is None:
                    self._tail = self._disk.open_or_create(_file(self._name, ".tail"))
                self._tail.write(slot_of(tail), self._tails % 2 * SLOT_BYTES)
            self._tails += 1
            self._write_index_rows()
        except OSError as error:
            raise self._failed("write the tail of", error) from error

    def close(self) -> None:
        """Nothing is held."""

    def _write_index_rows(self) -> None:
        if not self._index_rows:
            return
        with failpoint("log.index_write"):
            if self._index is None:
                self._index = self._disk.open_or_create(_file(self._name, INDEX_SUFFIXES["positions"]))
            self._index.write(b"".join(row.to_bytes() for row in self._index_rows))
        self._index_rows.clear()

    def _failed(self, what: str, error: OSError) -> LogWriteFailed:
        return LogWriteFailed(
            f"cannot {what} segment {_file(self._name)}: {error.strerror}; what was not acknowledged may not be in the "
            "log: make room or replace the disk, then open a new writer"
        )


class MemoryView(SegmentView):
    """One segment, open for reading. Raises FileNotFoundError when there is none."""

    def __init__(self, disk: MemoryDisk, name: SegmentName, *, from_disk: bool) -> None:
        self._disk = disk
        self._name = name
        self._from_disk = from_disk
        self._file: MemoryFile | None = disk.open(_file(name))
        self._tail: MemoryFile | None = None
        self._window: pa.Buffer | None = None
        self._window_start = 0

    def tail(self) -> Tail | None:
        if self._tail is None:
            try:
                self._tail = self._disk.open(_file(self._name, ".tail"))
            except FileNotFoundError:
                return None
        return read_tail(self._tail.read(0, TAIL_BYTES))

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        try:
            return self._disk.open(_file(self._name, ".tail")).watch(moved)
        except OSError:
            return None

    def size(self) -> int:
        return self._opened().size()

    def read(self, offset: int, length: int) -> pa.Buffer:
        window, start = self._window, self._window_start
        if window is None or not start <= offset <= offset + length <= start + window.size:
            start = self._window_start = offset // _ALIGNED_BYTES * _ALIGNED_BYTES
            window = self._window = pa.py_buffer(self._part(start, max(offset + length, start + _WINDOW_BYTES)))
        at = min(offset - start, window.size)
        return window.slice(at, min(length, window.size - at))

    def close(self) -> None:
        self._file = self._tail = self._window = None

    def _part(self, start: int, end: int) -> bytes:
        file = self._opened()
        return file.read_past_cache(start, end) if self._from_disk else file.read(start, end)

    def _opened(self) -> MemoryFile:
        if self._file is None:
            raise LogClosed(f"segment {self._name} is closed; open a new reader")
        return self._file


def _file(name: SegmentName, suffix: str = ".log") -> str:
    return f"{name}{suffix}"


def _token(disk: MemoryDisk) -> str:
    return f"{zlib.crc32(disk.name.encode()) + disk.retired:032x}"


add_store_kind(MEMORY_STORE, MemoryKind())
