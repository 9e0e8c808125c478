"""Tables of any Spark format, for the connector of `kind: spark`: read into Arrow files of the driver, and written."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema

from scribengin.connectors.contract import RecordSplit
from scribengin.connectors.spark.contract import RowSpan, SparkTable, WriteMode
from scribengin.errors import SparkUnavailable, SystemUnreachable, TableFailed
from scribengin.spark.arrow_files import arrow_files, conform, mapped
from scribengin.spark.session.failures import SPARK_ERRORS, failure, java_kinds, one_line
from scribengin.spark.session.session import session_beside
from scribengin.spark.transform.encoding import quoted
from scribengin.spark.transform.input import ArrowFileSplit, SparkTableSplit
from scribengin_registry.references import resolved_all

_SPLIT_BYTES = 8 * 1024 * 1024
# By what drivers call their exceptions: this is the system's absence, and not what it says about the table.
_ABSENT = re.compile(r"Connect|Timeout|UnknownHost|SocketException|Communications|Transient|Recoverable|NoNode|NoRoute")


class SessionTables:
    """`scribengin.connectors.spark.contract.SparkTables` of one session. May be used by several threads."""

    def __init__(self, session: SparkSession, directory: Path, *, files_are_shared: bool) -> None:
        """Files go below `directory`. `files_are_shared`: this session's executors see them as this process does."""
        self._session = session_beside(session)
        self._directory = directory
        self._files_are_shared = files_are_shared

    def schema(self, table: SparkTable) -> pa.Schema:
        with _told(f"{table}: its columns cannot be read"):
            schema = to_arrow_schema(self._load(table).schema, timezone="UTC")
        return pa.schema([pa.field(field.name, field.type) for field in schema])

    def values(self, table: SparkTable, column: str, after: str | None, count: int) -> pa.ChunkedArray:
        with _told(f"{table}: the column '{column}' cannot be read"):
            frame = self._load(table)
            found = F.col(quoted(column))
            above = found.isNull() | _above(frame, column, after)
            only = frame.select(found).where(above).orderBy(found.asc_nulls_first()).limit(count)
            return only.toArrow().column(0)

    def read(self, table: SparkTable, schema: pa.Schema, span: RowSpan | None) -> StoredTable:
        with _told(f"{table}: it cannot be read"):
            frame = self._load(table)
            if span is not None:
                column = F.col(quoted(span.column))
                last = F.lit(span.upto).cast(frame.schema[span.column].dataType)
                rows = frame.where(_above(frame, span.column, span.after) & (column <= last))
                frame = rows.coalesce(1).sortWithinPartitions(column)
            frame = frame.select(*(quoted(name) for name in schema.names))
            if not self._files_are_shared:
                collected = frame.toArrow()
                return StoredTable(pa.Table.from_batches([conform(b, schema) for b in collected.to_batches()], schema))
            directory = Path(tempfile.mkdtemp(dir=self._directory, prefix="table-"))
            paths = [Path(row["path"]) for row in arrow_files(frame, directory, schema).collect()]
            return StoredTable.of_files(paths, directory, schema)

    def write(self, table: SparkTable, mode: WriteMode, batches: Sequence[pa.RecordBatch]) -> None:
        with _told(f"{table}: it cannot be written"):
            frame = self._session.createDataFrame(pa.Table.from_batches(list(batches)))
            frame.write.format(table.format).options(**resolved_all(dict(table.options))).mode(mode).save()

    def _load(self, table: SparkTable) -> DataFrame:
        return self._session.read.format(table.format).options(**resolved_all(dict(table.options))).load()


@dataclass(frozen=True, slots=True)
class StoredTable:
    """`scribengin.connectors.spark.contract.StoredRows`: in Arrow files of `directory`, or in memory without one."""

    rows: pa.Table
    paths: tuple[Path, ...] = ()
    directory: Path | None = None

    @classmethod
    def of_files(cls, paths: Sequence[Path], directory: Path, schema: pa.Schema) -> StoredTable:
        """Of files that Spark has written, in order."""
        batches = [batch for path in paths for batch in mapped(path)]
        return cls(pa.Table.from_batches(batches, schema), tuple(paths), directory)

    def splits(self, count: int) -> tuple[RecordSplit, ...]:
        """The first `count` rows, in pieces of about the same size."""
        if self.directory is None:
            return tuple(SparkTableSplit.of(piece) for piece in _pieces(self.rows.slice(0, count)))
        return tuple(_file_splits(self.paths, count))

    def close(self) -> None:
        """Delete the files; who has them mapped keeps them. Idempotent."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    rows = max(table.num_rows * _SPLIT_BYTES // max(table.nbytes, 1), 1)
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


def _file_splits(paths: Sequence[Path], count: int) -> Iterator[ArrowFileSplit]:
    """Runs of batches of about _SPLIT_BYTES each; the last one is cut where `count` ends."""
    left = count
    for path in paths:
        batches = mapped(path)
        first = rows = size = 0
        for index, batch in enumerate(batches):
            taken = min(batch.num_rows, left)
            rows, size, left = rows + taken, size + batch.nbytes, left - taken
            if rows and (size >= _SPLIT_BYTES or not left or index == len(batches) - 1):
                yield ArrowFileSplit(str(path), first, index + 1, rows, size)
                first, rows, size = index + 1, 0, 0
            if not left:
                return


def _above(frame: DataFrame, column: str, after: str | None) -> Column:
    if after is None:
        return F.col(quoted(column)).isNotNull()
    return F.col(quoted(column)) > F.lit(after).cast(frame.schema[column].dataType)


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """What Spark raises in the block, as the connector's contract has it."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise _engine_error(error, doing) from error


def _engine_error(error: Any, doing: str) -> SparkUnavailable | SystemUnreachable | TableFailed:
    resolved = failure(error, doing)
    kinds = java_kinds(error)
    if not isinstance(error, PySparkException | Py4JJavaError) or any("OutOfMemory" in kind for kind in kinds):
        assert isinstance(resolved, SparkUnavailable)
        return resolved
    said = f"{doing}: {one_line(error)}"
    if any(_ABSENT.search(kind) for kind in kinds):
        return SystemUnreachable(f"{said}; a task tries again until its system answers")
    return TableFailed(f"{said}; correct the dataflow's `options` or the table")
