"""How records get out of Spark: Arrow batches, through the JVM when they are few, through files when they are many.

Collected by Spark, a round's output stands in the JVM's heap once or twice, and one thread copies it through a socket.
So the workers of a large round write it to files, side by side, and the driver maps them: it is never copied, and takes
page cache instead of heap. Few records are faster without the second Python worker that this needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from scribengin.spark.transform.input import conform

_SUMMARY = "path string"


class OutputUnwritable(Exception):
    """Raised in a Python worker only: its output file cannot be written (a full disk)."""


class Drain(Protocol):
    """Executes one DataFrame, again and again, and returns its rows in order."""

    def execute(self) -> list[pa.RecordBatch]:
        """Raises what Spark raises, and leaves nothing behind."""
        ...


class MemoryDrain:
    """Through the JVM, for few records."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def execute(self) -> list[pa.RecordBatch]:
        return [batch for batch in self._frame.toArrow().to_batches() if batch.num_rows]


class FileDrain:
    """Through files in `directory`, for many. Used by one thread at a time."""

    def __init__(self, frame: DataFrame, directory: Path) -> None:
        self._directory = directory
        self._paths = arrow_files(frame, directory)

    def execute(self) -> list[pa.RecordBatch]:
        try:
            return [batch for row in self._paths.collect() for batch in mapped(Path(row["path"]))]
        finally:
            # Also what tasks of a failed job left; one that still writes keeps its file, without a name.
            for left in self._directory.iterdir():
                left.unlink(missing_ok=True)


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
