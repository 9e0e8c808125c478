"""What the connector asks of Spark, which it does not know: the Spark room says how (`scribengin.spark.tables`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from scribengin.connectors.contract import RecordSplit
from scribengin.errors import SparkUnavailable

NOUN = "table of Spark"
"""What a sink or a source of Spark is called; which one it is, only its options tell, which may hold passwords."""
WriteMode = Literal["append", "overwrite"]
OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class SparkTable:
    """What a Spark format is asked for: `spark.read.format(format).options(options).load()`."""

    format: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, spark_format: str, options: Mapping[str, OptionValue]) -> SparkTable:
        """Of a configuration."""
        return cls(spark_format, tuple((key, _text(value)) for key, value in options.items()))

    def __str__(self) -> str:
        """For messages: without the options, which may hold a password."""
        return f"Spark's format {self.format}"


@dataclass(frozen=True, slots=True)
class RowSpan:
    """The rows whose `column` is greater than `after` (None: than nothing) and not greater than `upto`."""

    column: str
    after: str | None
    upto: str


class StoredRows(Protocol):
    """Rows that were read from a table once and for all. They stay until `close`."""

    @property
    def rows(self) -> pa.Table:
        """All of them, in order."""
        ...

    def splits(self, count: int) -> tuple[RecordSplit, ...]:
        """The first `count` of them."""
        ...

    def close(self) -> None:
        """Drop them. Idempotent."""
        ...


class SparkTables(Protocol):
    """Tables through this process's Spark session. May be used by several threads.

    Everything raises SystemUnreachable when the table's system does not answer, TableFailed when it refuses, and
    SparkUnavailable for Spark's own trouble.
    """

    def schema(self, table: SparkTable) -> pa.Schema:
        """The columns that the table has now."""
        ...

    def values(self, table: SparkTable, column: str, after: str | None, count: int) -> pa.ChunkedArray:
        """The `count` lowest values of a column above `after`, ascending, each as often as it is there. Nulls first."""
        ...

    def read(self, table: SparkTable, schema: pa.Schema, span: RowSpan | None) -> StoredRows:
        """The rows of a span, ordered by its column; all rows, in no order, where there is none."""
        ...

    def write(self, table: SparkTable, mode: WriteMode, batches: Sequence[pa.RecordBatch]) -> None:
        """Write rows as Spark's own batch writer does."""
        ...


_tables: SparkTables | None = None


def use_spark_tables(tables: SparkTables | None) -> None:
    """Called by the Spark room when this process's session starts, and with None when it ends."""
    global _tables
    _tables = tables


def spark_tables() -> SparkTables:
    """The tables of this process's session. Raises SparkUnavailable when there is none."""
    if _tables is None:
        raise SparkUnavailable(
            "kind: spark works in a process with a Spark session: start one with scribengin.spark.runtime.start"
        )
    return _tables


def _text(value: OptionValue) -> str:
    """A value as Spark's options have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
