"""The bytes of segments that a proxy holds in memory, for all readers. Bounded; what was not asked for longest goes
first.

The mistake to avoid: to keep what is not visible yet. It may never come to be, and then it would be read here alone. So
a block begins at its place in the segment and ends where readers may read; it grows as that moves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from scribengin.log.store.contract import SegmentName

BLOCK_BYTES = 64 * 1024


class BlockCache:
    """Blocks by segment and number. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[SegmentName, int], bytes] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """How many it holds."""
        return self._bytes

    def block(self, segment: SegmentName, number: int) -> bytes:
        """What it holds of the block: its beginning, or nothing."""
        with self._lock:
            found = self._blocks.get((segment, number), b"")
            if found:
                self._blocks.move_to_end((segment, number))
            return found

    def put(self, segment: SegmentName, number: int, block: bytes) -> None:
        """Hold that as the block's beginning, unless more of it is held."""
        key = (segment, number)
        with self._lock:
            before = self._blocks.get(key, b"")
            if len(before) >= len(block):
                return
            self._blocks[key] = block
            self._blocks.move_to_end(key)
            self._bytes += len(block) - len(before)
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._blocks.popitem(last=False)[1])

    def forget(self, segment: SegmentName) -> None:
        """Hold nothing of the segment."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] == segment]:
                self._bytes -= len(self._blocks.pop(key))

    def parts(self, segment: SegmentName, start: int, end: int) -> list[memoryview]:
        """What it holds of [start, end), from `start` on and without a gap."""
        found: list[memoryview] = []
        while start < end:
            number, at = divmod(start, BLOCK_BYTES)
            part = memoryview(self.block(segment, number))[at : at + end - start]
            if not part:
                break
            found.append(part)
            start += len(part)
            if start % BLOCK_BYTES:
                break
        return found
