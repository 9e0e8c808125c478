"""Logs of the log store, as a source: every log is a stream. Dataflows chain through them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from scribengin.base.clock import Clock
from scribengin.base.jvm import JvmUse
from scribengin.base.model import NEVER, Position
from scribengin.base.names import a_few
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    Division,
    Endpoint,
    PlannedRange,
    RoundLimits,
    Source,
    SourceConfig,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.log.divided import division_of, numbered
from scribengin.connectors.log.reaching import open_namespace
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    InconsistentLog,
    PositionTruncated,
    SourceMissing,
)
from scribengin.log import (
    DEFAULT_NAMESPACE,
    DLSN,
    FIRST,
    TAIL,
    WILDCARD,
    LogNamespace,
    LogReader,
    Start,
    Time,
)
from scribengin_registry.contract import Operation, Registry

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
    streams: Annotated[int | None, NEVER] = Field(default=None, ge=1, le=STREAMS_TRIED)
    """With `state`: among so many logs the records are divided by `partition_by`, as the sink says that writes them:
    the logs whose names end in `/0`, `/1` and so on. Nothing is read before all of them are there."""
    partition_by: Annotated[tuple[str, ...], NEVER] = ()
    """The columns, as the transformation sees them, whose values say which log a record is in. Where all sources are
    divided so, `tasks` may be more than 1."""

    @model_validator(mode="after")
    def _streams_go_with_keys(self) -> Self:
        division_of(self.streams, self.partition_by)
        return self

    @property
    def division(self) -> Division | None:
        return division_of(self.streams, self.partition_by)

    def endpoint(self) -> Endpoint:
        return Endpoint(NOUN, self.namespace, self.logs)

    def reads(self, thing: Endpoint) -> bool:
        return self._is_in(thing) and fnmatchcase(thing.name, self.logs)

    def still_reads(self, stream: str, before: SourceConfig) -> bool:
        """A stream is called as its log."""
        return self.reads(Endpoint(NOUN, before.endpoint().system, stream))

    def meets(self, sink: Endpoint) -> bool:
        return self._is_in(sink) and _matches_a_stream(self.logs, sink.name)

    @property
    def awaited(self) -> bool:
        return self.retention_hold

    def _is_in(self, thing: Endpoint) -> bool:
        return thing.noun == NOUN and thing.system == self.namespace


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
        *,
        awaited: bool = False,
    ) -> None:
        """`has_tasks`: whether the dataflow has been split already: what is found now is new. `hold_log`: has a log
        keep what the dataflow has not committed; None: nobody does. `awaited`: as of `open_namespace`. Raises
        ConfigInvalid, NamespaceNotBound."""
        self._name = name
        self._hold_log = hold_log
        self._config = config
        self._has_tasks = has_tasks
        self._found: frozenset[str] = frozenset()
        """What the last look has found. A master looks every few seconds: that must not cost a read a log."""
        self._namespace = open_namespace(config.namespace, registry=registry, clock=clock, awaited=awaited)

    @property
    def jvm_a_process(self) -> JvmUse | None:
        return self._namespace.descriptor.jvm_a_process

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
        division = self._config.division
        if division is not None:
            in_order = numbered(self._name, found, division.streams)
            streams = [SourceStreamDescriptor(source=self._name, name=log, number=n) for n, log in enumerate(in_order)]
        if self._config.start == "earliest" or self._has_tasks():
            return streams
        latest = StartAt("latest")
        return [stream.model_copy(update={"data": self.position_at(stream, latest)}) for stream in streams]

    def retention_hold(self, streams: Sequence[SourceStreamDescriptor]) -> None:
        if self._hold_log is not None:
            for stream in streams:
                self._hold_log(self._namespace, stream.name)

    def goes_back(self, stream: SourceStreamDescriptor) -> Sequence[Operation]:
        return self._namespace.reader_goes_back(stream.name)

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
                if at.kind == "latest" or (at.kind == "time" and not found):
                    dlsn = _end_for(stream.name, reader, dlsn, before)
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
        return _dlsn(self._log, self._reader.directory, position)


def _end_for(log: str, reader: LogReader, end: DLSN, before: Position | None) -> DLSN:
    """The end for whoever has read up to `before`. After a power failure readers see less than they did, until a writer
    recovers the log; what it does not find then (`fsync: false`) is lost, and nobody can stand behind it."""
    if before is None or before.get("directory") != reader.directory:
        return end
    read = _dlsn(log, reader.directory, before)
    if read <= end:
        return end
    try:
        reader.lag(read)
    except InconsistentLog:
        return end
    return read


def _dlsn(log: str, directory: str, position: Position) -> DLSN:
    """Raises PositionTruncated, DataflowError."""
    try:
        if position["directory"] != directory:
            raise PositionTruncated(
                f"log '{log}' was deleted and created again since it was read; to read the new one from its start, "
                "delete the dataflow and submit it again"
            )
        return DLSN(int(position["segment"]), int(position["entry"]), int(position["slot"]))
    except (KeyError, TypeError, ValueError):
        said = json.dumps(position)[:200]
        raise DataflowError(f"log '{log}': {said} is no position in a log; restore the stream's commit log") from None
