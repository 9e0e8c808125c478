"""Reading files of records: what a format answers when a round asks how far it may read.

Two kinds of files. Those that *grow* are read on when they do; their offsets are bytes. Those that are *whole*
(Parquet, everything compressed) are looked at once they are complete and never change after that; their offsets are
records.

`RangeFile` is a file of any file system as Python's and Arrow's readers want one.
"""

from __future__ import annotations

import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import ReadSplit, RoundLimits
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo
from scribengin.filesystems.paths import file_system

MARK_BYTES = 4096
"""So many bytes before a place are enough to know it again."""
SPLIT_BYTES = 4 * 1024 * 1024
"""About so much is read by one task of Spark's at least."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """One file as a listing told of it: where any process finds it, how much of it can be read, whether it is settled
    (nobody has written to it for a while), how its bytes are read, and what it was listed as."""

    url: str
    size_bytes: int
    settled: bool
    read: Callable[[int, int], bytes]
    info: FileInfo

    def mark(self, end: int) -> str:
        """The checksum of the bytes before `end`, by which what was read is known again. Raises FileNotFoundError."""
        return mark_of(self.read(max(end - MARK_BYTES, 0), end))


def mark_of(data: bytes) -> str:
    """The checksum of the bytes before a place, at most MARK_BYTES."""
    return f"{zlib.crc32(data):08x}"


def read_planned(url: str, identity: str, start: int, end: int) -> bytes:
    """Bytes of a file that was at `url` when it was planned, and may have been renamed since. Raises DataflowError."""
    files, path = file_system(url)
    try:
        return files.read_same(path, identity, start, end)
    except FileNotFoundError:
        pass
    try:
        renamed = files.path_of(path, identity)
        if renamed is not None:
            return files.read_same(renamed, identity, start, end)
    except FileNotFoundError:
        pass
    raise DataflowError(f"{url} was deleted after it was planned; put it back, it is read again")


@dataclass(frozen=True, slots=True)
class Scanned:
    """A piece of one file that fits a round: up to the offset `end`, in splits. `size_bytes` counts against the limits.

    `complete`: nothing is left in the file as it is now. Else `left_bytes` of it were not looked at, and about
    `file_bytes` of it hold the records.
    """

    end: int
    records: int
    size_bytes: int
    splits: tuple[ReadSplit, ...]
    complete: bool
    file_bytes: int = 0
    left_bytes: int = 0


class FileReading(ABC):
    """How one kind of file is read, on behalf of one reader: it may remember what it has looked at."""

    grows: bool

    @abstractmethod
    def is_ready(self, file: FileToRead) -> bool:
        """Whether the file can be looked at already. Raises DataflowError when it never will be."""

    @abstractmethod
    def scan(self, file: FileToRead, offset: int, limits: RoundLimits, *, alone: bool) -> Scanned:
        """The records from `offset` on, as many as `limits` allow. A first one that is too large is taken if `alone`.

        Raises FileNotFoundError; DataflowError, with file and offset, for what is damaged.
        """


def cut_rows(first: int, end: int, rows_max: int) -> Sequence[tuple[int, int]]:
    """[first, end) in pieces of at most `rows_max`."""
    return [(at, min(at + rows_max, end)) for at in range(first, end, max(rows_max, 1))]


def same_columns(found: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether two schemas have the same columns of the same types, in any order."""
    return {field.name: field.type for field in found} == {field.name: field.type for field in wanted}


@contextmanager
def damage(url: str, what: str) -> Iterator[None]:
    """Turn what Arrow raises about the bytes of a file into one line. FileNotFoundError stays.

    A name that is no text any more is found by whoever asks for it, hence UnicodeDecodeError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0]
        raise DataflowError(f"{url}: damaged {what}: {why}; restore the file") from error


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
