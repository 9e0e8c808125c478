"""How records get into Spark: one data source whose records are chosen again for every round.

A DataFrame made once is executed many times, which spares each round Spark's planning (some 20 ms) and keeps broadcast
tables. The partitions of such a DataFrame are fixed; what they read is not: before each round the driver *binds* every
input to splits, in files of its directory, and Spark's Python workers look there when the job runs.

Executors on other machines see no files of the driver's. For them a DataFrame is made for every round, and what its
partitions read is part of the plan that they are sent (`embedded`).

    driver                                         Python worker
    InputBinding.bind(splits) -> <n>.splits        RoundReader.read(partition n): unpickles <n>.splits, reads them
    InputBinding.unbind()                          a read outside of a round raises: there is nothing to read

A split that cannot be read raises SplitUnreadable, by whose name the driver can tell trouble with reading, which says
nothing about the records, from an exception of the user's code; to Spark they are the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from scribengin.errors import ConfigInvalid
from scribengin.spark.arrow_files import conform
from scribengin.spark.worker_errors import SplitUnreadable

if TYPE_CHECKING:  # Spark's Python workers import this module, and shall not import every connector
    from scribengin.connectors.contract import RecordSplit

FORMAT = "scribengin_round"
WATERMARK = "scribengin watermark"
"""Beside the columns of a source whose late records go to a sink: the watermark when a record's batch was planned."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""What goes to the JVM at once: enough to forget the cost of a batch, little enough for its memory."""
UNBOUND = (
    "the transformation ran a job over an input while it was being built (count, collect, isEmpty, show ...): "
    "it must only describe what becomes of the records; they are not there yet"
)


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}
"""Types that Spark lacks, and those that hold every value of theirs."""


@dataclass(frozen=True, slots=True)
class ArrowFileSplit:
    """The first `records` rows of the batches [first, end) of an Arrow file of the driver's: so tables in hand travel
    the same way as the rest."""

    path: str
    first: int
    end: int
    records: int
    size_bytes: int

    def read(self) -> Iterator[pa.RecordBatch]:
        left = self.records
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as reader:
            for index in range(self.first, self.end):
                batch = reader.get_batch(index).slice(0, left)
                left -= batch.num_rows
                yield batch


@dataclass(frozen=True, slots=True)
class SparkTableSplit:
    """Rows that travel with the split, as an Arrow stream: for workers that do not see the driver's files."""

    stream: bytes
    records: int
    size_bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> SparkTableSplit:
        """Of some rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return cls(sink.getvalue().to_pybytes(), table.num_rows, table.nbytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self.stream) as reader:
            yield from reader


def carried(splits: Sequence[RecordSplit], schema: pa.Schema) -> list[SparkTableSplit]:
    """The same records, read here, for whoever does not see where they lie. Raises what reading a split raises."""
    return [SparkTableSplit.of(pa.Table.from_batches(list(split.read()), schema)) for split in splits]


@dataclass(frozen=True, slots=True)
class InputBinding:
    """One input of one DataFrame: the directory that its partitions look into. Used by one thread at a time."""

    directory: Path
    partitions: int
    embedded: bool = False
    """Whether what is bound counts for DataFrames that are made later, and only for them."""

    def bind(self, splits: Sequence[RecordSplit]) -> None:
        """Let the next job read `splits`, in order: partition k reads the k-th of `partitions` runs."""
        for index, share in enumerate(shares(splits, self.partitions)):
            self._splits(index).write_bytes(pickle.dumps(share, protocol=pickle.HIGHEST_PROTOCOL))

    def unbind(self) -> None:
        """There is nothing to read any more."""
        for index in range(self.partitions):
            self._splits(index).unlink(missing_ok=True)

    def write(self, table: pa.Table) -> Sequence[RecordSplit]:
        """Put records in hand where workers can read them, until the next call."""
        rows = max(-(-table.num_rows // self.partitions), 1)
        if self.embedded:
            return [SparkTableSplit.of(table.slice(first, rows)) for first in range(0, table.num_rows, rows)]
        path = self.directory / "table.arrow"
        path.unlink(missing_ok=True)  # a task of a failed job may still read the old file: never write into that
        batches = table.to_batches(max_chunksize=rows)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return [ArrowFileSplit(str(path), n, n + 1, batch.num_rows, batch.nbytes) for n, batch in enumerate(batches)]

    def _splits(self, index: int) -> Path:
        return splits_file(self.directory, index)


def splits_file(directory: Path, index: int) -> Path:
    """Where the `index`-th partition finds what it is bound to."""
    return directory / f"{index}.splits"


def shares(splits: Sequence[RecordSplit], count: int) -> list[list[RecordSplit]]:
    """`splits` in `count` runs, in order, of about equal size: a split goes where its middle falls."""
    total = sum(split.size_bytes for split in splits) or 1
    result: list[list[RecordSplit]] = [[] for _ in range(count)]
    before = 0
    for split in splits:
        middle = before + split.size_bytes / 2
        result[min(int(middle * count / total), count - 1)].append(split)
        before += split.size_bytes
    return result


class RoundSource(DataSource):
    """`spark.read.format(FORMAT).schema(...).options(directory=..., partitions=n, embedded=...).load()`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        embedded = self.options["embedded"] == "true"
        return RoundReader(Path(self.options["directory"]), int(self.options["partitions"]), schema, embedded=embedded)


@dataclass(frozen=True, slots=True)
class RoundPartition(InputPartition):
    """The `index`-th share of an input, and what it reads, if that is known already."""

    index: int
    splits: bytes | None = None


class RoundReader(DataSourceReader):
    """Lives in Spark's Python workers; `partitions` is called beside the driver."""

    def __init__(self, directory: Path, partitions: int, schema: StructType, *, embedded: bool) -> None:
        self._directory = directory
        self._partitions = partitions
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._embedded = embedded

    def partitions(self) -> Sequence[InputPartition]:
        return [RoundPartition(n, self._bound(n) if self._embedded else None) for n in range(self._partitions)]

    def _bound(self, index: int) -> bytes | None:
        try:
            return splits_file(self._directory, index).read_bytes()
        except FileNotFoundError:
            return None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share = cast(RoundPartition, partition)
        bound = share.splits if self._embedded else self._bound(share.index)
        if bound is None:
            raise RuntimeError(UNBOUND)
        splits = pickle.loads(bound)
        try:
            for split in splits:
                for batch in split.read():
                    yield from pieces(conform(batch, self._schema))
        except Exception as error:
            raise SplitUnreadable(f"{type(error).__name__}: {error}") from error


def spark_schema(schema: pa.Schema, source: str) -> StructType:
    """What Spark calls the columns of a source. Raises ConfigInvalid for a type that Spark has nothing for."""
    fields = []
    for field in schema:
        kind = _WIDER.get(field.type, field.type)
        try:
            fields += from_arrow_schema(pa.schema([pa.field(field.name, kind)])).fields
        except PySparkTypeError as error:
            raise ConfigInvalid(
                f"source '{source}': Spark has no type for its column '{field.name}', {field.type}: cast or drop it "
                "where it is written"
            ) from error
    return StructType(fields)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of about BATCH_BYTES_MAX."""
    rows = max(batch.num_rows * BATCH_BYTES_MAX // max(batch.nbytes, 1), 1)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
