"""Arrow files that Spark's Python workers write and the driver maps.

Each Python worker that writes one imports this module first, with what it imports: no more than PyArrow and PySpark.
With connectors and logs it took three times as long to start, a third of a second of a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from scribengin.spark.worker_errors import OutputUnwritable

_SUMMARY = "path string"


def arrow_files(frame: DataFrame, directory: Path, schema: pa.Schema | None = None) -> DataFrame:
    """A DataFrame that, executed, writes `frame` to Arrow files in `directory`; its column `path` names them, in order.

    They are in `schema`, if that is given, and else in whatever Spark makes of the columns.
    """
    return frame.mapInArrow(_writer(str(directory), schema), _SUMMARY)


def _writer(directory: str, schema: pa.Schema | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in Spark's Python workers: one file a task attempt, so that no two of them ever write the same."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        with _Output(f"{directory}/{context.taskAttemptId()}.arrow") as output:
            for batch in batches:
                output.write(batch if schema is None else conform(batch, schema))
        if output.begun:
            yield pa.record_batch([pa.array([output.path])], names=["path"])

    return write


class _Output:
    """An Arrow file that begins with the first batch."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    @property
    def begun(self) -> bool:
        return self._writer is not None

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_file(self.path, batch.schema)
            self._writer.write_batch(batch)
        except OSError as error:
            raise OutputUnwritable(f"{self.path}: {error}") from error

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                raise OutputUnwritable(f"{self.path}: {error}") from error


def mapped(path: Path) -> list[pa.RecordBatch]:
    """The batches of a file. They keep it mapped; its name may go."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns and types that Spark expects: the source's schema, up to Arrow's variants of a type."""
    columns = [batch.column(field.name) for field in schema]
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
