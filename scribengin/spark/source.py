"""How records get into Spark: one data source whose records are chosen again for every round.

A DataFrame made once is executed many times, which spares each round Spark's planning (some 20 ms) and keeps broadcast
tables. The partitions of such a DataFrame are fixed; what they read is not: before each round the driver *binds* every
input to splits, in files of its directory, and Spark's Python workers look there when the job runs.

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
from typing import Protocol, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

FORMAT = "scribengin_round"
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""What goes to the JVM at once: enough to forget the cost of a batch, little enough for its memory."""
UNBOUND = (
    "the transformation ran a job over an input while it was being built (count, collect, isEmpty, show ...): "
    "it must only describe what becomes of the records; they are not there yet"
)


class SplitUnreadable(Exception):
    """Raised in a Python worker only; the driver reads the split again to have the error itself."""


class ReadSplit(Protocol):
    """A picklable piece of a planned range, as connectors make them."""

    @property
    def records(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records of the split, in order."""
        ...


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Batches [first, end) of an Arrow file of the driver's: so tables in hand travel the same way as the rest."""

    path: str
    first: int
    end: int
    records: int
    size_bytes: int

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as reader:
            for index in range(self.first, self.end):
                yield reader.get_batch(index)


@dataclass(frozen=True, slots=True)
class InputBinding:
    """One input of one DataFrame: the directory that its partitions look into. Used by one thread at a time."""

    directory: Path
    partitions: int

    def bind(self, splits: Sequence[ReadSplit]) -> None:
        """Let the next job read `splits`, in order: partition k reads the k-th of `partitions` runs."""
        for index, share in enumerate(shares(splits, self.partitions)):
            self._splits(index).write_bytes(pickle.dumps(share, protocol=pickle.HIGHEST_PROTOCOL))

    def unbind(self) -> None:
        """There is nothing to read any more."""
        for index in range(self.partitions):
            self._splits(index).unlink(missing_ok=True)

    def write(self, table: pa.Table) -> list[FileSplit]:
        """Put records in hand where workers can read them, until the next call."""
        path = self.directory / "table.arrow"
        path.unlink(missing_ok=True)  # a task of a failed job may still read the old file: never write into that
        batches = table.to_batches(max_chunksize=max(-(-table.num_rows // self.partitions), 1))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return [FileSplit(str(path), n, n + 1, batch.num_rows, batch.nbytes) for n, batch in enumerate(batches)]

    def _splits(self, index: int) -> Path:
        return self.directory / f"{index}.splits"


def shares(splits: Sequence[ReadSplit], count: int) -> list[list[ReadSplit]]:
    """`splits` in `count` runs, in order, of about equal size: a split goes where its middle falls."""
    total = sum(split.size_bytes for split in splits) or 1
    result: list[list[ReadSplit]] = [[] for _ in range(count)]
    before = 0
    for split in splits:
        middle = before + split.size_bytes / 2
        result[min(int(middle * count / total), count - 1)].append(split)
        before += split.size_bytes
    return result


class RoundSource(DataSource):
    """`spark.read.format(FORMAT).schema(...).option("directory", ...).option("partitions", n).load()`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return RoundReader(Path(self.options["directory"]), int(self.options["partitions"]), schema)


@dataclass(frozen=True, slots=True)
class RoundPartition(InputPartition):
    """The `index`-th share of an input."""

    index: int


class RoundReader(DataSourceReader):
    """Lives in Spark's Python workers."""

    def __init__(self, directory: Path, partitions: int, schema: StructType) -> None:
        self._directory = directory
        self._partitions = partitions
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        return [RoundPartition(index) for index in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        index = cast(RoundPartition, partition).index
        try:
            splits = pickle.loads((self._directory / f"{index}.splits").read_bytes())
        except FileNotFoundError:
            raise RuntimeError(UNBOUND) from None
        try:
            for split in splits:
                for batch in split.read():
                    yield from pieces(conform(batch, self._schema))
        except Exception as error:
            raise SplitUnreadable(f"{type(error).__name__}: {error}") from error


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns and types that Spark expects: the source's schema, up to Arrow's variants of a type."""
    columns = [batch.column(field.name) for field in schema]
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of about BATCH_BYTES_MAX."""
    rows = max(batch.num_rows * BATCH_BYTES_MAX // max(batch.nbytes, 1), 1)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
