"""What splits say of records that are not given like the others: they are too long, or were not read whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from scribengin.connectors.contract import ReadSplit


@dataclass(frozen=True, slots=True)
class LongRecord:
    """What is told of a record that is too long to be held: how it begins, its length in bytes, its SHA-256 in hex."""

    beginning: bytes
    size_bytes: int
    sha256: str


@runtime_checkable
class LongSplit(ReadSplit, Protocol):
    """A split of one record of RECORD_SCHEMA that is longer than its source takes. `read` raises TransformationFailed,
    as a transformation does that cannot take a record."""

    @property
    def bytes_max(self) -> int:
        """What the source takes."""
        ...

    def examine(self) -> LongRecord:
        """Read the record through, keeping its beginning only. Raises what the system raises."""
        ...


@runtime_checkable
class MarkingSplit(ReadSplit, Protocol):
    """A split that leaves a mark on each record that it could not read whole: a value that no whole record has."""

    def unreadable(self, rows: pa.RecordBatch | pa.Table) -> Mapping[int, str]:
        """Of rows that `read` gave, those with the mark, in order, and what is wrong with them: they are bad ones."""
        ...
