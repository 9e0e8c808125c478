"""Reading a segment file through maps of a part of it at a time, so that no reader ever holds a whole segment.

Nothing cuts a segment file while it is read: bytes are only added, and deleting a log unlinks files, which stay
readable through a map. So a map never loses its pages.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from scribengin.errors import LogClosed, LogNotFound
from scribengin.log import tail_watch
from scribengin.log.segment import SegmentView, Tail
from scribengin.log.tail import TAIL_BYTES, read_tail

WINDOW_BYTES = 8 * 1024 * 1024


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
        for descriptor in (self._file, self._tail_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._tail_file = -1
        self._window = None

    def _map(self, offset: int, length: int) -> pa.Buffer:
        size = self.size()
        start = min(offset, size) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        end = min(size, max(offset + length, start + WINDOW_BYTES))
        if end <= start:
            window = pa.py_buffer(b"")
        else:
            window = pa.py_buffer(mmap.mmap(self._descriptor(), end - start, prot=mmap.PROT_READ, offset=start))
        self._window, self._window_start = window, start
        return window

    def _descriptor(self) -> int:
        if self._file < 0:
            raise LogClosed(f"segment {self._path} is closed; open a new reader")
        return self._file


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise LogNotFound(
            f"segment {path} is gone: its log was deleted or truncated; list the logs there are"
        ) from None
