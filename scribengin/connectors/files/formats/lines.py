"""Lines of text as records: finding where they end, and turning them into Arrow columns and back. Pure.

A line ends at its newline byte (10), which is no part of the record; a carriage return before it is. No Python object
is made of a line.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.contract import PAYLOAD, RECORD_SCHEMA, RoundLimits
from scribengin.errors import DataflowError, RecordRefused, RecordTooLarge

NEWLINE = b"\n"
LINE_BYTES_MAX = 1024 * 1024 * 1024
"""What one Arrow column of a split can hold with room to spare."""
BLOCK_BYTES = 1024 * 1024

ReadBlock = Callable[[int, int], bytes]
"""The bytes [start, end) of a file."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a complete line at byte `offset`, with `records` lines between the start of the scan and it, and the
    checksum of the bytes between the mark before it and this one."""

    offset: int
    records: int
    crc32: int = 0


@dataclass(slots=True)
class LineScan:
    """Walks a file from `start` until a limit or its end, and notes ends of lines on the way, about one a block.

    A first line larger than `limits.bytes_max` is taken whole, unless there is something else in the round already. A
    line that is longer than `record_bytes_max` ends the scan; where it is the first, the scan is of nothing else.
    """

    what: str
    start: int
    size: int
    limits: RoundLimits
    tail_is_line: bool
    """Whether bytes after the last newline are a record."""
    alone: bool = True
    """Whether nothing else is in the round yet."""
    record_bytes_max: int = LINE_BYTES_MAX
    marks: list[Mark] = field(default_factory=list)
    long: tuple[int, int] | None = None
    """If what was found is one line that is too long: the bytes [first, last) of its payload."""
    complete: bool = False
    """Whether all of the file was looked at, and no limit was in the way."""
    _crc32: int = 0
    """Of the bytes that were looked at behind the last mark."""

    @property
    def end(self) -> Mark:
        """Where the scan has got to."""
        return self.marks[-1] if self.marks else Mark(self.start, 0)

    def run(self, read: ReadBlock) -> None:
        """Fill `marks`. Raises DataflowError when the file is shorter than `size`, RecordTooLarge."""
        at = self.start
        while at < self.size:
            block = read(at, min(at + BLOCK_BYTES, self.size))
            if not block:
                raise self._was_cut(at)
            begin = self._long_from(at, block)
            if begin is not None:
                self._stop_at(begin, at, block, read)
                return
            if not self._take(at, block):
                return
            at += len(block)
        if self.tail_is_line and self.end.offset < self.size and self._fits(self.size):
            self._note(self.size, 1)
        self.complete = self.end.offset == self.size or not self.tail_is_line

    def _stop_at(self, begin: int, at: int, block: bytes, read: ReadBlock) -> None:
        """End the scan before a line that is too long or, where that is the first, with it. It begins, or goes on, in
        the block, which is at byte `at`."""
        if begin > self.start:
            self._take(at, block[: max(begin - at, 0)])
            return
        newline = self._newline(at, block, read)
        if newline is None and not self.tail_is_line:
            return
        last, end = (self.size, self.size) if newline is None else (newline, newline + 1)
        if self.alone or end - self.start <= self.limits.bytes_max:
            self.marks.append(Mark(end, 1))
            self.long = (self.start, last)
            self.complete = end == self.size

    def _newline(self, at: int, block: bytes, read: ReadBlock) -> int | None:
        """Where the first newline is from byte `at` on; None at the end of the file. Raises RecordTooLarge."""
        while (found := block.find(NEWLINE)) < 0:
            at += len(block)
            if at - self.start > LINE_BYTES_MAX:
                raise too_large(self.what, "line", self.start, LINE_BYTES_MAX)
            if at >= self.size:
                return None
            block = read(at, min(at + BLOCK_BYTES, self.size))
            if not block:
                raise self._was_cut(at)
        return at + found

    def _was_cut(self, at: int) -> DataflowError:
        return DataflowError(f"{self.what}: it was cut to {at} bytes while it was read; it had {self.size}")

    def _long_from(self, at: int, block: bytes) -> int | None:
        """Where the first line begins that is too long, of those that end in the block or go on behind it."""
        if self.record_bytes_max < len(block):
            ends = newlines(block) + at
        else:  # a line that is too long has begun in a block before
            first = block.find(NEWLINE)
            ends = np.asarray([at + first] if first >= 0 else [], np.intp)
        begins = np.concatenate([[self.end.offset], ends[:-1] + 1])[: len(ends)]
        large = np.flatnonzero(ends - begins > self.record_bytes_max)
        if len(large):
            return int(begins[large[0]])
        last = block.rfind(NEWLINE)
        open_from = at + last + 1 if last >= 0 else self.end.offset
        return open_from if at + len(block) - open_from > self.record_bytes_max else None

    def _take(self, at: int, block: bytes) -> bool:
        """Note the ends of lines in a block that begins at byte `at`: whether the next block may be looked at."""
        within = block[: max(0, self.start + self.limits.bytes_max - at)]
        room = self.limits.records_max - self.end.records
        count = within.count(NEWLINE)
        if count >= room:
            self._note_in(at, block, int(newlines(within)[room - 1]) + 1, room)
            return False
        end = within.rindex(NEWLINE) + 1 if count else 0
        if count:
            self._note_in(at, block, end, count)
        if len(within) == len(block):
            self._crc32 = zlib.crc32(memoryview(block)[end:], self._crc32)
            return True
        if self.end.records or not self.alone:
            return False
        first = block.find(NEWLINE)  # the single line that is larger than the limit
        if first >= 0:
            self._note_in(at, block, first + 1, 1)
        else:
            self._crc32 = zlib.crc32(block, self._crc32)
        return first < 0

    def _note_in(self, at: int, block: bytes, end: int, records: int) -> None:
        self._crc32 = zlib.crc32(memoryview(block)[:end], self._crc32)
        self._note(at + end, records)

    def _note(self, offset: int, records: int) -> None:
        self.marks.append(Mark(offset, self.end.records + records, self._crc32))
        self._crc32 = 0

    def _fits(self, end: int) -> bool:
        if self.end.records >= self.limits.records_max:
            return False
        return end - self.start <= self.limits.bytes_max or (self.alone and not self.end.records)


def too_large(what: str, kind: str, at: int, bytes_max: int) -> RecordTooLarge:
    """The error for a record that is too long."""
    return RecordTooLarge(
        f"{what}: the {kind} at byte {at} is longer than {bytes_max} bytes, and no source takes that; take the file "
        "away"
    )


@dataclass(frozen=True, slots=True)
class LinePiece:
    """The records in the bytes [start, end) of a file. `checks`: ends of parts of it, and their checksums."""

    start: int
    end: int
    records: int
    checks: tuple[tuple[int, int], ...] = ()

    def holds(self, data: bytes) -> bool:
        """Whether these are the bytes."""
        at, view = self.start, memoryview(data)
        for end, crc32 in self.checks:
            if zlib.crc32(view[at - self.start : end - self.start]) != crc32:
                return False
            at = end
        return len(data) == self.end - self.start


def cut(start: int, marks: Iterable[Mark], piece_bytes: int) -> list[LinePiece]:
    """Pieces of about `piece_bytes`, cut at marks."""
    pieces: list[LinePiece] = []
    begin, records = start, 0
    checks: list[tuple[int, int]] = []
    last = Mark(start, 0)
    for last in marks:
        checks.append((last.offset, last.crc32))
        if last.offset - begin >= piece_bytes:
            pieces.append(LinePiece(begin, last.offset, last.records - records, tuple(checks)))
            begin, records, checks = last.offset, last.records, []
    if checks:
        pieces.append(LinePiece(begin, last.offset, last.records - records, tuple(checks)))
    return pieces


def decode(text: bytes) -> pa.RecordBatch:
    """The lines of `text` as RECORD_SCHEMA; what follows the last newline is a line, too, if there is anything."""
    if text and not text.endswith(NEWLINE):
        text += NEWLINE
    ends = newlines(text)
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends - np.arange(len(ends))  # where each line ends once the newlines are gone
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.translate(None, NEWLINE))]
    return of_payloads(pa.Array.from_buffers(pa.binary(), len(ends), buffers))


def of_payloads(payload: pa.Array) -> pa.RecordBatch:
    """RECORD_SCHEMA with nothing but payloads."""
    columns = [payload if column.name == PAYLOAD else pa.nulls(len(payload), column.type) for column in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def batches(blocks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """A file that is read block by block, as RECORD_SCHEMA: about a batch a block, cut at line ends."""
    rest = b""
    for block in blocks:
        text, newline, rest_of_block = block.rpartition(NEWLINE)
        if newline:
            yield decode(rest + text + newline)
            rest = rest_of_block
        else:
            rest += block
    if rest:
        yield decode(rest)


def payloads(batch: pa.RecordBatch, *, what: str) -> pa.Array:
    """The payloads of a batch as large_binary. Raises DataflowError when there are none, RecordRefused for a null."""
    if PAYLOAD not in batch.schema.names:
        raise DataflowError(f"{what}: a batch with the columns {', '.join(batch.schema.names)} has no {PAYLOAD}")
    payload = batch.column(PAYLOAD).cast(pa.large_binary())
    if payload.null_count:
        raise RecordRefused(f"{what}: every record needs a payload; an empty one is fine, null is not")
    return payload


def joined(values: pa.Array) -> memoryview:
    """The bytes of a computed large_binary array, one value behind the other."""
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    return memoryview(values.buffers()[2] or b"")[:size]


def line_payloads(batch: pa.RecordBatch, *, what: str) -> pa.Array:
    """The payloads of a batch, each of them one line. Raises as `payloads`, RecordRefused and RecordTooLarge for what
    is no line."""
    payload = payloads(batch, what=what)
    if _has_newline(payload):
        raise RecordRefused(
            f"{what}: a payload holds a newline, and a file of lines cannot carry it; encode it, as JSON does"
        )
    longest = pc.max(pc.binary_length(payload)).as_py() or 0
    if longest > LINE_BYTES_MAX:
        raise RecordTooLarge(f"{what}: a payload has {longest:,} bytes, and a line {LINE_BYTES_MAX:,} at most")
    return payload


def _has_newline(payload: pa.Array) -> bool:
    """Whether any value of a large_binary array without nulls holds one: all bytes at once, which is many times as fast
    as value by value."""
    _, offsets, data = payload.buffers()
    if data is None or not len(payload):
        return False
    ends = np.frombuffer(offsets, np.int64)[payload.offset : payload.offset + len(payload) + 1]
    return bool((np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] == NEWLINE[0]).any())


def encode(batch: pa.RecordBatch, *, what: str) -> memoryview:
    """The payloads of a batch as lines. Raises as `line_payloads`."""
    payload = line_payloads(batch, what=what)
    empty = pa.scalar(b"", pa.large_binary())
    return joined(pc.binary_join_element_wise(payload, empty, pa.scalar(NEWLINE, pa.large_binary())))


def newlines(text: bytes | memoryview) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where the newlines are."""
    found: np.ndarray[tuple[int], np.dtype[np.intp]] = np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE[0])
    return found
