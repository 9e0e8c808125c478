"""A task and its rounds: plan, run, stage, commit, complete (docs/internals/round.md).

The owner of a task is always in one of three conditions, and `take_over` leads to the second from each of them:

    not owning      at first, after `release`, and after any error that leaves something open
    owning          nothing is staged, everything committed is complete: `run_round` may be called
    in a round      inside `run_round`

What may go wrong, and what then holds:

| in        | what                     | then                                                                      |
|-----------|--------------------------|---------------------------------------------------------------------------|
| plan, run | the user's code raises   | isolate; route or raise; nothing is staged, still owning                   |
| run       | a sink refuses a record  | the same                                                                  |
| stage     | anything                 | not owning; the next `take_over` rolls back                               |
| stage     | a coordinator is fenced  | take over again, which raises StaleOwner if it is somebody else's now     |
| commit    | too large                | rolled back, raised                                                       |
| commit    | the reply is lost        | take over again, from oneself: the commit logs say whether it was applied |
| commit    | a version does not match | take over again, which raises StaleOwner if it is somebody else's now     |
| commit    | the decision is unknown  | take over again: the coordinator is fenced, and asked                     |
| complete  | anything                 | not owning; the next `take_over` completes                                |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitDescriptor, CommitLog, Decision
from scribengin.base.model import Position
from scribengin.base.threads import pause
from scribengin.connectors.contract import (
    PlannedRange,
    RecordSplit,
    Sink,
    Source,
    SourceStreamDescriptor,
    SourceStreamReader,
)
from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.dataflow.registry.descriptors import StreamLag, TaskDescriptor
from scribengin.dataflow.round.bad_records import Isolated, Isolating, Piece, error_batch, isolate
from scribengin.dataflow.round.long_records import BoundedSplit
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import (
    CommitTooLarge,
    DecisionUnknown,
    RecordRefused,
    RecordTooLarge,
    TransformationFailed,
)
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, VersionConflict


class RoundTransform(Protocol):
    """The user's transformation over the ranges of one round (scribengin.spark.Transformation is the one).

    Outputs are batches with a `payload` column, by sink. Raises TransformationFailed for whatever the user's code or
    data did; anything else is the engine's or Spark's trouble and says nothing about the records.
    """

    def run(self, inputs: Mapping[str, Sequence[RecordSplit]]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Transform planned ranges; splits in order, one list a source (empty where there is nothing to read)."""
        ...

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """The same on records in hand, for finding the bad ones. Several threads may call it at once."""
        ...

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Mapping[int, str]]:
        """The rows that cannot be decoded, by source, and why: one look at all of them."""
        ...

    def raising(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Collection[int]]:
        """The rows on which the user's code seems to raise, by source: one look at all of them, which may be wrong."""
        ...


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """One committed round: counts of records, read by source and written by sink, and how long it took by phase."""

    round: int
    read: Mapping[str, int]
    written: Mapping[str, int]
    records_bad: int
    plan_s: float
    run_s: float
    prepare_s: float
    commit_s: float
    complete_s: float
    errors_sink: str | None = None

    @property
    def records_in(self) -> int:
        """From all sources."""
        return sum(self.read.values())

    @property
    def records_out(self) -> int:
        """Into all sinks but that of bad records, which are counted as such."""
        return sum(records for sink, records in self.written.items() if sink != self.errors_sink)

    @property
    def total_s(self) -> float:
        """From plan to complete."""
        return sum(self.phases_s.values())

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds by the names that reports and metrics use (`PhaseTimes`)."""
        return {
            "plan": self.plan_s,
            "run": self.run_s,
            "prepare": self.prepare_s,
            "commit": self.commit_s,
            "complete": self.complete_s,
        }


@dataclass(frozen=True, slots=True)
class _Input:
    """One source stream of the task: where its positions are kept, and its open reader."""

    source: str
    stream: str
    log_path: str
    schema: pa.Schema
    reader: SourceStreamReader
    record_bytes_max: int | None

    def splits(self, plan: PlannedRange) -> list[RecordSplit]:
        """What the transformation reads of a range."""
        if self.record_bytes_max is None:
            return list(plan.splits)
        return [BoundedSplit(split, self.record_bytes_max) for split in plan.splits]

    def piece(self, plan: PlannedRange) -> Piece:
        """The same records in hand."""
        return Piece.read(self.source, self.stream, plan, self.schema, self.record_bytes_max)


class RoundRunner:
    """Runs the rounds of one task on behalf of one executor. Used by one thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: TaskDescriptor,
        *,
        owner: str,
        generation: int,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        transform: RoundTransform,
        round_config: RoundConfig,
        errors: ErrorsConfig,
        clock: Clock,
        paused: Collection[str] = (),
        member: str | None = None,
        isolating: Callable[[Isolating], None] = lambda _: None,
    ) -> None:
        """`sources` and `sinks` are open and stay the caller's; the streams' readers and writers are this object's.
        Of the sources `paused` nothing is read. `member` is the node of the worker that this is (TaskCommitLogs).
        `isolating` is told how the search for bad records goes."""
        self._transform = transform
        self._isolating = isolating
        self.reconfigure(round_config, errors, paused)
        self._clock = clock
        self._owned = TaskOwner(
            registry, dataflow, task, owner=owner, generation=generation, sinks=sinks, member=member
        )
        self._ownership = self._owned.ownership
        self._inputs = [
            self._opened(s, log_path, sources[s.source])
            for s, log_path in zip(task.sources, self._owned.source_logs, strict=True)
        ]
        self._owning = False

    def _opened(self, stream: SourceStreamDescriptor, log_path: str, source: Source) -> _Input:
        reader = source.open_reader(stream)
        return _Input(stream.source, stream.name, log_path, source.schema, reader, source.record_bytes_max)

    def reconfigure(self, round_config: RoundConfig, errors: ErrorsConfig, paused: Collection[str]) -> None:
        """What counts from the next round on: how much one may read, when errors stop it, which sources are paused."""
        self._limits = round_config.limits()
        self._errors = errors
        self._paused = frozenset(paused)

    # -- owning

    def take_over(self) -> None:
        """Lock, fence, decide, recover: afterwards nothing is staged and all that was committed is visible. Raises as
        `TaskOwner.take_over`.
        """
        self._owning = False
        self._owned.take_over()
        new = [s for s in self._inputs if self._ownership.logs[s.log_path].position is None]
        if new:
            self._ownership.begin({source.log_path: source.reader.initial_position() for source in new})
        self._owning = True

    def release(self) -> None:
        """Give the task back between rounds: close the writers, then the locks."""
        self._owning = False
        self._owned.release()

    def close(self) -> None:
        """Release what this process holds, and nothing in the registry. Idempotent."""
        self._owning = False
        self._owned.disown()
        for source in self._inputs:
            source.reader.close()

    # -- looking

    @property
    def owning(self) -> bool:
        """Whether `run_round` may be called; after an error in a round it may not, until `take_over`."""
        return self._owning

    @property
    def round(self) -> int | None:
        """The number of the last round that was committed; None before the first `take_over`."""
        return self._ownership.round if self._ownership.logs else None

    def lag(self) -> int:
        """Records that lie between the task's positions and the ends of its source streams."""
        return sum(stream.records for stream in self.lags())

    def lags(self) -> list[StreamLag]:
        """The same, stream by stream."""
        return [
            StreamLag(
                source=s.source,
                stream=s.stream,
                records=s.reader.lag(self._position(s)),
                paused=s.source in self._paused,
            )
            for s in self._inputs
        ]

    def ended(self) -> bool:
        """Whether every source stream was sealed and everything in it was committed. Of a paused one nobody knows."""
        return all(s.source not in self._paused and s.reader.ended(self._position(s)) for s in self._inputs)

    def wait(self, timeout_s: float) -> bool:
        """Block until one of the source streams has something to read, or the timeout."""
        read = self._read()
        if not read:
            pause(timeout_s)
            return False
        return any(source.reader.wait(self._position(source), timeout_s / len(read)) for source in read)

    def _read(self) -> list[_Input]:
        """The source streams of sources that are not paused."""
        return [source for source in self._inputs if source.source not in self._paused]

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
        planned_s = self._clock.monotonic_s()
        outputs, bad = self._run(planned)
        ran_s = self._clock.monotonic_s()
        try:
            descriptors = self._stage(outputs)
        except DecisionUnknown:  # fenced: by a later owner, which taking over tells, or by a late one, which has lost
            self.take_over()
            return None
        staged_s = self._clock.monotonic_s()
        number = self._commit(planned, descriptors)
        if number is None:
            return None
        committed_s = self._clock.monotonic_s()
        if not self._owning:  # else it was taken over since, and completed with that
            self._complete(descriptors)
        for source in self._inputs:
            if source.log_path in planned:
                source.reader.committed(planned[source.log_path].end)
        return RoundOutcome(
            round=number,
            read=self._read_by_source(planned),
            written={sink: descriptor.records for sink, descriptor in descriptors.items()},
            records_bad=bad,
            plan_s=planned_s - begun_s,
            run_s=ran_s - planned_s,
            prepare_s=staged_s - ran_s,
            commit_s=committed_s - staged_s,
            complete_s=self._clock.monotonic_s() - committed_s,
            errors_sink=self._errors.sink,
        )

    def _read_by_source(self, planned: Mapping[str, PlannedRange]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for source in self._inputs:
            if source.log_path in planned:
                counts[source.source] += planned[source.log_path].records
        return counts

    def _plan(self) -> dict[str, PlannedRange]:
        plans = {source.log_path: source.reader.plan(self._position(source), self._limits) for source in self._read()}
        return {path: plan for path, plan in plans.items() if plan is not None}

    def _run(self, planned: Mapping[str, PlannedRange]) -> tuple[dict[str, list[pa.RecordBatch]], int]:
        splits: dict[str, list[RecordSplit]] = {source.source: [] for source in self._inputs}
        for source in self._inputs:
            if source.log_path in planned:
                splits[source.source].extend(source.splits(planned[source.log_path]))
        try:
            outputs = self._accepted(self._transform.run(splits))
            return {name: list(batches) for name, batches in outputs.items()}, 0
        except TransformationFailed as error:
            isolated = self._isolate(planned, error.reason)
            if isolated.bad and self._errors.action == "stop":
                raise TransformationFailed(
                    f"{error}\n(at {isolated.bad[0].describe()})", reason=error.reason
                ) from error
        if isolated.bad and self._errors.sink is not None:
            bytes_max = self._owned.writers[self._errors.sink].payload_bytes_max
            isolated.outputs.setdefault(self._errors.sink, []).append(error_batch(isolated.bad, bytes_max))
        return isolated.outputs, len(isolated.bad)

    def _isolate(self, planned: Mapping[str, PlannedRange], reason: str) -> Isolated:
        pieces = []
        for source in self._inputs:
            if (plan := planned.get(source.log_path)) is not None:
                pieces.append(source.piece(plan))
        missing = [s for s in self._inputs if all(piece.source != s.source for piece in pieces)]
        pieces += [Piece(s.source, s.stream, self._position(s), s.schema.empty_table()) for s in missing]
        stop_at_first = self._errors.action == "stop"
        return isolate(
            pieces,
            self._run_tables,
            self._transform.undecodable,
            self._errors.records_max,
            raising=self._transform.raising,
            stop_at_first=stop_at_first,
            reason=reason,
            told=self._isolating,
        )

    def _run_tables(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        return self._accepted(self._transform.run_tables(inputs))

    def _accepted(self, outputs: Mapping[str, Sequence[pa.RecordBatch]]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """The same, unless a sink says beforehand that it cannot take one of these: then what it was made of is bad.

        The mistake to avoid is to find that out while staging, when a round cannot be bisected any more.
        """
        for sink, batches in outputs.items():
            for batch in batches:
                try:
                    self._owned.writers[sink].check(batch)
                except (RecordTooLarge, RecordRefused) as error:
                    raise TransformationFailed(f"sink '{sink}': {error}", reason=str(error)) from error
        return outputs

    def _stage(self, outputs: Mapping[str, Sequence[pa.RecordBatch]]) -> dict[str, CommitDescriptor]:
        self._owning = False  # until the round is complete: whatever goes wrong, `take_over` is the way back
        writers = self._owned.writers
        for sink, batches in outputs.items():
            for batch in batches:
                if batch.num_rows:
                    writers[sink].write(batch)
        prepared = {sink: writer.prepare_commit() for sink, writer in writers.items()}
        return {sink: descriptor for sink, descriptor in prepared.items() if descriptor is not None}

    def _commit(self, planned: Mapping[str, PlannedRange], descriptors: Mapping[str, CommitDescriptor]) -> int | None:
        """Move the commit logs and return the round's number, or None when the round turned out not to have happened.

        A stream that took no part keeps what its log says. In both cases the task is still owned.
        """
        moved = {path: self._ownership.moved(path, position=plan.end) for path, plan in planned.items()}
        for stream, log_path in zip(self._owned.task.sinks, self._owned.sink_logs, strict=True):
            changes = {"committed": descriptors[stream.sink]} if stream.sink in descriptors else {}
            moved[log_path] = self._ownership.moved(log_path, **changes)
        number = self._ownership.round + 1
        try:
            self._ownership.commit(self._decided(moved, number))
        except CommitTooLarge:
            for writer in self._owned.writers.values():
                writer.rollback()
            raise
        except (OutcomeUnknown, VersionConflict, DecisionUnknown):
            self.take_over()
            return number if self._ownership.round == number else None
        return number

    def _decided(self, moved: dict[str, CommitLog], number: int) -> dict[str, CommitLog]:
        """The commit logs as they may move at once: after the transaction coordinator has committed the round, if it
        takes part in it."""
        coordinator = self._owned.coordinator
        if coordinator is None or not coordinator.staged:
            return moved
        decision = Decision(coordinator=coordinator.name, epoch=self._ownership.epoch, round=number)
        coordinator.prepare(decision)
        moved = self._ownership.prepare(moved, decision)
        coordinator.commit()
        return moved

    def _complete(self, descriptors: Mapping[str, CommitDescriptor]) -> None:
        for sink, descriptor in descriptors.items():
            self._owned.writers[sink].complete_commit(descriptor)
        self._owning = True
