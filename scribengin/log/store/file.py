"""The embedded segment store: a directory of files, mapped by any process of the machine.

    <directory>/<18 digits>-<epoch>.*        a segment's files (layout.py)
                .made/                       which segment was made last (announced.py)

An append is one `writev`, one `fdatasync`, then a look for `.fence`. Whoever fences creates that file first and scans
afterwards: an append that was acknowledged looked before, so it was written before, so the scan sees it.

A segment is read a part at a time, mapped, or past the cache, so that no reader ever holds a whole one. Nothing cuts a
segment file while it is read: bytes are only added, and deleting a log unlinks files, which stay readable through a
map. So a map never loses its pages.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from scribengin.base.failpoints import failpoint
from scribengin.errors import Fenced, LogClosed, LogNotFound, LogWriteFailed
from scribengin.filesystems.directories import make_directory, sync_directory
from scribengin.filesystems.local import why_unwritable
from scribengin.log.store import inotify as tail_watch
from scribengin.log.store.announced import announce, announced
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
from scribengin.log.store.mark import check_mark

_ATTEMPTS_MAX = 3
_BUFFERS_A_CALL = 1024  # IOV_MAX of Linux
_CALL_BYTES_MAX = 1024 * 1024
"""Linux takes pages for what it is given at once. From 2 MiB on it wants them in one piece, and of a virtual machine
those may be the ones that its host has taken back. 16 MiB at once cost 30 ms of a processor then, and 4 ms in parts."""
WINDOW_BYTES = 8 * 1024 * 1024
_ALIGNED_BYTES = max(mmap.ALLOCATIONGRANULARITY, 64 * 1024)
"""Where windows begin: at a page, and at a block of every disk."""


@dataclass(frozen=True, slots=True)
class FileLocation(SegmentLocation):
    """The path of a segment's file, which any process of the machine maps."""

    path: str

    def open(self) -> SegmentView:
        return FileView(self.path)

    def __str__(self) -> str:
        return self.path


class FileSegmentStore(SegmentStore):
    """Segments as files under one root directory. With a `token`, only while that stands there (mark.py)."""

    def __init__(self, root: str | Path, token: str | None = None) -> None:
        self._root = Path(root)
        self._token = token

    def check_mounted(self) -> None:
        if self._token is not None:
            check_mark(self._root, self._token)

    def why_unwritable(self) -> str | None:
        return why_unwritable(str(self._root))

    def create_log(self, directory: str) -> None:
        self.check_mounted()
        path = self._root / directory
        try:
            make_directory(path)
        except OSError as error:
            raise LogWriteFailed(f"cannot make the log directory {path}: {error.strerror}") from error

    def delete_log(self, directory: str) -> None:
        self.check_mounted()
        path = self._root / directory
        for attempt in range(_ATTEMPTS_MAX):
            try:
                with failpoint("log.log_directory_remove"):
                    shutil.rmtree(path)
            except FileNotFoundError:
                if not path.exists():
                    return
            except OSError as error:  # a writer that does not know yet may have added a file meanwhile
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise LogWriteFailed(f"cannot remove {path}: {error.strerror}; remove it by hand") from error

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        self.check_mounted()
        path = Path(self.path(name))
        try:
            if not name.copy:
                announce(path.parent, name.epoch, name.segment)
            with failpoint("log.segment_create"):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                try:
                    sync_directory(path.parent)
                except OSError:  # the caller may try again: no file may be in its way
                    os.close(file)
                    path.unlink()
                    raise
        except FileNotFoundError:
            self.check_mounted()
            raise Fenced(f"the log directory {path.parent} is gone: the log was deleted; create it again") from None
        except OSError as error:
            raise LogWriteFailed(f"cannot create segment {path}: {error.strerror}") from error
        return FileAppender(path, file, fsync=fsync, check_mounted=self.check_mounted)

    def fence(self, name: SegmentName) -> None:
        path = Path(self.path(name)).with_suffix(".fence")
        try:
            with failpoint("log.fence"):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
            sync_directory(path.parent)
        except OSError as error:
            raise LogWriteFailed(f"cannot fence segment {path}: {error.strerror}") from error

    def make_durable(self, name: SegmentName) -> None:
        path = self.path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                with failpoint("log.settle"):
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LogWriteFailed(f"cannot make segment {path} durable: {error.strerror}") from error

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        try:
            return DiskView(self.path(name)) if from_disk else FileView(self.path(name))
        except LogNotFound:
            self.check_mounted()
            raise

    def location(self, name: SegmentName) -> FileLocation:
        return FileLocation(self.path(name))

    def path(self, name: SegmentName) -> str:
        """The segment's file; what else there is of it stands beside it."""
        return f"{self._root / str(name)}.log"

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        try:
            return Path(self.path(name)).with_suffix(INDEX_SUFFIXES[kind]).read_bytes()
        except OSError:
            return b""

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        path = Path(self.path(name)).with_suffix(INDEX_SUFFIXES[kind])
        private = path.with_suffix(f"{path.suffix}-{os.getpid()}")
        try:
            with failpoint("log.index_save"):
                private.write_bytes(index)
                os.replace(private, path)
        except OSError:
            return False
        return True

    def names(self, directory: str) -> list[SegmentName]:
        self.check_mounted()
        try:
            files = os.listdir(self._root / directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return segments_of(directory, files)

    def announce(self, name: SegmentName) -> None:
        self.check_mounted()
        directory = self._root / name.directory
        try:
            announce(directory, name.epoch, name.segment)
        except OSError as error:
            raise LogWriteFailed(f"cannot announce a segment in {directory}: {error.strerror}") from error

    def announced(self, directory: str) -> Announced:
        self.check_mounted()
        try:
            return announced(self._root / directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot look at {self._root / directory}: {error.strerror}") from error

    def remove(self, name: SegmentName) -> int:
        self.check_mounted()
        path = Path(self.path(name))
        try:
            size = path.stat().st_size if path.exists() else 0
            with failpoint("log.segment_remove"):
                for suffix in SUFFIXES:  # the segment itself goes last: what a crash leaves is found by its name
                    path.with_suffix(suffix).unlink(missing_ok=True)
        except OSError as error:
            raise LogWriteFailed(f"cannot remove segment {path}: {error.strerror}; remove it by hand") from error
        return size

    def move(self, name: SegmentName, to: SegmentName) -> None:
        old, new = Path(self.path(name)), Path(self.path(to))
        try:
            make_directory(new.parent)
            with failpoint("log.segment_move"):
                for suffix in SUFFIXES:  # the segment itself goes last: what a crash leaves is found by its name
                    with suppress(FileNotFoundError):
                        os.rename(old.with_suffix(suffix), new.with_suffix(suffix))
            sync_directory(new.parent)
            sync_directory(old.parent)
        except OSError as error:
            raise LogWriteFailed(f"cannot move segment {old} to {new}: {error.strerror}") from error


class FileAppender(SegmentAppender):
    """Writes one segment file, which it has just created."""

    def __init__(self, path: Path, descriptor: int, *, fsync: bool, check_mounted: Callable[[], None]) -> None:
        self._path = str(path)
        self._check_mounted = check_mounted
        self._fsync = fsync
        self._file = descriptor
        beside = str(path).removesuffix(path.suffix)
        self._fence_path = f"{beside}.fence"
        self._tail_file = _BesideFile(f"{beside}.tail", os.O_WRONLY)
        self._index_file = _BesideFile(f"{beside}.idx", os.O_WRONLY | os.O_APPEND)
        self._tails = 0
        self._indexed_end = 0
        self._index_rows: list[IndexRow] = []

    def write(self, entries: Sequence[PlacedEntry]) -> None:
        buffers: list[memoryview] = []
        for entry in entries:
            buffers.append(memoryview(entry.header.to_bytes()))
            buffers.extend(memoryview(buffer) for buffer in entry.encoded.buffers if len(buffer))
            if entry.offset - self._indexed_end >= INTERVAL_BYTES:
                self._index_rows.append(IndexRow.of(entry.header, entry.offset))
                self._indexed_end = entry.offset
        try:
            with failpoint("log.segment_write"):
                _write_all(self._file, buffers)
        except OSError as error:
            raise self._failed("write to", error) from error

    def sync(self) -> None:
        self.synced_by(os.fdatasync)

    def file_to_sync(self) -> int | None:
        return self._file if self._fsync else None

    def synced_by(self, fdatasync: Callable[[int], object]) -> None:
        try:
            with failpoint("log.segment_sync"):
                if self._fsync:
                    fdatasync(self._file)
        except OSError as error:
            raise self._failed("sync", error) from error
        fenced = os.path.exists(self._fence_path)
        if fenced or not os.path.exists(self._path):
            if not fenced:
                self._check_mounted()
            raise Fenced(
                f"segment {self._path} was fenced: another writer owns the log now; open a new writer to go on"
            )

    def make_durable(self) -> None:
        try:
            with failpoint("log.segment_settle"):
                os.fdatasync(self._file)  # the kernel tells each descriptor of a failure since it was opened, once
        except OSError as error:
            raise self._failed("sync", error) from error

    def publish(self, tail: Tail) -> None:
        try:
            with failpoint("log.tail_write"), self._tail_file.opened() as file:
                if os.pwrite(file, slot_of(tail), self._tails % 2 * SLOT_BYTES) < SLOT_BYTES:
                    raise OSError(errno.ENOSPC, "the disk took less than was written")
            self._tails += 1
            self._write_index_rows()
        except _BesideFileGone:
            pass  # the log was deleted since it was looked: the next `sync` says so
        except OSError as error:
            raise self._failed("write the tail of", error) from error

    def close(self) -> None:
        descriptors = (self._file, self._tail_file.forget(), self._index_file.forget())
        self._file = -1
        close_all(descriptors)

    def _write_index_rows(self) -> None:
        if not self._index_rows:
            return
        with failpoint("log.index_write"), self._index_file.opened() as file:
            os.write(file, b"".join(row.to_bytes() for row in self._index_rows))
        self._index_rows.clear()

    def _failed(self, what: str, error: OSError) -> LogWriteFailed:
        return LogWriteFailed(
            f"cannot {what} segment {self._path}: {error.strerror}; what was not acknowledged may not be in the log: "
            "make room or replace the disk, then open a new writer"
        )


def _write_all(file: int, buffers: list[memoryview]) -> None:
    """Few calls for a group, none of which is given more than _CALL_BYTES_MAX."""
    while buffers:
        given: list[memoryview] = []
        left = _CALL_BYTES_MAX
        for buffer in buffers[:_BUFFERS_A_CALL]:
            given.append(buffer[:left])
            left -= len(given[-1])
            if not left:
                break
        written = os.writev(file, given)
        done = 0
        while done < len(buffers) and written >= len(buffers[done]):
            written -= len(buffers[done])
            done += 1
        del buffers[:done]
        if written:
            buffers[0] = buffers[0][written:]


_KEPT_OPEN = threading.Semaphore(1_000)
"""Of files beside segments, in this process. A segment that is written has two, and keeps its own open: of ten thousand
logs all would be more than a process may open on most machines."""


class _BesideFileGone(Exception):
    """It was made, and is not there any more."""


class _BesideFile:
    """A file beside a segment, which the segment's writer adds to: made at first, and kept open while there is room."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        self._flags = flags
        self._made = False
        self._descriptor = -1

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Its descriptor, within the block. Raises OSError, _BesideFileGone."""
        descriptor = self._descriptor
        kept = descriptor >= 0
        if not kept:
            descriptor = self._open()
            if kept := _KEPT_OPEN.acquire(blocking=False):
                self._descriptor = descriptor
        try:
            yield descriptor
        finally:
            if not kept:
                os.close(descriptor)

    def forget(self) -> int:
        """The descriptor that was kept, for whoever closes it; -1: none was."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _KEPT_OPEN.release()
        return descriptor

    def _open(self) -> int:
        if not self._made:
            made = os.open(self._path, self._flags | os.O_CREAT, 0o644)
            self._made = True
            return made
        try:
            return os.open(self._path, self._flags)
        except FileNotFoundError:
            raise _BesideFileGone from None


class FileView(SegmentView):
    """One segment file, open for reading."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = _open(path)
        self._tail_file = -1
        self._window: pa.Buffer | None = None
        self._window_start = 0

    def tail(self) -> Tail | None:
        if self._tail_file < 0:
            try:
                self._tail_file = os.open(self._path.with_suffix(".tail"), os.O_RDONLY)
            except FileNotFoundError:
                return None
        return read_tail(os.pread(self._tail_file, TAIL_BYTES, 0))

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        return tail_watch.watch(str(self._path.with_suffix(".tail")), moved)

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read(self, offset: int, length: int) -> pa.Buffer:
        window = self._window
        if window is None or not (self._window_start <= offset and offset + length <= self._window_start + window.size):
            window = self._map(offset, length)
        start = min(offset - self._window_start, window.size)
        return window.slice(start, min(length, window.size - start))

    def close(self) -> None:
        descriptors = (self._file, self._tail_file)
        self._file = self._tail_file = -1
        self._window = None
        close_all(descriptors)

    def _map(self, offset: int, length: int) -> pa.Buffer:
        size = self.size()
        start = min(offset, size) // _ALIGNED_BYTES * _ALIGNED_BYTES
        end = min(size, max(offset + length, start + WINDOW_BYTES))
        window = pa.py_buffer(b"") if end <= start else self._part(start, end)
        self._window = window
        self._window_start = start
        return window

    def _part(self, start: int, end: int) -> pa.Buffer:
        """The bytes [start, end), which are there. `start` is a multiple of _ALIGNED_BYTES."""
        return pa.py_buffer(mmap.mmap(self._descriptor(), end - start, prot=mmap.PROT_READ, offset=start))

    def _descriptor(self) -> int:
        if self._file < 0:
            raise LogClosed(f"segment {self._path} is closed; open a new reader")
        return self._file


class DiskView(FileView):
    """One segment file, read past the page cache (O_DIRECT), for whoever must know what a power failure would leave.

    After a failed fsync Linux calls the pages clean and keeps them: they are read, the next fsync succeeds, and they
    are on no disk. POSIX_FADV_DONTNEED drops them only where nobody maps them. Writing them again does not help
    either: ext4 leaves the blocks marked as unwritten, and they read as zeros after the next mount.

    A file system without O_DIRECT is read through the cache, of which is dropped what can be. There a failed fsync may
    go unnoticed by recovery while a reader maps the segment.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            self._direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._direct = -1

    def read_once(self, offset: int, length: int) -> pa.Buffer:
        end = min(self.size(), offset + length)
        start = offset // _ALIGNED_BYTES * _ALIGNED_BYTES
        if end <= offset:
            return pa.py_buffer(b"")
        part = self._part(start, end)
        at = min(offset - start, part.size)
        return part.slice(at, min(end - offset, part.size - at))

    def close(self) -> None:
        direct, self._direct = self._direct, -1
        try:
            super().close()
        finally:
            close_all([direct])

    def _part(self, start: int, end: int) -> pa.Buffer:
        if self._direct < 0:
            return super()._part(start, end)
        room = mmap.mmap(-1, -(-(end - start) // _ALIGNED_BYTES) * _ALIGNED_BYTES)  # aligned, as O_DIRECT wants it
        read = 0
        while start + read < end:
            try:
                more = os.preadv(self._direct, [memoryview(room)[read:]], start + read)
            except OSError as error:
                raise LogWriteFailed(
                    f"cannot read segment {self._path} from its disk: {error.strerror}; replace the disk, or bring the "
                    "file back from a copy"
                ) from error
            if more == 0:
                break
            before, read = read, read + more
            if start + read < end:  # a short read, as a signal makes them: it goes on where a block begins
                read = read // mmap.PAGESIZE * mmap.PAGESIZE
                if read <= before:
                    break  # the file ends here, whatever its size said
        return pa.py_buffer(room).slice(0, min(read, end - start))


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise LogNotFound(
            f"segment {path} is gone: its log was deleted or truncated (or this machine does not mount its disk); "
            "list the logs there are"
        ) from None


def close_all(descriptors: Iterable[int]) -> None:
    """Close those that are open (not negative): all of them, also when one of them raises. Nobody may close one twice:
    its number may be another file's by then. So whoever calls has forgotten them before."""
    with ExitStack() as closing:
        for descriptor in descriptors:
            if descriptor >= 0:
                closing.callback(os.close, descriptor)
