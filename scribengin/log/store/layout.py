"""The files of a segment, wherever a store of files keeps them, and what stands in a `.tail`.

<directory>/<18 digits>-<epoch>.log      the segment
                               .idx      its index, a hint
                               .keys     the least and greatest keys in it, a hint
                               .tail     two slots of 32 bytes, written in turn: one of them always holds
                               .fence    its writer has been fenced
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import lru_cache

from crc32c import crc32c

from scribengin.log.store.contract import IndexKind, SegmentName, Tail

INDEX_SUFFIXES: dict[IndexKind, str] = {"positions": ".idx", "keys": ".keys"}
SUFFIXES = (*INDEX_SUFFIXES.values(), ".tail", ".fence", ".log")
"""All files of a segment. The segment itself is removed last: while it is there, the rest is found again."""
_ANY_FILE = re.compile(r"(\d{18})-(\d+)(?:\.([a-z0-9]+-[a-z0-9]+))?\.(?:log|idx|keys|tail|fence)")
_SLOT = struct.Struct("<IIQqq")
SLOT_BYTES = _SLOT.size
TAIL_BYTES = 2 * SLOT_BYTES


def segments_of(directory: str, files: Iterable[str]) -> list[SegmentName]:
    """Every segment and copy that one of these files of a log's directory belongs to, sorted."""
    matches = map(_ANY_FILE.fullmatch, files)
    found = {(int(m[1]), int(m[2]), m[3] or "") for m in matches if m is not None}
    return [SegmentName(directory, *name) for name in sorted(found)]


def slot_of(tail: Tail) -> bytes:
    """A slot: CRC-32C of the rest, entries, visible end, last transaction id, next sequence id; little-endian."""
    numbers = _SLOT.pack(0, tail.entries, tail.end, tail.last_txid, tail.sequence)[4:]
    return crc32c(numbers).to_bytes(4, "little") + numbers


@lru_cache(maxsize=256)  # who follows a log looks many times a second, and mostly at the same
def read_tail(data: bytes) -> Tail | None:
    """The newest valid slot of a `.tail` file."""
    tails = []
    for at in range(0, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
        crc, entries, end, last_txid, sequence = _SLOT.unpack_from(data, at)
        if crc32c(data[at + 4 : at + SLOT_BYTES]) == crc:
            tails.append(Tail(end=end, entries=entries, last_txid=last_txid, sequence=sequence))
    return max(tails, key=lambda tail: tail.end, default=None)
