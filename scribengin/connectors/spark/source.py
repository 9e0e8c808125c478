"""A Spark format as a source: a table that is read once, or one that grows, by a column whose values only increase.

What a round reads is stored in this process before the round runs: Spark's tables promise no order, and may answer
otherwise the next time, while a range must read the same records whenever it is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pydantic import Field

from scribengin.base.clock import Clock
from scribengin.base.model import Position
from scribengin.connectors.contract import (
    RECORD_BYTES_MAX,
    Endpoint,
    PlannedRange,
    RecordSplit,
    RoundLimits,
    Source,
    SourceConfig,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.spark.contract import NOUN, OptionValue, RowSpan, SparkTable, StoredRows, spark_tables
from scribengin.errors import ConfigInvalid, DataflowError

STREAM = "0"
_LOOK_AHEAD_RECORDS = 1_000_000
"""How many values of the increasing column are fetched at once: many rounds are planned from one look."""


class SparkSourceConfig(SourceConfig):
    """A table of whatever Spark reads, with `spark.conf` naming the packages that it takes. One stream.

    Without `increasing` the table is read once, whole, in one round, whatever the round's limits: there is no place in
    it from which to go on. With it the table is read as it grows. A row that appears later with a smaller value than
    was read already is not seen: the column must be one that grows with every row, in the order in which rows become
    visible.
    """

    kind: Literal["spark"]
    """A table of any format that Spark reads."""
    spark_format: str = Field(min_length=1)
    """As in `spark.read.format(...)`: jdbc, parquet, delta, org.elasticsearch.spark.sql, ..."""
    options: dict[str, OptionValue] = {}
    """Passed through, as in `spark.read.options(...)`."""
    increasing: str | None = Field(default=None, min_length=1)
    """A column of whole numbers, decimals, dates or timestamps, never null."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1)
    """A row that takes more in memory is a bad record."""
    poll_s: float = Field(default=5.0, gt=0)
    """How long after a look that found nothing new the table is looked at again."""

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN)


@dataclass(frozen=True, slots=True)
class TableSplit:
    """Rows of a table. `first` of them come before these in what a round reads."""

    rows: RecordSplit
    table: str
    column: str | None
    first: int

    @property
    def records(self) -> int:
        return self.rows.records

    @property
    def size_bytes(self) -> int:
        return self.rows.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.rows.read()

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """The value of the column that increases; else what a table without an order has: as how manyth it came."""
        if self.column is None:
            return [f"{self.table}, row {self.first + index + 1} of those read" for index in indices]
        return [f"{self.table}, {self.column} = {position_text(value)}" for value in rows.column(self.column)]


def _splits(rows: StoredRows, count: int, table: SparkTable, column: str | None = None) -> tuple[TableSplit, ...]:
    """The first `count` of the rows."""
    splits = rows.splits(count)
    firsts = accumulate((split.records for split in splits), initial=0)
    return tuple(TableSplit(split, str(table), column, first) for split, first in zip(splits, firsts, strict=False))


class SparkSource(Source):
    """One table, as one stream."""

    def __init__(self, name: str, config: SparkSourceConfig, clock: Clock) -> None:
        self._name = name
        self._config = config
        self._clock = clock
        self._table = SparkTable.of(config.spark_format, config.options)
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = spark_tables().schema(self._table)
            self._check(self._schema)
        return self._schema

    @property
    def record_bytes_max(self) -> int | None:
        return self._config.record_bytes_max

    def streams(self) -> list[SourceStreamDescriptor]:
        return [SourceStreamDescriptor(source=self._name, name=STREAM)]

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        if self._config.increasing is None:
            return WholeTableReader(self._name, self._table, self.schema)
        return GrowingTableReader(self._name, self._table, self.schema, self._config, self._clock)

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        if at.kind != "earliest":
            return super().position_at(stream, at, before)
        column = self._config.increasing
        return {"read": False} if column is None else {"increasing": column, "last": None}

    def close(self) -> None:
        """Nothing is held: what was planned stays readable as long as the session."""

    def _check(self, schema: pa.Schema) -> None:
        column = self._config.increasing
        if column is None:
            return
        if column not in schema.names:
            raise ConfigInvalid(
                f"source '{self._name}': the table has no column '{column}' (it has {', '.join(schema.names)}): "
                "correct `increasing`"
            )
        kind = schema.field(column).type
        if not (kinds.is_integer(kind) or kinds.is_decimal(kind) or kinds.is_date(kind) or kinds.is_timestamp(kind)):
            raise ConfigInvalid(
                f"source '{self._name}': the column '{column}' is {kind}, and systems do not agree on an order of "
                "those: let `increasing` name one of whole numbers, decimals, dates or timestamps"
            )


class WholeTableReader(SourceStreamReader):
    """Reads a table once. A position is {"read": false} or {"read": true}."""

    def __init__(self, name: str, table: SparkTable, schema: pa.Schema) -> None:
        self._what = f"source '{name}'"
        self._table = table
        self._schema = schema
        self._stored: StoredRows | None = None
        self._closed = threading.Event()

    def initial_position(self) -> Position:
        return {"read": False}

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        if self.ended(position):
            return None
        rows = self._rows()
        splits = _splits(rows, rows.rows.num_rows, self._table)
        return PlannedRange(position, {"read": True}, rows.rows.num_rows, splits) if splits else None

    def wait(self, position: Position, timeout_s: float) -> bool:
        if self.lag(position):
            return True
        self._closed.wait(timeout_s)
        return False

    def lag(self, position: Position) -> int:
        return 0 if self._read(position) else self._rows().rows.num_rows

    def ended(self, position: Position) -> bool:
        return self._read(position) or not self._rows().rows.num_rows

    def close(self) -> None:
        self._closed.set()

    def _forget(self) -> None:
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def _rows(self) -> StoredRows:
        if self._stored is None:
            self._stored = spark_tables().read(self._table, self._schema, None)
        return self._stored

    def _read(self, position: Position) -> bool:
        read = position.get("read")
        if not isinstance(read, bool) or len(position) != 1:
            raise _no_position(self._what, position)
        if read:
            self._forget()
        return read


class GrowingTableReader(SourceStreamReader):
    """Reads the rows of a table by a column that increases. A position is {"increasing": "id", "last": "123"}."""

    def __init__(
        self, name: str, table: SparkTable, schema: pa.Schema, config: SparkSourceConfig, clock: Clock
    ) -> None:
        assert config.increasing is not None
        self._what = f"source '{name}'"
        self._table = table
        self._schema = schema
        self._column = config.increasing
        self._poll_s = config.poll_s
        self._clock = clock
        self._closed = threading.Event()
        self._ahead_of: str | None = None
        self._ahead: pa.ChunkedArray | None = None
        self._planned: pa.Scalar | None = None
        self._looked_s = 0.0
        self._stored: StoredRows | None = None
        self._span: RowSpan | None = None

    def initial_position(self) -> Position:
        return {"increasing": self._column, "last": None}

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        last = self._last(position)
        values = self._values(last)
        if not len(values):
            return None
        upto = values[min(limits.records_max, len(values)) - 1]
        rows = self._rows(RowSpan(self._column, last, position_text(upto)))
        count = self._within(rows.rows, limits)
        if not count:
            self._ahead = None  # the rows that were counted have been deleted meanwhile
            return None
        self._planned = rows.rows.column(self._column)[count - 1]
        end = {**position, "last": position_text(self._planned)}
        return PlannedRange(position, end, count, _splits(rows, count, self._table, self._column))

    def wait(self, position: Position, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while not self.lag(position):
            now_s = self._clock.monotonic_s()
            pause_s = min(deadline_s, self._looked_s + self._poll_s) - now_s
            if now_s >= deadline_s or self._closed.wait(max(pause_s, 0.0)):
                return False
        return True

    def lag(self, position: Position) -> int:
        """Exact up to a million rows; of what is beyond them, nothing is known."""
        return len(self._values(self._last(position)))

    def ended(self, position: Position) -> bool:
        return False

    def close(self) -> None:
        self._closed.set()

    def _forget(self) -> None:
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def _values(self, last: str | None) -> pa.ChunkedArray:
        """The values after `last`, as of the last look; a new look when there are none and it is time for one."""
        if self._ahead is not None and self._ahead_of != last:
            self._ahead = self._beyond(self._ahead, last)
        self._ahead_of = last
        now_s = self._clock.monotonic_s()
        if self._ahead is None or (not len(self._ahead) and now_s - self._looked_s >= self._poll_s):
            self._ahead = spark_tables().values(self._table, self._column, last, _LOOK_AHEAD_RECORDS)
            self._looked_s = now_s
            self._refuse_nulls(self._ahead)
        return self._ahead

    def _beyond(self, values: pa.ChunkedArray, last: str | None) -> pa.ChunkedArray | None:
        """What is left of a look after the range that was planned from it; None when another look is due."""
        if self._planned is None or position_text(self._planned) != last:
            return None
        left = values.filter(pc.greater(values, self._planned))
        return left if len(left) else None

    def _refuse_nulls(self, values: pa.ChunkedArray) -> None:
        if values.null_count:
            raise DataflowError(
                f"{self._what}: the column '{self._column}' is null in some rows, which would never be read: give them "
                "a value, or let `increasing` name another column"
            )

    def _rows(self, span: RowSpan) -> StoredRows:
        if self._stored is None or self._span != span:
            self._forget()
            self._stored = spark_tables().read(self._table, self._schema, span)
            self._span = span
        return self._stored

    def _within(self, rows: pa.Table, limits: RoundLimits) -> int:
        """How many rows a round takes: what its limits allow, and those of the same value as the last of them."""
        share = 1.0 if rows.nbytes <= limits.bytes_max else limits.bytes_max / rows.nbytes
        allowed: int = min(max(int(rows.num_rows * share), 1), limits.records_max, rows.num_rows)
        if allowed == rows.num_rows:
            return allowed
        values = rows.column(self._column)
        return int(pc.sum(pc.less_equal(values, values[allowed - 1])).as_py())

    def _last(self, position: Position) -> str | None:
        last = position.get("last")
        if set(position) != {"increasing", "last"} or not isinstance(last, str | None):
            raise _no_position(self._what, position)
        if position["increasing"] != self._column:
            raise DataflowError(
                f"{self._what} has been read by its column '{position['increasing']}', and is now to be read by "
                f"'{self._column}': set `increasing` back, or delete the dataflow and submit it again"
            )
        return last


def position_text(value: pa.Scalar) -> str:
    """A value of an increasing column as it stands in positions, and as Spark casts it back without loss."""
    plain = value.as_py()
    if isinstance(plain, datetime):
        aware = plain if plain.tzinfo is None else plain.astimezone(UTC)
        return aware.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    if isinstance(plain, date):
        return plain.isoformat()
    return f"{plain:f}" if isinstance(plain, Decimal) else str(plain)


def _no_position(what: str, position: Position) -> DataflowError:
    return DataflowError(
        f"{what}: {str(position)[:200]} is no position of its kind (was `increasing` changed?): restore the stream's "
        "commit log, or delete the dataflow and submit it again"
    )
