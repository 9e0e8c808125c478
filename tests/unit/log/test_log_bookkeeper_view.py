"""A segment on BookKeeper is read by the byte and asked for by the entry: a heap has room for what a request brings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import pytest

from scribengin.log.store.bookkeeper.client import LedgerPart, Ledgers
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers
from scribengin.log.store.bookkeeper.view import WINDOW_BYTES, BookKeeperView

MIB = 1024 * 1024


class LedgerOfSizes:
    """One closed ledger whose entries have these sizes. All bytes of an entry are its number's lowest."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._ends = [0, *accumulate(sizes)]
        self.asked: list[tuple[int, int]] = []
        """Entries and bytes of each request."""

    @property
    def closed_bytes(self) -> int:
        return self._ends[-1]

    def open(self, ledger: int) -> LedgerOfSizes:
        return self

    def last(self) -> int:
        return len(self._ends) - 2

    def read(self, first: int, last: int) -> LedgerPart:
        data = b"".join(bytes([k % 256]) * (self._ends[k + 1] - self._ends[k]) for k in range(first, last + 1))
        self.asked.append((last + 1 - first, len(data)))
        return LedgerPart(first, last, self._ends[first], data, self._ends[last])

    def close(self) -> None:
        pass

    def expected(self, start: int, end: int) -> bytes:
        """The bytes [start, end) of it all."""
        parts = []
        while start < end:
            entry = bisect_right(self._ends, start) - 1
            until = min(self._ends[entry + 1], end)
            parts.append(bytes([entry % 256]) * (until - start))
            start = until
        return b"".join(parts)


@pytest.mark.parametrize(
    ("sizes", "requests_max"),
    [
        ([20, *[MIB] * 100], 130),
        ([*[100] * 5000, *[MIB] * 50, *[100] * 5000], 140),
        ([300] * 60_000, 130),
        ([MIB, 10] * 60, 200),
    ],
    ids=["a small entry, then large ones", "large ones between small ones", "small ones", "by turns"],
)
def test_no_request_asks_for_more_than_a_heap_has_room_for(sizes: list[int], requests_max: int) -> None:
    ledger = LedgerOfSizes(sizes)
    named = SegmentLedgers(log=1, tail=2)
    view = BookKeeperView(cast(Ledgers, cast(Any, ledger)), named, "segment")
    step = 512 * 1024
    for start in range(0, ledger.closed_bytes, step):
        length = min(step, ledger.closed_bytes - start)
        assert view.read(start, length).to_pybytes() == ledger.expected(start, start + length)
    assert max(size for _entries, size in ledger.asked) <= 3 * WINDOW_BYTES
    assert len(ledger.asked) <= requests_max, "small entries come many at a time"
