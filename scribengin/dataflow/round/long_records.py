"""Records that are longer than their source takes, or that it could not read whole: found in what a split reads, and
bad like any other; and splits without the bad ones. Pure.

Where a record's length is known before it is read (lines, frames), the connector leaves it out of memory and plans a
`LongSplit`. Elsewhere (rows of Parquet, of a topic, of a table) it is measured here: what it takes in Arrow, with all
its columns. That is asked of whole batches, so it costs next to nothing where there is none. What could not be read
whole its split has marked (`MarkingSplit`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import ReadSplit, RecordSplit
from scribengin.connectors.odd_records import MarkingSplit
from scribengin.errors import TransformationFailed


@dataclass(frozen=True, slots=True)
class BoundedSplit:
    """The same records; reading raises TransformationFailed at one that nobody may be given."""

    split: RecordSplit
    bytes_max: int | None
    """None: a record has any length."""

    @property
    def records(self) -> int:
        return self.split.records

    @property
    def size_bytes(self) -> int:
        return self.split.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch in self.split.read():
            for why in unfit_rows(self.split, batch, self.bytes_max).values():
                raise TransformationFailed(why, reason=why)
            yield batch


@dataclass(frozen=True, slots=True)
class SplitWithout:
    """The same records but for some, which are numbered as the split gives them."""

    split: RecordSplit
    rows: frozenset[int]

    @property
    def records(self) -> int:
        return self.split.records - len(self.rows)

    @property
    def size_bytes(self) -> int:
        return self.split.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in self.split.read():
            kept = [first + row not in self.rows for row in range(batch.num_rows)]
            first += batch.num_rows
            yield batch if all(kept) else batch.filter(pa.array(kept))


def splits_without(splits: Sequence[ReadSplit], bad: Collection[int]) -> list[RecordSplit]:
    """What is left of the splits of a range without some of its records, numbered from its first. One that has nothing
    else is not read at all: what is too long need not be held to be left out."""
    left: list[RecordSplit] = []
    first = 0
    for split in splits:
        rows = frozenset(number - first for number in bad if first <= number < first + split.records)
        first += split.records
        if len(rows) < split.records:
            left.append(SplitWithout(split, rows) if rows else split)
    return left


def unfit_rows(split: RecordSplit, rows: pa.RecordBatch | pa.Table, bytes_max: int | None) -> dict[int, str]:
    """Of rows that a split gave, those that nobody may be given, and what is wrong with them."""
    unfit = dict(split.unreadable(rows)) if isinstance(split, MarkingSplit) else {}
    if bytes_max is not None:
        unfit |= {row: too_long(rows.slice(row, 1).nbytes, bytes_max) for row in long_rows(rows, bytes_max)}
    return unfit


def long_rows(rows: pa.RecordBatch | pa.Table, bytes_max: int) -> list[int]:
    """The rows that take more than `bytes_max`, ascending: halves that take no more hold none."""
    found, left = [], [(0, rows.num_rows)]
    while left:
        first, count = left.pop()
        if not count or rows.slice(first, count).nbytes <= bytes_max:
            continue
        if count == 1:
            found.append(first)
        else:
            half = count // 2
            left += [(first + half, count - half), (first, half)]
    return found


def too_long(size_bytes: int, bytes_max: int) -> str:
    """What is wrong with a record of that size."""
    return f"a record of {size_bytes:,} bytes, and the source takes {bytes_max:,} (record_bytes_max)"
