"""A file of any file system as Python's and Arrow's readers want one."""

from __future__ import annotations

import io
from collections.abc import Callable


class RangeFile(io.RawIOBase):
    """A file of a known size that is read by ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._read = read
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        data = self._read(self._at, end) if self._at < end else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: object, /) -> int:
        into = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # a buffer, as RawIOBase gives it
        data = self.read(len(into))
        into[: len(data)] = data
        return len(data)
