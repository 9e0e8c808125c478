"""Many records in one content frame: what roles of ours send each other where C programs send a frame for each.

    content   the length of each record (u32, big-endian), then their bytes, one behind the other

How many there are stands in the first frame. A content that is longer or shorter than its lengths say is refused, and
so is one that is larger than anybody writes. Writers make groups that are far smaller than what is read: sockets count
frames, not bytes, when they bound what waits in them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct, calcsize

import numpy as np
import pyarrow as pa

from scribengin.base.text.counting import many
from scribengin.errors import FrameInvalid

BATCH_RECORDS_MAX = 65_536
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""What is read of one frame, at most."""
GROUP_RECORDS = 4096
GROUP_BYTES = 32 * 1024
"""What is written into one frame, at most. A record that is larger has a frame of its own, as C programs write it."""
_LENGTH_BYTES = calcsize(">I")


def pack(contents: Sequence[bytes]) -> bytes:
    """The content frame of records. Raises FrameInvalid for none, or for more than are read."""
    lengths = Struct(f">{len(contents)}I").pack(*map(len, contents))
    packed = lengths + b"".join(contents)
    _check(packed, len(contents))
    return packed


def unpack(packed: bytes, records: int) -> list[bytes]:
    """The records of a content frame, of which the first frame says how many there are. Raises FrameInvalid."""
    _check(packed, records)
    begin = _LENGTH_BYTES * records
    if begin > len(packed):
        raise FrameInvalid(f"a content of {len(packed)} bytes says that it holds {many(records, 'record')}")
    ends = list(accumulate(Struct(f">{records}I").unpack_from(packed), initial=begin))
    if ends[-1] != len(packed):
        raise FrameInvalid(f"a content of {len(packed)} bytes holds records of {ends[-1] - begin} bytes")
    return [packed[start:end] for start, end in pairwise(ends)]


def groups(contents: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The same records in order, in groups that each make a frame: one that is large is alone in its group."""
    ends = list(accumulate(map(len, contents), initial=0))
    at = 0
    while at < len(contents):
        end = _group_end(ends, at)
        yield contents[at:end]
        at = end


def packed_groups(column: pa.Array) -> Iterator[tuple[int, bytes]]:
    """The same for an array of binaries, none of them null: how many records, and their content frame."""
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    ends = (offsets - offsets[0]).tolist()
    big_endian = np.diff(offsets).astype(">u4")
    data = memoryview(data_buffer or b"")[int(offsets[0]) :]
    at = 0
    while at < len(column):
        end = _group_end(ends, at)
        yield end - at, big_endian[at:end].tobytes() + bytes(data[ends[at] : ends[end]])
        at = end


def within(contents: Sequence[bytes], bytes_max: int) -> Sequence[bytes]:
    """The first of the records, up to the one that reaches so many bytes."""
    return contents[: bisect_left(list(accumulate(map(len, contents))), bytes_max) + 1]


def _group_end(ends: Sequence[int], at: int) -> int:
    """Where the group that begins there ends. `ends[n]`: how many bytes come before record n."""
    last = min(at + GROUP_RECORDS, len(ends) - 1)
    return bisect_right(ends, ends[at] + GROUP_BYTES, at + 2, last + 1) - 1 if last > at + 1 else last


def _check(packed: bytes, records: int) -> None:
    if not 0 < records <= BATCH_RECORDS_MAX:
        raise FrameInvalid(f"a content of {many(records, 'record')}: it has 1 to {BATCH_RECORDS_MAX}")
    if len(packed) > BATCH_BYTES_MAX:
        raise FrameInvalid(f"a content of {len(packed)} bytes with {many(records, 'record')}: {BATCH_BYTES_MAX} fit")
