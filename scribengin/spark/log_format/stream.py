"""`spark.readStream.format("scribengin-log")`: the micro-batches of logs.

An offset is {log: {"directory", "segment", "entry", "slot"}}: the position of the first record that has not been read,
and the directory that tells the log from another one of its name. Where a range of a log does not begin at the offset
before it, the offset at its end says where, as "from": for a log that came later, and with failOnDataLoss=false for one
that was truncated or created again. So a batch that is planned again after a crash is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from scribengin.base.model import JsonObject, Position
from scribengin.connectors.log.reaching import open_namespace
from scribengin.errors import LogNotFound, PositionTruncated
from scribengin.log import DLSN, LogNamespace, LogReader, TransactionId
from scribengin.spark.log_format.options import LATEST, LogReadOptions
from scribengin.spark.log_format.plan import BYTES_UNLIMITED, LogPartition, LogPlanner, LogRange, PartitionReader

_FROM = "from"


class LogMicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process beside the driver, which keeps a registry session as long as the stream runs.

    Its pickled copies in Python workers only read. What plans raises SourceMissing (at the start), PositionTruncated,
    LogNotFound (the log is gone), InconsistentLog, DamagedEntry, and what the registry raises.
    """

    def __init__(self, options: LogReadOptions, schema: StructType) -> None:
        self._options = options
        self._reading = PartitionReader(schema, options.wanted)
        self._opened: StreamLogs | None = None
        self._targets: Mapping[str, Position] | None = None
        self._planned: dict[str, tuple[Position, Position, list[LogPartition]]] = {}
        """Of each log the last range: (begin, end, partitions), so that it is not planned twice."""

    def initialOffset(self) -> JsonObject:  # noqa: N802  # PySpark's name
        start = self._logs.initial()
        self._logs.keep(start)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # PySpark's name
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:  # noqa: N802  # PySpark's name
        begins = self._logs.begins(start)
        lags = {log: self._logs.lag(log, begin, self._targets) for log, begin in begins.items()}
        end = dict(start)
        for log, records_max, bytes_max in shares({log: lag for log, lag in lags.items() if lag > 0}, limit):
            begin = begins[log]
            planned = self._logs.plan(log, begin, records_max, bytes_max)
            if planned is not None:
                after, partitions = planned
                continues = log in start and begin == _bare(start[log])
                end[log] = after if continues else {**after, _FROM: begin}
                self._planned[log] = (begin, after, partitions)
        return end

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for log, at in end.items():
            if at == start.get(log):
                continue
            begin, after = _bare(at[_FROM] if _FROM in at else start[log]), _bare(at)
            planned = self._planned.get(log)
            if planned is not None and planned[:2] == (begin, after):
                found.extend(planned[2])
            else:
                found.extend(self._logs.plan_again(log, begin, after))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition), "they are made by `partitions`"
        return self._reading.read(partition)

    def commit(self, end: JsonObject) -> None:
        self._logs.keep(end)

    def reportLatestOffset(self) -> JsonObject:  # noqa: N802  # PySpark's name
        return self._logs.ends()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # PySpark's name
        self._targets = self._logs.ends()

    def stop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @property
    def _logs(self) -> StreamLogs:
        if self._opened is None:
            self._opened = StreamLogs(open_namespace(self._options.namespace), self._options)
        return self._opened


class StreamLogs:
    """The logs of one stream, with a reader each that follows its log. Not thread-safe."""

    def __init__(self, namespace: LogNamespace, options: LogReadOptions) -> None:
        self._namespace = namespace
        self._options = options
        self._planner = LogPlanner(namespace, options)
        self._readers: dict[str, LogReader] = {}
        self._kept: dict[str, DLSN] = {}

    def initial(self) -> dict[str, Position]:
        """Where a new stream starts. Raises SourceMissing."""
        return {log: self._start(log) for log in self._planner.logs(self._options.wanted)}

    def ends(self) -> dict[str, Position]:
        """Where each log ends just now."""
        return {log: _position(self.reader(log).end_position(), self.reader(log)) for log in self._planner.matching()}

    def begins(self, start: Mapping[str, Position]) -> dict[str, Position]:
        """Where the next range of each log begins: at `start`, or (a new log, data lost) at the first record kept."""
        names = self._planner.matching()
        for log in start:
            if log not in names:
                self._lost(f"log '{log}' is gone, and the stream had read it to {_dlsn(start[log])}", LogNotFound)
        return {log: self._begin(log, _bare(start[log]) if log in start else None) for log in names}

    def lag(self, log: str, begin: Position, targets: Mapping[str, Position] | None) -> int:
        """Records from `begin` on: all that are visible, or those before the log's target."""
        if targets is None:
            return self.reader(log).lag(_dlsn(begin))
        target = targets.get(log)
        if target is None or target["directory"] != begin["directory"] or _dlsn(target) <= _dlsn(begin):
            return 0
        return self._namespace.count(log, _dlsn(begin), _dlsn(target))

    def plan(
        self, log: str, begin: Position, records_max: int, bytes_max: int
    ) -> tuple[Position, list[LogPartition]] | None:
        """Where a range within the limits ends, and what reads it."""
        reader = self.reader(log)
        plan = reader.plan(_dlsn(begin), records_max, bytes_max)
        return None if plan is None else (_position(plan.end, reader), self._planner.grouped(log, plan.splits))

    def plan_again(self, log: str, begin: Position, end: Position) -> list[LogPartition]:
        """What reads a range that was planned before, by a process that is gone. Raises PositionTruncated."""
        if log not in self._planner.matching() or self.reader(log).directory != end["directory"]:
            self._lost(f"log '{log}' is gone or another one, and a batch of it is to be read again", LogNotFound)
            return []
        first = max(_dlsn(self._begin(log, begin)), _dlsn(begin))
        records = self._namespace.count(log, first, _dlsn(end)) if first < _dlsn(end) else 0
        return self._planner.partitions(self.reader(log), LogRange(log, first, _dlsn(end), records))

    def keep(self, positions: Mapping[str, Position]) -> None:
        """Let truncation and retention wait for the stream there, if it has a name. Raises LogError for a position
        before that, PositionTruncated."""
        if self._options.reader_id is None:
            return
        names = self._planner.matching()
        for log, at in positions.items():
            there = log in names and self.reader(log).directory == at["directory"]
            if there and self._kept.get(log) != _dlsn(at):
                self._kept[log] = self._namespace.register_reader(log, self._options.reader_id, _dlsn(at))

    def reader(self, log: str) -> LogReader:
        """The log's reader; a new one if the log was created again. Raises LogNotFound."""
        reader = self._readers.get(log)
        if reader is not None:
            try:
                reader.end_position()
                return reader
            except LogNotFound:
                self._readers.pop(log).close()
        self._readers[log] = self._namespace.open_reader(log)
        return self._readers[log]

    def close(self) -> None:
        """End the session."""
        for reader in self._readers.values():
            reader.close()
        self._namespace.close()

    def _start(self, log: str) -> Position:
        reader = self.reader(log)
        if self._options.start == LATEST:
            return _position(reader.end_position(), reader)
        bound = self._options.start_bound
        if isinstance(bound, DLSN) and bound != DLSN.INITIAL:
            return _position(bound, reader)
        if isinstance(bound, TransactionId) and self._namespace.info(log).log.config.check_txids:
            return _position(self._planner.place(log, bound), reader)
        return _position(self._first(log), reader)

    def _first(self, log: str) -> DLSN:
        return self._namespace.first_dlsn(log)

    def _begin(self, log: str, known: Position | None) -> Position:
        reader = self.reader(log)
        if known is not None and known["directory"] == reader.directory:
            try:
                reader.lag(_dlsn(known))
                return known
            except PositionTruncated as error:
                self._lost(str(error), PositionTruncated)
        elif known is not None:
            self._lost(f"log '{log}' was deleted and created again since it was read", PositionTruncated)
        return _position(self._first(log), reader)

    def _lost(self, what: str, error: type[LogNotFound] | type[PositionTruncated]) -> None:
        """Raises `error`, unless the user said to go on."""
        if self._options.fail_on_data_loss:
            raise error(
                f"{what}. Records may be lost to this stream: set the option failOnDataLoss=false to go on with what "
                "is there, or start again with a new checkpoint and the `start` that you want"
            )


def shares(lags: Mapping[str, int], limit: ReadLimit) -> list[tuple[str, int, int]]:
    """What each log may read under the stream's limit: (log, records, bytes). In proportion to what waits there, but
    at least one record a log, the longest queues first, while the limit allows it."""
    total = sum(lags.values())
    ordered = sorted(lags, key=lambda log: (-lags[log], log))
    if isinstance(limit, ReadMaxBytes):
        return [(log, lags[log], max(1, limit.max_bytes * lags[log] // total)) for log in ordered]
    if not isinstance(limit, ReadMaxRows):
        return [(log, lags[log], BYTES_UNLIMITED) for log in ordered]
    served = ordered[: limit.max_rows]
    spare = limit.max_rows - len(served)
    records = {log: min(lags[log], 1 + spare * lags[log] // total) for log in served}
    left = limit.max_rows - sum(records.values())
    for log in served:  # what rounding has left
        more = min(left, lags[log] - records[log])
        records[log], left = records[log] + more, left - more
    return [(log, records[log], BYTES_UNLIMITED) for log in served]


def _position(dlsn: DLSN, reader: LogReader) -> Position:
    return {**dlsn.to_json(), "directory": reader.directory}


def _dlsn(position: Position) -> DLSN:
    return DLSN(position["segment"], position["entry"], position["slot"])


def _bare(position: Position) -> Position:
    """A position without where its range began."""
    return {key: value for key, value in position.items() if key != _FROM}
