"""Logs of the log store, as a sink: stream k of the sink `out` is the log `out/<k>`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.jvm import JvmUse
from scribengin.base.names import log_command
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    Attempt,
    Division,
    Endpoint,
    ReadBack,
    Sink,
    SinkConfig,
    SinkStreamDescriptor,
    SinkStreamWriter,
)
from scribengin.connectors.log.divided import division_of
from scribengin.connectors.log.holds import Holds
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.source import NOUN, STREAMS_TRIED, LogSourceConfig
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    EndOfStream,
    LogError,
    LogExists,
    LogNotFound,
    RecordRefused,
    RecordTooLarge,
    StaleOwner,
)
from scribengin.log import (
    DEFAULT_NAMESPACE,
    LogNamespace,
    LogWriter,
    SegmentDescriptor,
    StagedRange,
)
from scribengin_registry.contract import Registry

KIND = "log"


class LogSinkConfig(SinkConfig):
    """Logs to write: stream k is the log `<log>/<k>`, and the dataflow is its writer as long as it runs."""

    kind: Literal["log"]
    """Logs of the log store."""
    log: str
    """The name before the slash: one log a task is written, `<log>/0`, `<log>/1` and so on."""
    namespace: str = DEFAULT_NAMESPACE
    """Where the logs are: a node of the registry, or a whole URI as for sources."""
    create: bool = True
    """Create the logs that do not exist yet. False: they must be there."""
    streams: int | None = Field(default=None, ge=1, le=STREAMS_TRIED)
    """Divide the records among so many logs by `partition_by`: whoever reads one finds all records of a key there. It
    goes with `tasks: 1`, which is the default then, and with several where they share keys by these very columns."""
    partition_by: tuple[str, ...] = ()
    """The columns of the output whose values say which log a record goes to, whatever machine or version writes it."""

    @model_validator(mode="after")
    def _streams_go_with_keys(self) -> Self:
        division_of(self.streams, self.partition_by)
        return self

    @property
    def division(self) -> Division | None:
        return division_of(self.streams, self.partition_by)

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, self.namespace, self.log.strip("/"))

    def first(self) -> Endpoint:
        return Endpoint(NOUN, self.namespace, f"{self.log.strip('/')}/0")

    def read_back(self) -> ReadBack:
        log = self.log.strip("/")
        source = LogSourceConfig(kind="log", logs=f"{log}/*", namespace=self.namespace)
        return ReadBack(source, rf"{re.escape(log)}/\d+")


class LogSink(Sink):
    """Logs below one name."""

    def __init__(
        self,
        name: str,
        config: LogSinkConfig,
        registry: Registry,
        clock: Clock,
        holds: Holds,
        *,
        awaited: bool = False,
    ) -> None:
        """`holds`: holds further streams back as the first one. `awaited`: as of `open_namespace`.

        Raises ConfigInvalid, NamespaceNotBound, InvalidLogName.
        """
        self._name = name
        self._config = config
        self._registry = registry
        self._holds = holds
        self._namespace = open_namespace(config.namespace, registry=registry, clock=clock, awaited=awaited)
        self._namespace.exists(self._log("0"))  # raises for a name that no log can have

    @property
    def resource(self) -> str:
        return f"log:{self._namespace.path}/{self._config.log.strip('/')}"

    @property
    def jvm_a_process(self) -> JvmUse | None:
        return self._namespace.descriptor.jvm_a_process

    def refuse_unwritable(self) -> None:
        why = self._namespace.why_unwritable()
        if why is not None:
            raise ConfigInvalid(
                f"sinks.{self._name}: the store of {self._namespace.path}: {why}: let this user write there"
            )

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        streams = [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]
        division = self._config.division
        if division is None:
            return streams
        return [one.model_copy(update={"number": k, "among": division.streams}) for k, one in enumerate(streams)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        for stream in streams:
            log = self._log(stream.name)
            if self._namespace.exists(log):
                self._holds.hold_as_first(self._namespace, self._config.log.strip("/"), log)  # its maker may have died
                continue
            if not self._config.create:
                raise LogNotFound(
                    f"sink '{self._name}': there is no log '{log}' in {self._config.namespace}, and `create` is false: "
                    f"{log_command(self._namespace.path, 'create', log)} makes it"
                )
            try:
                self._holds.create_stream(self._namespace, self._config.log.strip("/"), log)
            except LogExists:
                continue  # somebody else has just done the same

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        return LogSinkWriter(self._namespace, self._log(stream.name), self._registry, attempt)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        with self._namespace.open_reader(self._log(stream.name)) as reader:
            try:
                while (batch := reader.read_batch()) is not None:
                    yield batch.select(RECORD_SCHEMA.names)
            except EndOfStream:
                return

    def close(self) -> None:
        self._namespace.close()

    def _log(self, stream: str) -> str:
        return f"{self._config.log.strip('/')}/{stream}"


class LogSinkWriter(SinkStreamWriter):
    """Stages rounds in a log, as its writer. The log is taken from whoever writes it at the first `recover`.

    A stale owner may still get this far, and fence its successor's writer: the successor takes the log back. What it
    must never do is lookup a staged round, because it does not know the commits of its successor. So the commit log is
    looked at again once the log has been taken, when nothing more can be staged behind one's back.
    """

    def __init__(self, namespace: LogNamespace, log: str, registry: Registry, attempt: Attempt) -> None:
        self._namespace = namespace
        self._log = log
        self._registry = registry
        self._attempt = attempt
        self._writer: LogWriter | None = None

    def recover(self, committed: CommitDescriptor | None) -> None:
        named = self._named(committed)
        if self._writer is None:
            self._writer = self._open(named)
        self._writer.recover(named)

    @property
    def payload_bytes_max(self) -> int | None:
        return self._opened().record_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        try:
            refused = self._opened().refused(batch)
        except LogError as error:  # a value that cannot be what its column is in a log
            raise RecordRefused(str(error)) from None
        for row in refused:
            raise row.error if isinstance(row.error, RecordTooLarge) else RecordRefused(str(row.error))

    def write(self, batch: pa.RecordBatch) -> None:
        self._opened().stage(batch)

    def prepare_commit(self) -> CommitDescriptor | None:
        staged = self._opened().prepare()
        if staged is None:
            return None
        return CommitDescriptor(kind=KIND, records=staged.records, data=staged.model_dump(mode="json"))

    def complete_commit(self, committed: CommitDescriptor) -> None:
        named = self._named(committed)
        if named is not None:
            self._opened().commit_staged(named)

    def rollback(self) -> None:
        self._opened().rollback_staged()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except LogError:
            return  # the log has a new writer, or its disk fails: whoever opens it next finds all that was committed

    def _open(self, named: StagedRange | None) -> LogWriter:
        def lookup(_segment: SegmentDescriptor) -> StagedRange | None:
            self._refuse_if_stale()
            return named

        self._refuse_if_stale()
        return self._namespace.open_writer(self._log, steal=True, commit_log=self._attempt.commit_log, lookup=lookup)

    def _opened(self) -> LogWriter:
        if self._writer is None:
            raise DataflowError(f"log '{self._log}': a sink's writer can be used after recover(), and before close()")
        return self._writer

    def _named(self, committed: CommitDescriptor | None) -> StagedRange | None:
        if committed is None:
            return None
        if committed.kind != KIND:
            raise DataflowError(f"{self._attempt.commit_log} names a round of a '{committed.kind}' sink; restore it")
        return StagedRange.from_json(committed.data, path=self._attempt.commit_log)

    def _refuse_if_stale(self) -> None:
        path, mine = self._attempt.commit_log, self._attempt.epoch
        log = CommitLog.from_bytes(self._registry.get(path).data, path=path)
        if log.epoch != mine:
            raise StaleOwner(
                f"log '{self._log}': {log.owner} owns it under epoch {log.epoch}, and {self._attempt.owner} has {mine}"
            )
