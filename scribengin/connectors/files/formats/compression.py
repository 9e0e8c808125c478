"""Compressed files of lines or of frames: whole ones, decompressed once, from the beginning to the end.

There is no way into the middle of them. So the reader that plans the rounds decompresses, keeps its place from one
round to the next, and gives the records of a round to the splits; what it holds is about one round's `bytes_max`. After
a restart it decompresses again what was read before, once.

Written, a file is one member (gzip) or frame, or several of them one behind the other.
"""

from __future__ import annotations

import bz2
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.files.formats import reading
from scribengin.connectors.files.formats.frames import HEAD_BYTES, frame_ends, frame_size
from scribengin.connectors.files.formats.growing import RECORD, SHOWN_BYTES, Framing, decoded, refused
from scribengin.connectors.files.formats.lines import BLOCK_BYTES, LINE_BYTES_MAX, NEWLINE, newlines, too_large
from scribengin.connectors.files.formats.reading import FileReading, FileToRead, RangeFile, Scanned, damage
from scribengin.connectors.files.formats.writing import Content, FileEncoder, PlainWriting, Write, WrittenFile
from scribengin.connectors.odd_records import LongRecord
from scribengin.errors import DataflowError

Codec = Literal["gzip", "bz2", "zstd", "lz4"]
CODEC_OF_SUFFIX: dict[str, Codec] = {"gz": "gzip", "gzip": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
SUFFIXES = {"gzip": "gz", "bz2": "bz2", "zstd": "zst", "lz4": "lz4"}
_BZ2_BYTES = 64 * 1024
_PADDING = bytes(16)
"""No codec ends a file with so many zeros."""


@dataclass(frozen=True, slots=True)
class HeldSplit:
    """Records that were decompressed when the round was planned."""

    what: str
    data: bytes
    records: int
    framing: Framing
    first: int
    """How many records of the file come before."""

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self) -> Iterator[pa.RecordBatch]:
        """One batch."""
        yield decoded(self.data, self.framing, at=0, what=self.what)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """File and line, or frame, counted from 1."""
        return [f"{self.what}, {RECORD[self.framing]} {self.first + index + 1}" for index in indices]


@dataclass(frozen=True, slots=True)
class LongHeldRecord:
    """A record that is longer than its source takes, and was passed over when the round was planned."""

    what: str
    framing: Framing
    first: int
    record: LongRecord
    bytes_max: int

    @property
    def records(self) -> int:
        return 1

    @property
    def size_bytes(self) -> int:
        return self.record.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        """Raises TransformationFailed."""
        raise refused(f"{self.what}, decompressed: {RECORD[self.framing]} {self.first + 1}", self.bytes_max)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """As of any other record."""
        return HeldSplit(self.what, b"", 1, self.framing, self.first).places(indices, rows)

    def examine(self) -> LongRecord:
        """What was seen of it."""
        return self.record


class CompressedReading(FileReading):
    """Files behind one codec. Two are open at a time at most."""

    grows = False

    def __init__(self, framing: Framing, codec: Codec, record_bytes_max: int) -> None:
        self._framing = framing
        self._codec = codec
        self._record_bytes_max = record_bytes_max
        self._current: _Stream | None = None
        self._begun: _Stream | None = None

    def is_ready(self, file: FileToRead) -> bool:
        return file.settled

    def scan(self, file: FileToRead, offset: int, limits: RoundLimits, *, alone: bool) -> Scanned:
        stream = self._stream_at(file, offset)
        count = stream.fill(limits, alone=alone)
        complete = stream.ended and count == len(stream.ends)
        splits: list[HeldSplit | LongHeldRecord] = []
        first = offset
        long = stream.long.get(offset)
        if long is not None and count:
            splits.append(LongHeldRecord(file.url, self._framing, first, long, self._record_bytes_max))
        for data, records in stream.pieces(count) if long is None else ():
            splits.append(HeldSplit(file.url, data, records, self._framing, first))
            first += records
        size = sum(split.size_bytes for split in splits)
        left = 0 if complete else max(file.size_bytes - stream.raw_at, 1)
        return Scanned(offset + count, count, size, tuple(splits), complete, stream.raw_at, left)

    def _stream_at(self, file: FileToRead, offset: int) -> _Stream:
        """The file open at record `offset`: going on where it was, or from its beginning.

        The one that is read in the middle stays open while others are begun, as counting what is unread does.
        """
        for stream in (self._current, self._begun):
            if stream is not None and not stream.broken and stream.is_of(file) and stream.drop(offset):
                break
        else:
            stream = _Stream(file, self._codec, self._framing, self._record_bytes_max)
            while not stream.drop(offset):
                stream.pull()
        if offset:
            self._current = stream
        else:
            self._begun = stream
        return stream


class _Passing:
    """A record that is too long, while it is decompressed: what is told of it. `left`: the bytes of a frame; a line
    (None) goes on to its newline."""

    def __init__(self, left: int | None) -> None:
        self._left = left
        self._digest = hashlib.sha256()
        self._beginning = b""
        self._size = 0

    def take(self, data: bytes) -> int | None:
        """Take what is the record's of `data`: where behind it the next one begins, None if it goes on."""
        if self._left is None:
            at = data.find(NEWLINE)
            end, after = (len(data), None) if at < 0 else (at, at + 1)
        else:
            end = min(len(data), self._left)
            self._left -= end
            after = None if self._left else end
        self._digest.update(memoryview(data)[:end])
        self._beginning = self._beginning or data[: min(end, SHOWN_BYTES)]
        self._size += end
        return after

    @property
    def record(self) -> LongRecord:
        return LongRecord(self._beginning, self._size, self._digest.hexdigest())


class _Stream:
    """A file that is being decompressed: the records from number `at` on that were, and no split has taken yet."""

    def __init__(self, file: FileToRead, codec: Codec, framing: Framing, record_bytes_max: int) -> None:
        self._record_bytes_max = record_bytes_max
        self._overhead = len(NEWLINE) if framing == "text" else HEAD_BYTES
        self._file = file
        self._codec = codec
        self._framing = framing
        self._raw = RangeFile(file.read, file.size_bytes)
        buffered = io.BufferedReader(self._raw, BLOCK_BYTES)
        self._input = _opened(buffered, codec)
        self._data = bytearray()
        self._passed = 0
        self._passing: _Passing | None = None
        self._passing_from = 0
        self.long: dict[int, LongRecord] = {}
        """The records that are too long, by their numbers."""
        self.at = 0
        self.ends: np.ndarray[tuple[int], np.dtype[np.int64]] = np.zeros(0, np.int64)
        self.ended = False
        self.broken = False

    @property
    def raw_at(self) -> int:
        """How much of the compressed file was looked at."""
        return self._raw.tell()

    def is_of(self, file: FileToRead) -> bool:
        return (self._file.url, self._file.info) == (file.url, file.info)

    def drop(self, to: int) -> bool:
        """Forget the records before number `to`: whether it has got there. Raises DataflowError at the file's end."""
        if to < self.at:
            return False
        count = min(to - self.at, len(self.ends))
        if count:
            end = int(self.ends[count - 1])
            del self._data[:end]
            self.ends = self.ends[count:] - end
            self.at += count
            self._passed += end
            self.long = {number: record for number, record in self.long.items() if number >= self.at}
        if self.at < to and self.ended:
            raise DataflowError(
                f"{self._file.url}: {to} of its records were read, and it has {self.at}: it was replaced; put it back, "
                "or give new data a new name"
            )
        return self.at == to

    def fill(self, limits: RoundLimits, *, alone: bool) -> int:
        """Decompress until the limits are met, or the end is: how many records may be taken. One that is too long is
        taken by itself."""
        count = self._filled(limits, alone=alone)
        to_long = min(self.long, default=self.at + count) - self.at
        return min(count, to_long or 1)

    def _filled(self, limits: RoundLimits, *, alone: bool) -> int:
        while not self.ended and len(self.ends) < limits.records_max and len(self._data) <= limits.bytes_max:
            self.pull()
        within = int(np.searchsorted(self.ends, limits.bytes_max, side="right"))
        if within or not alone:
            return min(within, limits.records_max)
        while not self.ended and not len(self.ends):
            self.pull()
        return min(1, len(self.ends))

    def pieces(self, count: int) -> Iterator[tuple[bytes, int]]:
        """The first `count` records in pieces of about SPLIT_BYTES: their bytes, and how many they are."""
        begin = first = 0
        while first < count:
            end = int(np.searchsorted(self.ends[:count], begin + reading.SPLIT_BYTES, side="left")) + 1
            end = min(max(end, first + 1), count)
            stop = int(self.ends[end - 1])
            yield bytes(memoryview(self._data)[begin:stop]), end - first
            begin, first = stop, end

    def pull(self) -> None:
        """Decompress some more. Raises DataflowError for damage."""
        self.broken = True  # unless it gets to the end of this
        done = int(self.ends[-1]) if len(self.ends) else 0
        rest = len(self._data) - done
        if rest > self._record_bytes_max + self._overhead:
            self._pass(done)
            rest = 0
        block = self._decompressed(max(BLOCK_BYTES, rest))  # so that a long record is looked through few times
        self.ended = not block
        if self._passing is not None:
            block = self._passed_over(self._passing, block)
        self._data += block
        found: list[int] | np.ndarray[tuple[int], np.dtype[np.intp]]
        if self.ended and self._framing == "text" and rest:
            found = [rest]
        elif self.ended and rest:
            size = frame_size(self._data[done:])
            raise self._damaged(f"its last frame is cut off: it has {rest} bytes of {size or 'at least 4'}")
        else:
            found = self._found(bytes(memoryview(self._data)[done:]), self._passed + done)
        self._note_long(np.asarray(found, np.int64), done)
        self.ends = np.concatenate([self.ends, np.asarray(found, np.int64) + done])
        self.broken = False

    def _found(self, data: bytes, at: int) -> list[int] | np.ndarray[tuple[int], np.dtype[np.intp]]:
        if self._framing == "text":
            return newlines(data) + 1
        return frame_ends(data, at=at, what=f"{self._file.url}, decompressed")

    def _note_long(self, ends: np.ndarray[tuple[int], np.dtype[np.int64]], done: int) -> None:
        """Look for records that are too long, of those that end there behind byte `done` of what is held."""
        begins = np.concatenate([[0], ends[:-1]])[: len(ends)]
        for index in np.flatnonzero(ends - begins > self._record_bytes_max + self._overhead):
            begin, end = done + int(begins[index]), done + int(ends[index])
            record = bytes(memoryview(self._data)[begin:end])
            passing = self._begun_passing(record)
            self.long[self.at + len(self.ends) + int(index)] = passing[0].record

    def _begun_passing(self, data: bytes) -> tuple[_Passing, int | None]:
        """A record that is too long, from its beginning on; and where behind it the next one begins, if it is there."""
        if self._framing == "text":
            passing, payload = _Passing(None), data
        else:
            passing, payload = _Passing(frame_size(data) - HEAD_BYTES), data[HEAD_BYTES:]
        return passing, passing.take(payload)

    def _pass(self, done: int) -> None:
        """From byte `done` on, hold nothing of the record that begins there."""
        self._passing, _ = self._begun_passing(bytes(memoryview(self._data)[done:]))
        self._passing_from = self._passed + done
        self._passed += len(self._data) - done
        del self._data[done:]

    def _passed_over(self, passing: _Passing, block: bytes) -> bytes:
        """What follows the record that is too long, in a block that was decompressed behind its beginning."""
        after = passing.take(block)
        if passing.record.size_bytes > LINE_BYTES_MAX:
            what = f"{self._file.url}, decompressed"
            raise too_large(what, RECORD[self._framing], self._passing_from, LINE_BYTES_MAX)
        if after is None and not self.ended:
            self._passed += len(block)
            return b""
        if self.ended and self._framing == "binary":
            raise self._damaged(f"its last frame is cut off, after {passing.record.size_bytes} bytes of it")
        self.long[self.at + len(self.ends)] = passing.record
        self.ends = np.append(self.ends, len(self._data))
        self._passing = None
        self._passed += after or 0
        return block[after or 0 :]

    def _decompressed(self, size: int) -> bytes:
        try:
            return bytes(self._input.read(size))
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            why = str(error).partition("\n")[0]
            if self._file.read(max(self._file.size_bytes - len(_PADDING), 0), self._file.size_bytes) == _PADDING:
                why += "; it ends in zeros: cut them off if they are padding, or it has lost records"
            raise self._damaged(why) from error

    def _damaged(self, why: str) -> DataflowError:
        good = self.at + len(self.ends)
        return DataflowError(
            f"{self._file.url}: damaged {self._codec}, or not complete, near byte {self.raw_at} of "
            f"{self._file.size_bytes}, after {good} good records: {why}; restore the file. A writer should give it a "
            "name that begins with _ or . until it is complete"
        )


class CompressedWriting(PlainWriting):
    """Files of `inner`, compressed."""

    def __init__(self, inner: PlainWriting, codec: str) -> None:
        """`codec` is one of SUFFIXES."""
        self._inner = inner
        self._codec = codec
        self.suffix = f"{inner.suffix}.{SUFFIXES[codec]}"
        self.payload_bytes_max = inner.payload_bytes_max

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        self._inner.check(batch, what=what)

    def content(self, batch: pa.RecordBatch, *, what: str) -> Content:
        return self._inner.content(batch, what=what)

    def encoder(self, first: Content, write: Write) -> FileEncoder:
        return _CompressingEncoder(self._codec, write)

    def batches(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        return self._inner.batches(WrittenFile(file.path, self._decompressed(file)))

    def _decompressed(self, file: WrittenFile) -> Iterator[bytes]:
        blocks = _Blocks(file.blocks)
        with damage(file.path, f"{self._codec}, or not complete"), _opened(blocks, self._codec) as stream:
            while block := bytes(stream.read(BLOCK_BYTES)):
                yield block


def _opened(raw: io.BufferedIOBase | io.RawIOBase, codec: str) -> pa.NativeFile | _Bz2Streams:
    """What a compressed file holds, to be read from its beginning to its end."""
    return _Bz2Streams(raw) if codec == "bz2" else pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec)


class _Bz2Streams(io.RawIOBase):
    """A file of bzip2 decompressed: streams one behind the other. Arrow takes one that holds nothing for damage, unless
    it is the only one, and writers that are stopped leave such streams."""

    def __init__(self, raw: io.BufferedIOBase | io.RawIOBase) -> None:
        self._raw = raw
        self._stream: bz2.BZ2Decompressor | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Some of it, b"" at its end. Raises OSError for damage, and for a last stream that is cut off."""
        while True:
            stream, rest = self._stream, b""
            if stream is None or stream.eof:
                rest = (stream.unused_data if stream is not None else b"") or self._more()
                if not rest:
                    return b""
                stream = self._stream = bz2.BZ2Decompressor()
            elif stream.needs_input:
                rest = self._more()
                if not rest:
                    raise OSError("its last stream is cut off")
            if data := stream.decompress(rest, size):
                return data

    def _more(self) -> bytes:
        """Few at a time: each stream copies what is left behind it."""
        return self._raw.read(_BZ2_BYTES) or b""


class Outlet(io.RawIOBase):
    """What pyarrow writes a file to: it passes everything on, until it is shut, and swallows what comes then.

    pyarrow's writers complete their files when they are collected, and a file that was given up must not be written.
    """

    def __init__(self, write: Write) -> None:
        self._write: Write | None = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._write is not None:
            self._write(view)
        return len(view)

    def shut(self) -> None:
        """Pass nothing on any more."""
        self._write = None


class _CompressingEncoder(FileEncoder):
    def __init__(self, codec: str, write: Write) -> None:
        self._outlet = Outlet(write)
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._outlet, "w"), codec)

    def append(self, content: Content) -> None:
        self._stream.write(content)

    def finish(self) -> None:
        self._stream.close()

    def abandon(self) -> None:
        self._outlet.shut()


class _Blocks(io.RawIOBase):
    """Blocks as a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer)
        while not self._rest and (block := next(self._blocks, None)) is not None:
            self._rest = memoryview(block)
        count = min(len(into), len(self._rest))
        into[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
