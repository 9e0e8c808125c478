"""The `.tail` file of a segment: two slots, written in turn, so that one of them holds while the other is being
written."""

from __future__ import annotations

import struct

from crc32c import crc32c

from scribengin.log.store.contract import Tail

_SLOT = struct.Struct("<IIQqq")
SLOT_BYTES = _SLOT.size
TAIL_BYTES = 2 * SLOT_BYTES


def slot_of(tail: Tail) -> bytes:
    """A slot: CRC-32C of the rest, entries, visible end, last transaction id, next sequence id; little-endian."""
    numbers = _SLOT.pack(0, tail.entries, tail.end, tail.last_txid, tail.sequence)[4:]
    return crc32c(numbers).to_bytes(4, "little") + numbers


def read_tail(data: bytes) -> Tail | None:
    """The newest valid slot of a `.tail` file."""
    tails = []
    for at in range(0, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
        crc, entries, end, last_txid, sequence = _SLOT.unpack_from(data, at)
        if crc32c(data[at + 4 : at + SLOT_BYTES]) == crc:
            tails.append(Tail(end=end, entries=entries, last_txid=last_txid, sequence=sequence))
    return max(tails, key=lambda tail: tail.end, default=None)
