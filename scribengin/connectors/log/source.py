"""Logs of the log store, as a source and as a sink. Dataflows chain through them.

A stream of a source is one log. A stream of a sink is one log, too: stream k of the sink `out` is the log `out/<k>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.model import Position
from scribengin.base.names import a_few
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    Attempt,
    Division,
    Endpoint,
    PlannedRange,
    ReadBack,
    RoundLimits,
    Sink,
    SinkConfig,
    SinkStreamDescriptor,
    SinkStreamWriter,
    Source,
    SourceConfig,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.log.holds import Holds
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    EndOfStream,
    InconsistentLog,
    LogError,
    LogExists,
    LogNotFound,
    PositionTruncated,
    RecordRefused,
    RecordTooLarge,
    SourceMissing,
    StaleOwner,
)
from scribengin.log import (
    DEFAULT_NAMESPACE,
    DLSN,
    FIRST,
    TAIL,
    WILDCARD,
    LogNamespace,
    LogReader,
    LogWriter,
    SegmentDescriptor,
    StagedRange,
    Start,
    Time,
)
from scribengin_registry.contract import Operation, Registry

KIND = "log"
NOUN = "log"
STREAMS_TRIED = 1000


class LogSourceConfig(SourceConfig):
    """Logs to read. Every log is a stream of its own, and new ones that match are found while the dataflow runs."""

    kind: Literal["log"]
    """Logs of the log store."""
    logs: str
    """A log's name, or a pattern as in `flights/*`, where `*` stands for anything, slashes included."""
    namespace: str = DEFAULT_NAMESPACE
    """A node of the registry, or a whole URI `distributedlog-file://<hosts>/<path>` of the same registry."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where the logs are read from that are there when the dataflow is first split into tasks; what comes later is read
    whole."""
    retention_hold: bool = True
    """Let neither retention nor truncation take what the dataflow has not committed yet: it is a registered reader of
    its logs until it is deleted. False: what is gone unread is an error when its turn comes."""

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, self.namespace, self.logs)

    def reads(self, thing: Endpoint) -> bool:
        return self._is_in(thing) and fnmatchcase(thing.name, self.logs)

    def meets(self, sink: Endpoint) -> bool:
        return self._is_in(sink) and _matches_a_stream(self.logs, sink.name)

    @property
    def awaited(self) -> bool:
        return self.retention_hold

    def _is_in(self, thing: Endpoint) -> bool:
        return thing.noun == NOUN and thing.system == self.namespace


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
    goes with `tasks: 1`, which is the default then."""
    partition_by: tuple[str, ...] = ()
    """The columns of the output whose values say which log a record goes to, whatever machine or version writes it."""

    @model_validator(mode="after")
    def _streams_go_with_keys(self) -> Self:
        if (self.streams is None) != (not self.partition_by):
            raise ValueError("streams and partition_by go together: how many logs, and by which columns")
        return self

    @property
    def division(self) -> Division | None:
        return None if self.streams is None else Division(self.streams, self.partition_by)

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, self.namespace, self.log.strip("/"))

    def read_back(self) -> ReadBack:
        log = self.log.strip("/")
        source = LogSourceConfig(kind="log", logs=f"{log}/*", namespace=self.namespace)
        return ReadBack(source, rf"{re.escape(log)}/\d+")


def _matches_a_stream(pattern: str, log: str) -> bool:
    """Whether the pattern matches any of `<log>/0` and so on: how many streams a sink will have is not known here. Of a
    hundred dataflows nearly all pairs differ before the first wildcard already, and trying a thousand names of each
    would take seconds."""
    begun, streams = WILDCARD.split(pattern, maxsplit=1)[0], f"{log}/"
    if not (streams.startswith(begun) or begun.startswith(streams)):
        return False
    return any(fnmatchcase(f"{streams}{k}", pattern) for k in range(STREAMS_TRIED))


class LogSource(Source):
    """The logs that a pattern matches."""

    def __init__(
        self,
        name: str,
        config: LogSourceConfig,
        registry: Registry,
        clock: Clock,
        has_tasks: Callable[[], bool] = lambda: False,
        hold_log: Callable[[LogNamespace, str], None] | None = None,
    ) -> None:
        """`has_tasks`: whether the dataflow has been split already: what is found now is new. `hold_log`: has a log
        keep what the dataflow has not committed; None: nobody does. Raises ConfigInvalid, NamespaceNotBound."""
        self._name = name
        self._hold_log = hold_log
        self._config = config
        self._has_tasks = has_tasks
        self._found: frozenset[str] = frozenset()
        """What the last look has found. A master looks every few seconds: that must not cost a read a log."""
        self._namespace = LogNamespace.open(config.namespace, registry=registry, clock=clock)

    @property
    def schema(self) -> pa.Schema:
        return RECORD_SCHEMA

    @property
    def remote_readable(self) -> bool:
        return False  # segments are mapped from the store's directory

    def streams(self) -> list[SourceStreamDescriptor]:
        found = self._namespace.matching(self._config.logs, self._found)
        self._found = frozenset(found)
        if not found:
            raise SourceMissing(
                f"source '{self._name}': no log in {self._config.namespace} is called '{self._config.logs}' "
                f"(there are: {a_few(self._namespace.names())}); correct `logs`, create the log, or start "
                "what writes it first"
            )
        streams = [SourceStreamDescriptor(source=self._name, name=log) for log in found]
        if self._config.start == "earliest" or self._has_tasks():
            return streams
        latest = StartAt("latest")
        return [stream.model_copy(update={"data": self.position_at(stream, latest)}) for stream in streams]

    def retention_hold(self, streams: Sequence[SourceStreamDescriptor]) -> None:
        if self._hold_log is not None:
            for stream in streams:
                self._hold_log(self._namespace, stream.name)

    def goes_back(self, stream: SourceStreamDescriptor) -> Sequence[Operation]:
        return (self._namespace.reader_goes_back(stream.name),)

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        self.retention_hold([stream])  # its master's word may be older than that a log is held back
        return LogStreamReader(self._namespace.open_reader(stream.name), stream)

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        try:
            with self._namespace.open_reader(stream.name, self._start(at)) as reader:
                found = reader.read(1) if at.kind == "time" else []  # a time may lie within an entry
                dlsn = found[0].dlsn if found else reader.position
                if at.kind == "dlsn":
                    self._refuse_to_come(stream.name, dlsn)
                return {**dlsn.to_json(), "directory": reader.directory}
        except (InconsistentLog, PositionTruncated) as error:
            raise ConfigInvalid(f"source '{self._name}': {error}") from None

    def _refuse_to_come(self, log: str, dlsn: DLSN) -> None:
        """Whoever is sent behind the end never reads what comes there first. Raises InconsistentLog."""
        end = self._namespace.end_dlsn(log)
        if dlsn > end:
            raise InconsistentLog(f"log '{log}': {dlsn} lies behind its end {end}; use the end")

    def _start(self, at: StartAt) -> Start:
        if at.kind == "time":
            return Time(int(at.value))
        if at.kind == "dlsn":
            return DLSN.parse(str(at.value))
        if at.kind == "offset":
            raise ConfigInvalid(f"source '{self._name}': a place in a log is a DLSN as in 1/0/0, and no offset")
        return FIRST if at.kind == "earliest" else TAIL

    def close(self) -> None:
        self._namespace.close()


class LogStreamReader(SourceStreamReader):
    """Reads one log. A position is a DLSN, and the log that it is in:
    {"segment": 1, "entry": 0, "slot": 0, "directory": "flights%2F0-83a1..."}."""

    def __init__(self, reader: LogReader, stream: SourceStreamDescriptor) -> None:
        self._reader = reader
        self._log = stream.name
        self._latest: Position = stream.data
        """With `start: latest`, where the log ended when the dataflow was first split; empty: it came later."""

    def initial_position(self) -> Position:
        if self._latest.get("directory") == self._reader.directory:  # else it was made anew since
            return max(self._latest, self._position(self._reader.position), key=self._dlsn)
        return self._position(self._reader.position)

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        plan = self._reader.plan(self._dlsn(position), limits.records_max, limits.bytes_max)
        return None if plan is None else PlannedRange(position, self._position(plan.end), plan.records, plan.splits)

    def wait(self, position: Position, timeout_s: float) -> bool:
        return self._reader.wait(self._dlsn(position), timeout_s)

    def lag(self, position: Position) -> int:
        return self._reader.lag(self._dlsn(position))

    def ended(self, position: Position) -> bool:
        return self._reader.ended(self._dlsn(position))

    def close(self) -> None:
        self._reader.close()

    def _position(self, dlsn: DLSN) -> Position:
        return {**dlsn.to_json(), "directory": self._reader.directory}

    def _dlsn(self, position: Position) -> DLSN:
        try:
            if position["directory"] != self._reader.directory:
                raise PositionTruncated(
                    f"log '{self._log}' was deleted and created again since it was read; to read the new one from its "
                    "start, delete the dataflow and submit it again"
                )
            return DLSN(int(position["segment"]), int(position["entry"]), int(position["slot"]))
        except (KeyError, TypeError, ValueError):
            said = json.dumps(position)[:200]
            raise DataflowError(
                f"log '{self._log}': {said} is no position in a log; restore the stream's commit log"
            ) from None


class LogSink(Sink):
    """Logs below one name."""

    def __init__(self, name: str, config: LogSinkConfig, registry: Registry, clock: Clock, holds: Holds) -> None:
        """`holds`: holds further streams back as the first one.

        Raises ConfigInvalid, NamespaceNotBound, InvalidLogName.
        """
        self._name = name
        self._config = config
        self._registry = registry
        self._holds = holds
        self._namespace = LogNamespace.open(config.namespace, registry=registry, clock=clock)
        self._namespace.exists(self._log("0"))  # raises for a name that no log can have

    @property
    def resource(self) -> str:
        return f"log:{self._namespace.path}/{self._config.log.strip('/')}"

    def refuse_unwritable(self) -> None:
        why = self._namespace.why_unwritable()
        if why is not None:
            raise ConfigInvalid(
                f"sinks.{self._name}: the store of {self._namespace.path}: {why}: let this user write there"
            )

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        for stream in streams:
            log = self._log(stream.name)
            if self._namespace.exists(log):
                self._holds.hold_as_first(self._namespace, self._config.log.strip("/"), log)  # its maker may have died
                continue
            if not self._config.create:
                raise LogNotFound(
                    f"sink '{self._name}': there is no log '{log}' in {self._config.namespace}, and `create` is false: "
                    f"`scribengin log create {log}` makes it"
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
