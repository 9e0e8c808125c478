"""Binary frames as records: 4 bytes with the length of the payload, the highest first, then the payload. Pure."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.files.formats.lines import BLOCK_BYTES, LINE_BYTES_MAX, Mark, ReadBlock, of_payloads
from scribengin.errors import DataflowError

HEAD_BYTES = 4
FRAME_BYTES_MAX = LINE_BYTES_MAX
_LENGTH = struct.Struct(">I")


def frame_ends(
    data: bytes | bytearray | memoryview, *, at: int, what: str, bytes_max: int = FRAME_BYTES_MAX
) -> list[int]:
    """Where the complete frames of `data` end, which begins with one, at byte `at` of the file `what`.

    Each frame says where the next begins, so they are walked one by one; nothing but their ends is made of them.
    Raises DataflowError for a length that no frame has.
    """
    ends = []
    begin, size, length_of = 0, len(data), _LENGTH.unpack_from
    while begin + HEAD_BYTES <= size:
        length = length_of(data, begin)[0]
        if length > bytes_max:
            raise DataflowError(
                f"{what}: the frame at byte {at + begin} says that it is {length:,} bytes long, and none is longer "
                f"than {bytes_max:,} (record_bytes_max): it is damaged, or no file of frames (4 bytes of length, then "
                "the payload)"
            )
        begin += HEAD_BYTES + length
        if begin > size:
            break
        ends.append(begin)
    return ends


def frame_size(data: bytes | bytearray | memoryview) -> int:
    """The whole size of the first frame of `data`, 0 when even its head is not complete."""
    return HEAD_BYTES + int(_LENGTH.unpack_from(data)[0]) if len(data) >= HEAD_BYTES else 0


def decode_frames(data: bytes | memoryview, ends: list[int]) -> pa.RecordBatch:
    """Complete frames, which end where `frame_ends` said, as RECORD_SCHEMA."""
    begins = np.concatenate([[0], np.asarray(ends, np.int64)])
    is_payload = np.ones(begins[-1], bool)
    is_payload[(begins[:-1, None] + np.arange(HEAD_BYTES)).ravel()] = False
    values = np.frombuffer(data, np.uint8, len(is_payload))[is_payload]
    offsets = (begins - HEAD_BYTES * np.arange(len(begins))).astype(np.int32)
    return of_payloads(
        pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    )


@dataclass(slots=True)
class FrameScan:
    """The same as a LineScan, for frames. What follows the last complete one is damage once `tail_is_final`."""

    what: str
    start: int
    size: int
    limits: RoundLimits
    tail_is_final: bool
    """Whether nobody is writing the file any more."""
    alone: bool = True
    record_bytes_max: int = FRAME_BYTES_MAX
    marks: list[Mark] = field(default_factory=list)
    long: tuple[int, int] | None = None
    complete: bool = False

    @property
    def end(self) -> Mark:
        """Where the scan has got to."""
        return self.marks[-1] if self.marks else Mark(self.start, 0)

    def run(self, read: ReadBlock) -> None:
        """Fill `marks`. Raises DataflowError when the file is shorter than `size`, or damaged."""
        begin, rest = self.start, b""
        while begin + len(rest) < self.size:
            at = begin + len(rest)
            block = read(at, min(at + max(BLOCK_BYTES, frame_size(rest) - len(rest)), self.size))
            if not block:
                raise DataflowError(f"{self.what}: it was cut to {at} bytes while it was read; it had {self.size}")
            rest += block
            ends = self._short(frame_ends(rest, at=begin, what=self.what))
            taken = self._take(begin, ends, rest)
            if taken < len(ends) or self._is_full(begin, ends, rest):
                return
            done = ends[-1] if ends else 0
            begin, rest = begin + done, rest[done:]
            if frame_size(rest) > HEAD_BYTES + self.record_bytes_max:
                self._stop_at(begin, frame_size(rest))
                return
        if rest and self.tail_is_final:
            raise self._cut_off(begin, len(rest), frame_size(rest))
        self.complete = True

    def _short(self, ends: list[int]) -> list[int]:
        """The ends of the frames before the first one that is too long."""
        sizes = np.diff(np.asarray(ends, np.int64), prepend=0)
        large = np.flatnonzero(sizes > HEAD_BYTES + self.record_bytes_max)
        return ends[: large[0]] if len(large) else ends

    def _stop_at(self, begin: int, size: int) -> None:
        """End the scan before a frame that is too long or, where that is the first, with it."""
        end = begin + size
        if end > self.size:
            if self.tail_is_final:
                raise self._cut_off(begin, self.size - begin, size)
        elif begin == self.start:
            self.marks.append(Mark(end, 1))
            self.long = (begin + HEAD_BYTES, end)
            self.complete = end == self.size

    def _cut_off(self, begin: int, there: int, size: int) -> DataflowError:
        return DataflowError(
            f"{self.what}: the frame at byte {begin} is cut off: it has {there} bytes of {size or 'at least 4'}; "
            "restore the file, or give slow writers a longer settle_s"
        )

    def _take(self, begin: int, ends: list[int], data: bytes) -> int:
        """Note as many of the frames as the limits allow: how many."""
        within = int(np.searchsorted(ends, self.start + self.limits.bytes_max - begin, side="right"))
        count = min(within, self.limits.records_max - self.end.records, len(ends))
        if not count and ends and self.alone and not self.end.records:
            count = 1
        if count > 0:
            crc32 = zlib.crc32(memoryview(data)[: ends[count - 1]])
            self.marks.append(Mark(begin + ends[count - 1], self.end.records + count, crc32))
        return max(count, 0)

    def _is_full(self, begin: int, ends: list[int], data: bytes) -> bool:
        """Whether the frame that comes next, of which the beginning is here, is one too many."""
        if self.end.records >= self.limits.records_max:
            return True
        done = ends[-1] if ends else 0
        size = frame_size(memoryview(data)[done:])
        over = size > 0 and begin + done + size > self.start + self.limits.bytes_max
        return over and (self.end.records > 0 or not self.alone)
