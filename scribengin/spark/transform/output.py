"""How records get out of Spark: Arrow batches, through the JVM when they are few, through files when they are many.

Collected by Spark, a round's output stands in the JVM's heap once or twice, and one thread copies it through a socket.
So the workers of a large round write it to files, side by side, and the driver maps them: it is never copied, and takes
page cache instead of heap. Few records are faster without the second Python worker that this needs.

Several outputs are made by one job, as one DataFrame, with one current_timestamp.

Outputs may have other columns than each other. The unioned frame has one column for each name and type there is, so
that outputs of payloads share theirs, and rows hold nulls in the columns of others. MARK says whose a row is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType
from pyspark.util import _load_from_socket

from scribengin.spark.arrow_files import arrow_files, conform, mapped
from scribengin.spark.transform.encoding import quoted
from scribengin.spark.transform.spec import OutputSpec

MARK = "scribengin output"
"""In a job of several outputs: the index of the output that a row belongs to."""
_Column = tuple[str, str]
"""What tells columns of the unioned frame apart: a name, and a Spark type as JSON."""


class OutputCollector(Protocol):
    """Executes one DataFrame, again and again, and returns its rows in order."""

    def execute(self) -> list[pa.RecordBatch]:
        """Raises what Spark raises, and leaves nothing behind."""
        ...


class MemoryCollector:
    """Through the JVM, for few records."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def execute(self) -> list[pa.RecordBatch]:
        """What `DataFrame.toArrow` does, without what that asks the JVM for each time: settings, the frame's schema,
        and a place in Python to show beside the job. It was a fifth of a small round."""
        port, secret, server = self._frame._jdf.collectAsArrowToPython()
        try:
            with _load_from_socket((port, secret), ArrowCollectSerializer()) as batches:
                return [batch for batch in batches if batch.num_rows]
        finally:
            with unwrap_spark_exception():
                server.getResult()  # of a job that failed, its error


class FileCollector:
    """Through files in `directory`, for many. Used by one thread at a time."""

    def __init__(self, frame: DataFrame, directory: Path) -> None:
        self._directory = directory
        self._paths = arrow_files(frame, directory)

    def execute(self) -> list[pa.RecordBatch]:
        return collected(self._paths, self._directory)


def collected(paths: DataFrame, directory: Path) -> list[pa.RecordBatch]:
    """Execute what `arrow_files` has made for `directory`, and return the rows in order. Leaves no file there."""
    try:
        return [batch for row in paths.collect() for batch in mapped(Path(row["path"]))]
    finally:
        # Also what tasks of a failed job left; one that still writes keeps its file, without a name.
        for left in directory.iterdir():
            left.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class UnitedOutput:
    """One output of a unioned frame: its columns as its sink takes them, and where they stand there."""

    name: str
    schema: pa.Schema
    indices: tuple[int, ...]

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The output's columns of rows that are all its own."""
        columns = [rows.column(index) for index in self.indices]
        return conform(pa.RecordBatch.from_arrays(columns, names=self.schema.names), self.schema)


@dataclass(frozen=True, slots=True)
class UnionedOutputs:
    """What a job executes, and how its rows are told apart."""

    frame: DataFrame
    outputs: tuple[UnitedOutput, ...]


def unite(frames: Mapping[str, DataFrame], specs: Mapping[str, OutputSpec]) -> UnionedOutputs:
    """The encoded `frames`, by output, as one. `specs` says in which types the columns go to the sinks."""
    if len(frames) == 1:
        [(name, frame)] = frames.items()
        indices = tuple(range(len(frame.columns)))
        return UnionedOutputs(frame, (UnitedOutput(name, _arrow_schema(frame, specs[name]), indices),))
    kinds: dict[_Column, DataType] = {
        key: field.dataType for frame in frames.values() for key, field in zip(_keys(frame), frame.schema, strict=True)
    }
    place = {key: index for index, key in enumerate(kinds)}
    unioned: DataFrame | None = None
    outputs = []
    for mark, (name, frame) in enumerate(frames.items()):
        marked = _marked(frame, kinds, mark)
        unioned = marked if unioned is None else unioned.union(marked)
        indices = tuple(place[key] for key in _keys(frame))
        outputs.append(UnitedOutput(name, _arrow_schema(frame, specs[name]), indices))
    assert unioned is not None, "a transformation has an output"
    return UnionedOutputs(unioned, tuple(outputs))


def outputs_of(batches: Iterable[pa.RecordBatch], outputs: tuple[UnitedOutput, ...]) -> dict[str, list[pa.RecordBatch]]:
    """The batches of a job of a unioned frame, by output."""
    result: dict[str, list[pa.RecordBatch]] = {output.name: [] for output in outputs}
    for batch in batches:
        for output, rows in _by_mark(batch, outputs):
            result[output.name].append(output.batch(rows))
    return result


def _by_mark(batch: pa.RecordBatch, outputs: tuple[UnitedOutput, ...]) -> Iterator[tuple[UnitedOutput, pa.RecordBatch]]:
    """The rows of each output in a batch; most hold those of one only."""
    if len(outputs) == 1:
        yield outputs[0], batch
        return
    marks = batch.column(MARK)
    present = marks.unique().to_pylist()
    for mark in present:
        yield outputs[mark], batch if len(present) == 1 else batch.filter(pc.equal(marks, mark))


def _keys(frame: DataFrame) -> list[_Column]:
    return [(field.name, field.dataType.json()) for field in frame.schema]


def _marked(frame: DataFrame, kinds: Mapping[_Column, DataType], mark: int) -> DataFrame:
    """`frame` with every column of the union, under names of the union's own, which no name of a user's can meet."""
    own = {key: F.col(quoted(key[0])) for key in _keys(frame)}
    columns = [
        own.get(key, F.lit(None).cast(kind)).alias(str(place)) for place, (key, kind) in enumerate(kinds.items())
    ]
    return frame.select(*columns, F.lit(mark).alias(MARK))


def _arrow_schema(frame: DataFrame, spec: OutputSpec) -> pa.Schema:
    """What the sink gets: what it carries in the types that it asked for, and the rest as Spark has it."""
    side_columns = {} if spec.format == "columns" else {field.name: field.type for field in spec.side_columns}
    # To a sink, everything may be null: whether Spark could prove otherwise depends on the other outputs.
    fields = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([pa.field(field.name, side_columns.get(field.name, field.type)) for field in fields])
