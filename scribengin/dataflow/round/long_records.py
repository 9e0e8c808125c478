"""Records that are longer than their source takes: found in what a split reads, and bad like any other. Pure.

Where a record's length is known before it is read (lines, frames), the connector leaves it out of memory and plans a
`LongSplit`. Elsewhere (rows of Parquet, of a topic, of a table) it is measured here: what it takes in Arrow, with all
its columns. That is asked of whole batches, so it costs next to nothing where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import RecordSplit
from scribengin.errors import TransformationFailed


@dataclass(frozen=True, slots=True)
class BoundedSplit:
    """The same records; reading raises TransformationFailed at one that is too long."""

    split: RecordSplit
    bytes_max: int

    @property
    def records(self) -> int:
        return self.split.records

    @property
    def size_bytes(self) -> int:
        return self.split.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch in self.split.read():
            for row in long_rows(batch, self.bytes_max):
                why = too_long(batch.slice(row, 1).nbytes, self.bytes_max)
                raise TransformationFailed(why, reason=why)
            yield batch


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
