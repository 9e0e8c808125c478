"""Plain files of lines or of frames: read by ranges of bytes, and read on when they have grown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from scribengin.connectors.contract import ReadSplit, RoundLimits
from scribengin.connectors.files.formats import reading
from scribengin.connectors.files.formats.frames import FrameScan, decode_frames, frame_ends
from scribengin.connectors.files.formats.lines import NEWLINE, LinePiece, LineScan, cut, decode, newlines
from scribengin.connectors.files.formats.reading import FileReading, FileToRead, Scanned, read_planned
from scribengin.connectors.odd_records import LongRecord
from scribengin.errors import DataflowError, TransformationFailed

Framing = Literal["text", "binary"]
RECORD = {"text": "line", "binary": "frame"}
COUNTED_BYTES_MAX = 64 * 1024 * 1024
"""So much of a file is read to tell the number of a line or a frame; behind that its byte is told."""
SHOWN_BYTES = 64 * 1024
"""So much of the beginning of a record that is too long is kept, to be shown."""
_BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The lines, or the frames, in a piece of one file."""

    path: str
    identity: str
    piece: LinePiece
    framing: Framing = "text"

    @property
    def records(self) -> int:
        return self.piece.records

    @property
    def size_bytes(self) -> int:
        return self.piece.end - self.piece.start

    def read(self) -> Iterator[pa.RecordBatch]:
        """One batch. Raises DataflowError when the file is gone or is not what it was when the range was planned."""
        yield decoded(self._data(), self.framing, at=self.piece.start, what=self.path)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """File and line, or frame, counted from 1; the byte where it begins, far behind in a large file."""
        start = self.piece.start
        if start <= COUNTED_BYTES_MAX:
            before = self._records_before()
            return [f"{self.path}, {RECORD[self.framing]} {before + index + 1}" for index in indices]
        data = self._data() if any(indices) else b""
        ends = newlines(data) + 1 if self.framing == "text" else frame_ends(data, at=start, what=self.path)
        begins = [start + (int(ends[index - 1]) if index else 0) for index in indices]
        return [f"{self.path}, {RECORD[self.framing]} at byte {begin}" for begin in begins]

    def _records_before(self) -> int:
        """How many lines, or frames, stand before the piece."""
        count, rest = 0, b""
        for at in range(0, self.piece.start, _BLOCK_BYTES):
            block = read_planned(self.path, self.identity, at, min(at + _BLOCK_BYTES, self.piece.start))
            if self.framing == "text":
                count += block.count(NEWLINE)
                continue
            rest += block
            ends = frame_ends(rest, at=at, what=self.path)
            count, rest = count + len(ends), rest[ends[-1] if ends else 0 :]
        return count

    def _data(self) -> bytes:
        start, end = self.piece.start, self.piece.end
        data = read_planned(self.path, self.identity, start, end)
        if not self.piece.holds(data):
            raise DataflowError(
                f"{self.path} changed after it was planned: bytes {start} to {end} held {self.records} "
                f"{RECORD[self.framing]}s, and {len(data)} bytes that are not the same are there now; files may only "
                "grow"
            )
        return data


def decoded(data: bytes, framing: Framing, *, at: int, what: str) -> pa.RecordBatch:
    """The records of `data`, which begins at byte `at` of `what`, as RECORD_SCHEMA."""
    return decode(data) if framing == "text" else decode_frames(data, frame_ends(data, at=at, what=what))


@dataclass(frozen=True, slots=True)
class LongFileRecord:
    """A line or a frame that is longer than its source takes; its payload are the bytes [first, last) of the file."""

    split: FileSplit
    first: int
    last: int
    bytes_max: int

    @property
    def records(self) -> int:
        return 1

    @property
    def size_bytes(self) -> int:
        return self.split.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        """Raises TransformationFailed."""
        at, kind = self.split.piece.start, RECORD[self.split.framing]
        raise refused(f"{self.split.path}: the {kind} at byte {at}", self.bytes_max)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """As of any other record of the file."""
        return self.split.places(indices, rows)

    def examine(self) -> LongRecord:
        """Raises DataflowError when the file is gone, or shorter than it was."""
        digest, beginning = hashlib.sha256(), b""
        for at in range(self.first, self.last, _BLOCK_BYTES):
            end = min(at + _BLOCK_BYTES, self.last)
            block = read_planned(self.split.path, self.split.identity, at, end)
            if len(block) != end - at:
                raise DataflowError(f"{self.split.path} was cut to {at + len(block)} bytes after it was planned")
            digest.update(block)
            beginning = beginning or block[:SHOWN_BYTES]
        return LongRecord(beginning, self.last - self.first, digest.hexdigest())


def refused(what: str, bytes_max: int) -> TransformationFailed:
    """What reading a record raises that is too long."""
    why = (
        f"{what} is longer than {bytes_max} bytes, the source's record_bytes_max; make that larger, take the file "
        "away, or have it routed (errors.action)"
    )
    return TransformationFailed(why, reason=why)


class GrowingReading(FileReading):
    """Lines or frames, as they stand."""

    grows = True

    def __init__(self, framing: Framing, settle_s: float, record_bytes_max: int) -> None:
        """`settle_s` is for messages."""
        self._record_bytes_max = record_bytes_max
        self._framing = framing
        self._settle_s = settle_s

    def is_ready(self, file: FileToRead) -> bool:
        return True

    def scan(self, file: FileToRead, offset: int, limits: RoundLimits, *, alone: bool) -> Scanned:
        start = offset
        found: LineScan | FrameScan
        if self._framing == "text":
            start += self._newline_of_a_settled_line(file, offset)
            found = LineScan(file.url, start, file.size_bytes, limits, file.settled, alone)
        else:
            found = FrameScan(file.url, start, file.size_bytes, limits, file.settled, alone)
        found.record_bytes_max = self._record_bytes_max
        found.run(file.read)
        pieces = cut(start, found.marks, reading.SPLIT_BYTES)
        splits: list[ReadSplit] = [FileSplit(file.url, file.info.identity, piece, self._framing) for piece in pieces]
        if found.long is not None:
            whole = FileSplit(file.url, file.info.identity, LinePiece(start, found.end.offset, 1), self._framing)
            splits = [LongFileRecord(whole, *found.long, self._record_bytes_max)]
        return Scanned(
            end=found.end.offset if found.end.records else offset,
            records=found.end.records,
            size_bytes=found.end.offset - start,
            splits=tuple(splits),
            complete=found.complete,
            file_bytes=found.end.offset - start,
            left_bytes=0 if found.complete else file.size_bytes - found.end.offset,
        )

    def _newline_of_a_settled_line(self, file: FileToRead, offset: int) -> int:
        """1 when the last line read had no newline then and has one now, else 0. Raises when it went on instead."""
        if not offset:
            return 0
        around = file.read(offset - 1, offset + 1)
        if around[:1] == NEWLINE:
            return 0
        if around[1:] in (NEWLINE, b""):  # a file that was cut just now is the scan's to find
            return len(around[1:])
        raise DataflowError(
            f"{file.url}: the line that ended at byte {offset} was read as complete when it had stood for "
            f"{self._settle_s:g} s without a newline, and has grown since; raise settle_s for so slow a "
            "writer, and give the file a new name"
        )
