"""A Spark format as a sink: at least once.

Spark's batch writers make rows visible as they write them, and know nothing of our rounds. So a round's rows are
written before the round's transaction: a crash between the two, or a transaction that fails, writes them again. They
are never lost. How much a failed write has left is up to the format: JDBC commits partition by partition, files appear
as a whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import Field

from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import (
    Attempt,
    Endpoint,
    Guarantee,
    Sink,
    SinkConfig,
    SinkStreamDescriptor,
    SinkStreamWriter,
)
from scribengin.connectors.spark.contract import NOUN, OptionValue, SparkTable, WriteMode, spark_tables

KIND = "spark"
_NAMING = ("url", "path", "dbtable", "catalog", "database", "keyspace", "table", "collection", "topic", "resource")
"""Last parts of options that say, in the formats there are, what is written (also `es.resource`, `hbase.table`)."""
_AFTER_ADDRESS = re.compile(r"[?;].*$", re.DOTALL)
_USER = re.compile(r"//[^/@]*@")


class SparkSinkConfig(SinkConfig):
    """A table of whatever Spark writes, with `spark.conf` naming the packages that it takes. At least once."""

    kind: Literal["spark"]
    """A table of any format that Spark writes."""
    format: Literal["columns"] = "columns"  # type: ignore[assignment]  # tables have columns, not payloads
    """The output's columns reach the table as they are. There is no other choice."""
    spark_format: str = Field(min_length=1)
    """As in `df.write.format(...)`: jdbc, parquet, delta, org.elasticsearch.spark.sql, ..."""
    options: dict[str, OptionValue] = {}
    """Passed through, as in `df.write.options(...)`."""
    mode: WriteMode = "append"
    """`overwrite`: every round replaces what the one before has written."""
    resource: str | None = Field(default=None, min_length=1)
    """A name of the table for locks. Default: made of the options that say where it is."""

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN)


class SparkSink(Sink):
    """One table. Every stream writes to the same one: a stream is a writer, not a part of the table."""

    def __init__(self, name: str, config: SparkSinkConfig) -> None:
        self._name = name
        self._config = config
        self._table = SparkTable.of(config.spark_format, config.options)

    @property
    def resource(self) -> str:
        return f"spark:{self._config.spark_format}:{self._config.resource or _place(self._table)}"

    @property
    def side_columns(self) -> pa.Schema:
        return pa.schema([])

    @property
    def guarantee(self) -> Guarantee:
        return "at least once"

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        """Spark's writers create what is missing, where the format can."""

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        return SparkSinkWriter(self._table, self._config.mode)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        """The table's rows, whichever stream wrote them, as the columns it has."""
        tables = spark_tables()
        stored = tables.read(self._table, tables.schema(self._table), None)
        try:
            yield from stored.rows.to_batches()
        finally:
            stored.close()

    def close(self) -> None:
        """Nothing is held."""


class SparkSinkWriter(SinkStreamWriter):
    """Keeps a round's rows until they are written as a whole."""

    def __init__(self, table: SparkTable, mode: WriteMode) -> None:
        self._table = table
        self._mode = mode
        self._staged: list[pa.RecordBatch] = []

    def recover(self, committed: CommitDescriptor | None) -> None:
        self._staged = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._staged.append(batch)

    def prepare_commit(self) -> CommitDescriptor | None:
        if not self._staged:
            return None
        with failpoint("spark.table_write"):
            spark_tables().write(self._table, self._mode, self._staged)
        records = sum(batch.num_rows for batch in self._staged)
        self._staged = []
        return CommitDescriptor(kind=KIND, records=records, data={})

    def complete_commit(self, committed: CommitDescriptor) -> None:
        """What was written is visible already."""

    def rollback(self) -> None:
        self._staged = []

    def close(self) -> None:
        self._staged = []


def _place(table: SparkTable) -> str:
    """Where the table is, as its options say it, without what may be a user's name or a password.

    Options of a format that is not known here are told apart by a hash, which nobody reads a password from.
    """
    naming = [(key, value) for key, value in table.options if key.lower().rpartition(".")[2] in _NAMING]
    if naming:
        return " ".join(f"{key}={_USER.sub('//', _AFTER_ADDRESS.sub('', value))}" for key, value in sorted(naming))
    return hashlib.sha256(repr(sorted(table.options)).encode()).hexdigest()[:16]
