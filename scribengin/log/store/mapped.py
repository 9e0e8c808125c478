"""Reading a segment file a part at a time, mapped, or past the cache, so that no reader ever holds a whole segment.

Nothing cuts a segment file while it is read: bytes are only added, and deleting a log unlinks files, which stay
readable through a map. So a map never loses its pages.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from scribengin.errors import LogClosed, LogNotFound, LogWriteFailed
from scribengin.log.store import inotify as tail_watch
from scribengin.log.store.contract import SegmentView, Tail
from scribengin.log.store.tail import TAIL_BYTES, read_tail

WINDOW_BYTES = 8 * 1024 * 1024
_ALIGNED_BYTES = max(mmap.ALLOCATIONGRANULARITY, 64 * 1024)
"""Where windows begin: at a page, and at a block of every disk."""


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
        self._window, self._window_start = window, start
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
