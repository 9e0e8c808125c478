"""A task and its rounds: plan, run, stage, commit, complete (ARCHITECTURE.md, "A round").

The owner of a task is always in one of three conditions, and `take_over` leads to the second from each of them:

    not owning      at first, after `release`, and after any error that leaves something unsettled
    owning          nothing is staged, everything committed is complete: `run_round` may be called
    in a round      inside `run_round`

What may go wrong, and what then holds:

| in        | what                     | then                                                                      |
|-----------|--------------------------|---------------------------------------------------------------------------|
| plan, run | the user's code raises   | bisect; route or raise; nothing is staged, still owning                   |
| stage     | anything                 | not owning; the next `take_over` rolls back                               |
| commit    | too large                | rolled back, raised                                                       |
| commit    | the reply is lost        | take over again, from oneself: the commit logs say whether it was applied |
| commit    | a version does not match | take over again, which raises StaleOwner if it is somebody else's now     |
| complete  | anything                 | not owning; the next `take_over` completes                                |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from scribengin.clock import Clock
from scribengin.commit import CommitDescriptor
from scribengin.connectors.contract import (
    Attempt,
    PlannedRange,
    ReadSplit,
    Sink,
    SinkStreamWriter,
    Source,
    SourceStreamReader,
)
from scribengin.dataflow import paths
from scribengin.dataflow.bad_records import Isolated, Piece, error_batch, isolate
from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.dataflow.descriptors import TaskDescriptor
from scribengin.dataflow.ownership import TaskOwnership
from scribengin.errors import CommitTooLarge, TransformationFailed
from scribengin.model import Position
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, VersionConflict


class RoundTransform(Protocol):
    """The user's transformation over the ranges of one round (scribengin.spark.Transformation is the one).

    Outputs are batches with a `payload` column, by sink. Raises TransformationFailed for whatever the user's code or
    data did; anything else is the engine's or Spark's trouble and says nothing about the records.
    """

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Transform planned ranges; splits in order, one list a source (empty where there is nothing to read)."""
        ...

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """The same on records in hand, for finding the bad ones."""
        ...


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """One committed round: counts of records, and how long it took by phase."""

    round: int
    records_in: int
    records_out: int
    records_bad: int
    plan_and_run_s: float
    stage_s: float
    commit_s: float
    complete_s: float

    @property
    def total_s(self) -> float:
        """From plan to complete."""
        return self.plan_and_run_s + self.stage_s + self.commit_s + self.complete_s


@dataclass(frozen=True, slots=True)
class _Input:
    """One source stream of the task: where its positions are kept, and its open reader."""

    source: str
    stream: str
    log_path: str
    schema: pa.Schema
    reader: SourceStreamReader


class TaskOwner:
    """Runs the rounds of one task on behalf of one executor. Used by one thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: TaskDescriptor,
        *,
        owner: str,
        lease: int,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        transform: RoundTransform,
        round_config: RoundConfig,
        errors: ErrorsConfig,
        clock: Clock,
    ) -> None:
        """`sources` and `sinks` are open and stay the caller's; the streams' readers and writers are this object's."""
        self.task = task
        self._sinks = sinks
        self._transform = transform
        self._limits = round_config.limits()
        self._errors = errors
        self._clock = clock
        flow_paths = paths.DataflowPaths(dataflow)
        self._source_paths = [flow_paths.source_stream(s.source, s.name) for s in task.sources]
        self._sink_paths = [paths.sink_stream(s.resource, s.name) for s in task.sinks]
        streams = [*self._source_paths, *self._sink_paths]
        self._ownership = TaskOwnership(registry, dataflow, task.name, owner, lease, streams)
        self._inputs = [
            _Input(s.source, s.name, paths.commit_log(path), sources[s.source].schema, sources[s.source].open_reader(s))
            for s, path in zip(task.sources, self._source_paths, strict=True)
        ]
        self._writers: dict[str, SinkStreamWriter] = {}
        self._owning = False

    # -- owning

    def take_over(self) -> None:
        """Lock, fence, recover: afterwards nothing is staged and all that was committed is visible. Raises
        StaleOwner.
        """
        self._disown()
        self._ownership.take()
        for stream, path in zip(self.task.sinks, self._sink_paths, strict=True):
            log_path = paths.commit_log(path)
            attempt = Attempt(self._ownership.owner, self._ownership.epoch, log_path)
            writer = self._sinks[stream.sink].open_writer(stream, attempt)
            self._writers[stream.sink] = writer
            writer.recover(self._ownership.logs[log_path].committed)
        new = [s for s in self._inputs if self._ownership.logs[s.log_path].position is None]
        if new:
            self._ownership.begin({source.log_path: source.reader.initial_position() for source in new})
        self._owning = True

    def release(self) -> None:
        """Give the task back between rounds: close the writers, then the locks."""
        self._disown()
        self._ownership.release()

    def close(self) -> None:
        """Release what this process holds, and nothing in the registry. Idempotent."""
        self._disown()
        for source in self._inputs:
            source.reader.close()

    def _disown(self) -> None:
        self._owning = False
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()

    # -- looking

    @property
    def owning(self) -> bool:
        """Whether `run_round` may be called; after an error in a round it may not, until `take_over`."""
        return self._owning

    def lag(self) -> int:
        """Records that lie between the task's positions and the ends of its source streams."""
        return sum(source.reader.lag(self._position(source)) for source in self._inputs)

    def ended(self) -> bool:
        """Whether every source stream was sealed and everything in it was committed."""
        return all(source.reader.ended(self._position(source)) for source in self._inputs)

    def wait(self, timeout_s: float) -> bool:
        """Block until one of the source streams has something to read, or the timeout."""
        share_s = timeout_s / len(self._inputs)
        return any(source.reader.wait(self._position(source), share_s) for source in self._inputs)

    def _position(self, source: _Input) -> Position:
        position = self._ownership.logs[source.log_path].position
        assert position is not None, "take_over comes first"
        return position

    # -- a round

    def run_round(self) -> RoundOutcome | None:
        """One round, or None when there is nothing to read just now, or the round was undone and can be tried again.

        Raises TransformationFailed, TooManyBadRecords (nothing was staged), StaleOwner, and what connectors raise.
        """
        begun_s = self._clock.monotonic_s()
        planned = self._plan()
        if not planned:
            return None
        outputs, bad = self._run(planned)
        ran_s = self._clock.monotonic_s()
        descriptors = self._stage(outputs)
        staged_s = self._clock.monotonic_s()
        number = self._commit(planned, descriptors)
        if number is None:
            return None
        committed_s = self._clock.monotonic_s()
        self._complete(descriptors)
        return RoundOutcome(
            round=number,
            records_in=sum(plan.records for plan in planned.values()),
            records_out=sum(d.records for d in descriptors.values()),
            records_bad=bad,
            plan_and_run_s=ran_s - begun_s,
            stage_s=staged_s - ran_s,
            commit_s=committed_s - staged_s,
            complete_s=self._clock.monotonic_s() - committed_s,
        )

    def _plan(self) -> dict[str, PlannedRange]:
        plans = {source.log_path: source.reader.plan(self._position(source), self._limits) for source in self._inputs}
        return {path: plan for path, plan in plans.items() if plan is not None}

    def _run(self, planned: Mapping[str, PlannedRange]) -> tuple[dict[str, list[pa.RecordBatch]], int]:
        splits: dict[str, list[ReadSplit]] = {source.source: [] for source in self._inputs}
        for source in self._inputs:
            if source.log_path in planned:
                splits[source.source].extend(planned[source.log_path].splits)
        try:
            return {name: list(batches) for name, batches in self._transform.run(splits).items()}, 0
        except TransformationFailed as error:
            isolated = self._isolate(planned)
            if isolated.bad and self._errors.sink is None:
                raise TransformationFailed(
                    f"{error}\n(at {isolated.bad[0].describe()})", reason=error.reason
                ) from error
        if isolated.bad and self._errors.sink is not None:
            isolated.outputs.setdefault(self._errors.sink, []).append(error_batch(isolated.bad))
        return isolated.outputs, len(isolated.bad)

    def _isolate(self, planned: Mapping[str, PlannedRange]) -> Isolated:
        pieces = []
        for source in self._inputs:
            if (plan := planned.get(source.log_path)) is not None:
                batches = [batch for split in plan.splits for batch in split.read()]
                rows = pa.Table.from_batches(batches, schema=source.schema)
                pieces.append(Piece(source.source, source.stream, plan.start, rows))
        missing = [s for s in self._inputs if all(piece.source != s.source for piece in pieces)]
        pieces += [Piece(s.source, s.stream, self._position(s), s.schema.empty_table()) for s in missing]
        stop_at_first = self._errors.action == "stop"
        return isolate(pieces, self._transform.run_tables, self._errors.records_max, stop_at_first=stop_at_first)

    def _stage(self, outputs: Mapping[str, Sequence[pa.RecordBatch]]) -> dict[str, CommitDescriptor]:
        self._owning = False  # until the round is complete: whatever goes wrong, `take_over` is the way back
        for sink, batches in outputs.items():
            for batch in batches:
                if batch.num_rows:
                    self._writers[sink].write(batch)
        prepared = {sink: writer.prepare_commit() for sink, writer in self._writers.items()}
        return {sink: descriptor for sink, descriptor in prepared.items() if descriptor is not None}

    def _commit(self, planned: Mapping[str, PlannedRange], descriptors: Mapping[str, CommitDescriptor]) -> int | None:
        """Move the commit logs and return the round's number, or None when the round turned out not to have happened.

        A stream that took no part keeps what its log says. In both cases the task is still owned.
        """
        moved = {path: self._ownership.moved(path, position=plan.end) for path, plan in planned.items()}
        for stream, path in zip(self.task.sinks, self._sink_paths, strict=True):
            log_path = paths.commit_log(path)
            changes = {"committed": descriptors[stream.sink]} if stream.sink in descriptors else {}
            moved[log_path] = self._ownership.moved(log_path, **changes)
        number = self._ownership.round + 1
        try:
            self._ownership.commit(moved)
        except CommitTooLarge:
            for writer in self._writers.values():
                writer.rollback()
            raise
        except (OutcomeUnknown, VersionConflict):
            self.take_over()
            return number if self._ownership.round == number else None
        return number

    def _complete(self, descriptors: Mapping[str, CommitDescriptor]) -> None:
        for sink, descriptor in descriptors.items():
            self._writers[sink].complete_commit(descriptor)
        self._owning = True
