"""Splits are dealt to partitions in order, in runs of about equal size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from scribengin.spark.transform.input import shares


@dataclass(frozen=True)
class Sized:
    """A split that is only its size."""

    size_bytes: int
    records: int = 1

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(())


@given(st.lists(st.integers(0, 1000)), st.integers(1, 8))
def test_nothing_is_lost_and_the_order_is_kept(sizes: list[int], count: int) -> None:
    dealt = shares([Sized(size) for size in sizes], count)
    assert len(dealt) == count
    assert [split.size_bytes for share in dealt for split in share] == sizes


def test_equal_splits_make_equal_shares() -> None:
    assert [len(share) for share in shares([Sized(10)] * 8, 4)] == [2, 2, 2, 2]


def test_a_large_split_stands_alone() -> None:
    assert [[s.size_bytes for s in share] for share in shares([Sized(1), Sized(98), Sized(1)], 3)] == [[1], [98], [1]]


def test_splits_of_unknown_size_are_read_all_the_same() -> None:
    assert sum(len(share) for share in shares([Sized(0)] * 3, 2)) == 3
