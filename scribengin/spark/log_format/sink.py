"""`df.write` and `df.writeStream` to the format `scribengin-log`.

A log has one writer, so tasks do not append. Each writes its rows to Arrow files below the namespace's store, split by
the log that they belong to; when all tasks are done, one process beside the driver appends the files to the logs, in
the order of Spark's partitions, and commits them (log_format/commit.py). Rows of one partition keep their order.

What is promised:

- A batch job (`mode("append")`) is written whole or not at all, over all its logs. A job that is run again writes
  again. If it fails while it commits, look whether its rows are there before you repeat it: they may yet appear, all of
  them, when the logs are next written.
- A stream writes every micro-batch exactly once, through crashes and restarts, as long as it keeps its checkpoint: the
  logs' commit logs remember the last one. They know the stream by the id that its checkpoint gave it, or, where the
  checkpoint is not in a directory of this machine, by the option `writerId`. Another checkpoint under the same
  `writerId` is refused: its micro-batches are counted from 0 again, and say nothing of what stands in the logs.
- Readers see a micro-batch of one log all at once; the logs show theirs one after the other.

Every commit opens the logs and completes a segment in each, which holds all that the commit brought, however much it
is: so a stream is better off with triggers of some seconds, and a load of a terabyte with several jobs. A killed job
leaves its files behind, below `.spark` in the store; a later job deletes them when they are a week old.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, ShortType, StringType, StructType

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.process.private import remove_directory
from scribengin.connectors.log.reaching import open_namespace
from scribengin.errors import ConfigInvalid, LogError, LogExists, LogNotFound
from scribengin.log import NamespaceUri
from scribengin.log.clients.partitioners import hash_partitioner, split_batch, split_rows
from scribengin.spark.log_format.commit import JobCommit
from scribengin.spark.log_format.options import FORMAT, LogWriteOptions
from scribengin_registry.errors import RegistryError
from scribengin_registry.opening import connect

_QUERY_ID = "sql.streaming.queryId"
_ABANDONED_S = 7 * 24 * 3600
_BYTES = (BinaryType(), StringType())
_TAKEN = {
    "payload": _BYTES,
    "key": _BYTES,
    "channel": (StringType(),),
    "txid": (LongType(), IntegerType(), ShortType()),
    "type": (IntegerType(), LongType(), ShortType()),
}
_ARROW = {"payload": pa.binary(), "key": pa.binary(), "channel": pa.string(), "txid": pa.int64(), "type": pa.uint16()}


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """What one task wrote: for each log that got rows the number of the log and a file. `query` is the id that Spark
    keeps in the checkpoint of the stream which the task is of."""

    files: tuple[tuple[int, str], ...]
    query: str | None = None


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Writes a task's rows to files of `directory`, a new one for each of `streams` that gets any. Picklable."""

    directory: str
    streams: int

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        """Raises LogError for rows that no log could take; files of a task that fails are removed."""
        files: dict[int, Path] = {}
        try:
            with ExitStack() as stack:
                writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
                turn = 0
                for batch in batches:
                    parts, turn = self._split(as_records(batch), turn)
                    for stream, part in parts.items():
                        if stream not in writers:
                            files[stream] = Path(self.directory) / f"{uuid.uuid4().hex}.arrow"
                            file = stack.enter_context(pa.OSFile(str(files[stream]), "wb"))
                            writers[stream] = stack.enter_context(pa.ipc.new_stream(file, part.schema))
                        writers[stream].write_batch(part)
        except BaseException:
            for path in files.values():
                path.unlink(missing_ok=True)
            raise
        return TaskOutput(tuple((stream, str(path)) for stream, path in files.items()), _query())

    def remove(self) -> None:
        """Delete the directory, after which nobody can make files there: not the tasks that still run, either."""
        remove_directory(Path(self.directory))

    def _split(self, batch: pa.RecordBatch, turn: int) -> tuple[dict[int, pa.RecordBatch], int]:
        if not batch.num_rows or self.streams == 1:
            return ({0: batch} if batch.num_rows else {}), turn
        keys = batch.column("key") if "key" in batch.schema.names else pa.nulls(batch.num_rows, pa.binary())
        chosen, turn = split_rows(keys, self.streams, hash_partitioner, turn)
        return split_batch(batch, chosen), turn


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The files of all tasks, in the order of Spark's partitions."""

    logs: Sequence[str]
    tasks: Sequence[TaskOutput]

    def of(self, log: str) -> Iterator[pa.RecordBatch]:
        """The batches of a log."""
        number = self.logs.index(log)
        for task in self.tasks:
            for stream, path in task.files:
                if stream == number:
                    with pa.memory_map(path) as file, pa.ipc.open_stream(file) as batches:
                        yield from batches

    @property
    def query(self) -> str:
        """The query that wrote this. Raises LogError when Spark has not told its tasks."""
        found = {task.query for task in self.tasks if task.query is not None}
        if len(found) != 1:
            raise LogError(f"format '{FORMAT}': Spark does not say which query its tasks are of ({sorted(found)})")
        return found.pop()

    @property
    def empty(self) -> bool:
        return not any(task.files for task in self.tasks)

    def remove(self) -> None:
        """Delete the files. Idempotent."""
        for task in self.tasks:
            for _stream, path in task.files:
                Path(path).unlink(missing_ok=True)


@dataclass(frozen=True)
class LogBatchWriter(DataSourceArrowWriter):
    """One job. See the top of this file for what it promises."""

    options: LogWriteOptions
    files: TaskFiles

    @classmethod
    def of(cls, options: LogWriteOptions, schema: StructType, *, overwrite: bool) -> LogBatchWriter:
        """Raises ConfigInvalid, and what `prepared` raises."""
        check_schema(schema)
        _refuse_overwrite(overwrite)
        if options.given("writer_id"):
            raise ConfigInvalid(f"option 'writerId' of format '{FORMAT}' is for df.writeStream; leave it out here")
        return cls(options, prepared(options, f"job-{uuid.uuid4().hex}"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.files.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        output = _output(self.options, messages)
        if not output.empty:
            name = Path(self.files.directory).name
            with _committing(self.options, name, query=name) as job:
                job.commit(0, output.of)
                job.forget()
        self.files.remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.files.remove()
        name = Path(self.files.directory).name
        with suppress(LogError, RegistryError), _committing(self.options, name, query=name) as job:
            job.forget_unless_committed()


@dataclass(frozen=True)
class LogStreamWriter(DataSourceStreamArrowWriter):
    """One stream; Spark makes a new object of it for every micro-batch."""

    options: LogWriteOptions
    files: TaskFiles

    @classmethod
    def of(cls, options: LogWriteOptions, schema: StructType, *, overwrite: bool) -> LogStreamWriter:
        """Raises ConfigInvalid, and what `prepared` raises."""
        check_schema(schema)
        _refuse_overwrite(overwrite)
        return cls(options, prepared(options, "streams"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.files.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # PySpark's name
        output = _output(self.options, messages)
        if not output.empty:
            with _committing(self.options, writer_id(self.options), query=output.query) as job:
                job.commit(batchId, output.of)
        output.remove()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _output(self.options, messages).remove()


def writer_id(options: LogWriteOptions) -> str:
    """The name under which a stream's micro-batches are counted. Raises ConfigInvalid."""
    if options.writer_id is not None:
        return options.writer_id
    parts = urlsplit(options.checkpoint_location or "")
    if parts.path and parts.scheme in ("", "file"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return f"query-{json.loads((Path(parts.path) / 'metadata').read_text())['id']}"
    raise ConfigInvalid(
        f"a stream to format '{FORMAT}' needs the option 'checkpointLocation' with a directory of this machine, or the "
        "option 'writerId': without one of them nobody can tell a micro-batch that is written again from a new one"
    )


def prepared(options: LogWriteOptions, folder: str) -> TaskFiles:
    """Where tasks put their rows, in that folder, once the logs are there.

    Raises ConfigInvalid (the store is no directory of this machine), LogNotFound (with `create` false),
    NamespaceNotBound, InvalidLogName, RegistryUnreachable.
    """
    with open_namespace(options.namespace) as namespace:
        folders = namespace.local_directory / ".spark"
        for log in options.logs:
            if namespace.exists(log):
                continue
            if not options.create:
                raise LogNotFound(
                    f"there is no log '{log}' in {options.namespace}, and option 'create' is false: create it first"
                )
            with suppress(LogExists):  # somebody else has just done the same
                namespace.create(log)
    (folders / folder).mkdir(parents=True, exist_ok=True)
    remove_abandoned(folders, SYSTEM_CLOCK)
    return TaskFiles(str(folders / folder), len(options.logs))


def remove_abandoned(folders: Path, clock: Clock) -> None:
    """Delete what killed jobs have left: files, then empty directories, that nobody has touched for a week."""
    oldest_s = clock.now_ms() / 1000 - _ABANDONED_S
    for path in (*folders.glob("*/*"), *folders.glob("job-*")):
        with suppress(FileNotFoundError):  # it is another job's, which has just ended
            if path.stat().st_mtime >= oldest_s:
                continue
            if path.is_dir():
                with suppress(OSError):  # something in it is younger
                    path.rmdir()
            else:
                path.unlink()


def check_schema(schema: StructType) -> None:
    """Raises ConfigInvalid for columns that are no part of a record, or of another type."""
    for given in schema.fields:
        if given.name not in _TAKEN:
            raise ConfigInvalid(
                f"format '{FORMAT}' has no place for the column '{given.name}': select the columns of a record "
                f"({', '.join(_TAKEN)}); only payload is needed"
            )
        if given.dataType not in _TAKEN[given.name]:
            wanted = " or ".join(kind.simpleString() for kind in _TAKEN[given.name])
            raise ConfigInvalid(
                f"format '{FORMAT}': the column '{given.name}' is {given.dataType.simpleString()}, not {wanted}: cast "
                "it, or make it a payload with to_json(struct(...))"
            )
    if "payload" not in schema.names:
        raise ConfigInvalid(f"format '{FORMAT}' needs a column 'payload', binary or string; there are: {schema.names}")


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A task's rows in the types of a log."""
    schema = pa.schema([(name, _ARROW[name]) for name in batch.schema.names])
    return pa.RecordBatch.from_arrays(
        [column.cast(f.type) for column, f in zip(batch.columns, schema, strict=True)], schema=schema
    )


def _output(options: LogWriteOptions, messages: Sequence[WriterCommitMessage | None]) -> JobOutput:
    return JobOutput(options.logs, [message for message in messages if isinstance(message, TaskOutput)])


@contextmanager
def _committing(options: LogWriteOptions, writer: str, *, query: str) -> Iterator[JobCommit]:
    with connect(NamespaceUri.parse(options.namespace).hosts) as registry:
        namespace = open_namespace(options.namespace, registry=registry)
        yield JobCommit(namespace, registry, writer, options.logs, query=query, timeout_s=options.lock_timeout_s)


def _query() -> str | None:
    """The stream's query, as Spark tells its tasks."""
    context = TaskContext.get()
    return context.getLocalProperty(_QUERY_ID) if context is not None else None


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigInvalid(
            f"format '{FORMAT}' only appends: write with mode('append'), or outputMode('append') for a stream"
        )
