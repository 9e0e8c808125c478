"""`spark.read.format("scribengin-log")`: logs of the log store for any Spark session, with no engine about.

    from scribengin.spark.log_format.format import register
    register(spark)
    spark.read.format("scribengin-log").option("namespace", "distributedlog-file://localhost:2181/logs") \\
        .option("log", "flights/*").load()

Where Spark runs what: options are checked when the DataFrame is made; a plan is made in a Python process beside the
driver, with a registry session of its own that ends with the plan; tasks map the log's files, which must be where they
run, and speak to nobody. What the query sees is what was visible when it was planned.

Pushed down: comparisons of `txid` (so times, where records carry them) and `segment` to entries, of `sequence_id` and
`log` to segments and logs; `channel` and `key` are looked at in the tasks. PySpark 4.3 does not say which columns a
query needs: the option `columns`, or a schema, does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import DataType, StructType

from scribengin.connectors.log.reaching import open_namespace
from scribengin.errors import ConfigInvalid
from scribengin.spark.log_format.filters import pushed
from scribengin.spark.log_format.options import FORMAT, LogReadOptions, LogWriteOptions
from scribengin.spark.log_format.plan import COLUMNS, LogPartition, LogPlanner, PartitionReader
from scribengin.spark.log_format.sink import LogBatchWriter, LogStreamWriter
from scribengin.spark.log_format.stream import LogMicroBatchReader
from scribengin.spark.session.session import activate

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Let `spark` read and write the format, and push filters down to Python sources (a setting that is off in
    PySpark). It becomes this thread's active session, where Spark looks formats up by name."""
    activate(spark)
    spark.dataSource.register(LogDataSource)
    spark.conf.set(_PUSHDOWN, "true")


class LogDataSource(DataSource):
    """The format, as Spark knows it. Its options are those of `LogReadOptions` and `LogWriteOptions`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Raises ConfigInvalid."""
        names = LogReadOptions.of(self.options).columns or tuple(COLUMNS)
        schema = StructType()
        for name in names:
            schema.add(name, _type_of(name))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = LogReadOptions.of(self.options)
        of_streams = ("max_records_per_trigger", "max_bytes_per_trigger", "fail_on_data_loss", "reader_id")
        _refuse(options, "spark.readStream", *of_streams)
        return LogBatchReader(options, checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        options = LogReadOptions.of(self.options)
        _refuse(options, "spark.read", "end")
        return LogMicroBatchReader(options, checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return LogBatchWriter.of(LogWriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802  # PySpark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return LogStreamWriter.of(LogWriteOptions.of(self.options), schema, overwrite=overwrite)


class LogBatchReader(DataSourceReader):
    """Plans a query, once."""

    def __init__(self, options: LogReadOptions, schema: StructType) -> None:
        self._options = options
        self._reading = PartitionReader(schema, options.wanted)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # PySpark's name
        """Take what is understood, and let Spark apply all of them again."""
        self._reading = PartitionReader(self._reading.schema, pushed(filters, self._reading.wanted))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Raises SourceMissing, PositionTruncated, InconsistentLog, DamagedEntry, RegistryUnreachable."""
        with open_namespace(self._options.namespace) as namespace:
            planner = LogPlanner(namespace, self._options)
            found: list[InputPartition] = []
            for log in planner.logs(self._reading.wanted):
                wanted = planner.batch_range(log, self._reading.wanted)
                if wanted is not None:
                    with closing(namespace.open_reader(log)) as reader:
                        found.extend(planner.partitions(reader, wanted))
            return found or [LogPartition("", ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition), "they are made by `partitions`"
        return self._reading.read(partition)


def checked(schema: StructType) -> StructType:
    """A schema that a user may have written himself. Raises ConfigInvalid for what no record has."""
    for field in schema.fields:
        if field.dataType != _type_of(field.name):
            raise ConfigInvalid(
                f"format '{FORMAT}': the column '{field.name}' is {_type_of(field.name).simpleString()}, "
                f"not {field.dataType.simpleString()}; read it so, and cast it"
            )
    return schema


def _type_of(column: str) -> DataType:
    if column not in COLUMNS:
        raise ConfigInvalid(f"format '{FORMAT}' has no column '{column}'; there are: {', '.join(COLUMNS)}")
    return COLUMNS[column]


def _refuse(options: LogReadOptions, other: str, *fields: str) -> None:
    for option in options.given(*fields):
        raise ConfigInvalid(f"option '{option}' of format '{FORMAT}' is for {other}; leave it out here")
