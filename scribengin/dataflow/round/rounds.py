"""What every way to run a task's rounds has in common: owning the task, looking at its source streams, and from a
round's output on to its end: stage, commit, complete. What makes the output is for those who run rounds (runner.py).

What may go wrong from the output on, and what then holds:

| in       | what                     | then                                                                      |
|----------|--------------------------|---------------------------------------------------------------------------|
| stage    | anything                 | not owning; the next `take_over` rolls back                               |
| stage    | a coordinator is fenced  | take over again, which raises StaleOwner if it is somebody else's now     |
| commit   | too large                | rolled back, raised                                                       |
| commit   | the reply is lost        | take over again, from oneself: the commit logs say whether it was applied |
| commit   | a version does not match | take over again, which raises StaleOwner if it is somebody else's now     |
| commit   | a source's era differs   | sent again, if all commit logs of sources are as this owner left them     |
| commit   | the decision is unknown  | take over again: the coordinator is fenced, and asked                     |
| complete | anything                 | not owning; the next `take_over` completes                                |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, Unpack

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
from scribengin.connectors.odd_records import MarkingSplit
from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.dataflow.registry.descriptors import StreamLag, TaskDescriptor
from scribengin.dataflow.round.bad_records import Piece
from scribengin.dataflow.round.long_records import BoundedSplit, splits_without
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import (
    CommitTooLarge,
    DecisionUnknown,
    RecordRefused,
    RecordTooLarge,
    TransformationFailed,
)
from scribengin.spark.transform.spec import StateReport
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, VersionConflict


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
class TaskInput:
    """One source stream of the task: where its positions are kept, and its open reader."""

    source: str
    stream: str
    log_path: str
    schema: pa.Schema
    reader: SourceStreamReader
    record_bytes_max: int | None
    number: int | None = None
    """As of the stream's descriptor."""

    def splits(self, plan: PlannedRange, without: Collection[int] | None = None) -> list[RecordSplit]:
        """What the transformation reads of a range; where that was looked through, `without` these records, by their
        numbers: all that nobody may be given are among them."""
        if without is not None:
            return splits_without(plan.splits, without)
        return [self._refusing(split) for split in plan.splits]

    def _refusing(self, split: RecordSplit) -> RecordSplit:
        if self.record_bytes_max is None and not isinstance(split, MarkingSplit):
            return split
        return BoundedSplit(split, self.record_bytes_max)

    def piece(self, plan: PlannedRange) -> Piece:
        """The same records in hand."""
        return Piece.read(self.source, self.stream, plan, self.schema, self.record_bytes_max)


@dataclass(frozen=True, slots=True)
class RanRound:
    """A round that has run, and nothing of it is staged: what was read, what came of it, and when."""

    planned: Mapping[str, PlannedRange]
    """By the path of the commit log."""
    outputs: Mapping[str, Sequence[pa.RecordBatch]]
    """By sink."""
    begun_s: float
    planned_s: float
    records_bad: int = 0


class TaskParts(TypedDict):
    """What rounds of a task are made of. `sources` and `sinks` are open and stay the caller's."""

    owner: str
    """Unique to this attempt."""
    generation: int
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    round_config: RoundConfig
    errors: ErrorsConfig
    clock: Clock
    paused: NotRequired[Collection[str]]
    """The sources of which nothing is read."""
    member: NotRequired[str | None]
    """The node of the worker that this is (TaskCommitLogs)."""


class TaskRounds:
    """Owns one task on behalf of one executor, and brings its rounds to their end. Used by one thread."""

    def __init__(self, registry: Registry, dataflow: str, task: TaskDescriptor, **parts: Unpack[TaskParts]) -> None:
        """The streams' readers and writers are this object's. Raises what opening a source stream raises."""
        self.reconfigure(parts["round_config"], parts["errors"], parts.get("paused", ()))
        self._clock = parts["clock"]
        self._owned = TaskOwner(
            registry,
            dataflow,
            task,
            owner=parts["owner"],
            generation=parts["generation"],
            sinks=parts["sinks"],
            member=parts.get("member"),
        )
        self._ownership = self._owned.ownership
        self._inputs = [
            self._opened(s, log_path, parts["sources"][s.source])
            for s, log_path in zip(task.sources, self._owned.source_logs, strict=True)
        ]
        self._owning = False

    def _opened(self, stream: SourceStreamDescriptor, log_path: str, source: Source) -> TaskInput:
        reader = source.open_reader(stream)
        return TaskInput(
            stream.source, stream.name, log_path, source.schema, reader, source.record_bytes_max, stream.number
        )

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

    def state(self) -> StateReport | None:
        """How much is kept from round to round; None: nothing."""
        return None

    def wait(self, timeout_s: float) -> bool:
        """Block until one of the source streams has something to read, or the timeout."""
        read = self._read()
        if not read:
            pause(timeout_s)
            return False
        return any(source.reader.wait(self._position(source), timeout_s / len(read)) for source in read)

    def _read(self) -> list[TaskInput]:
        """The source streams of sources that are not paused."""
        return [source for source in self._inputs if source.source not in self._paused]

    def _position(self, source: TaskInput) -> Position:
        position = self._ownership.logs[source.log_path].position
        assert position is not None, "take_over comes first"
        return position

    # -- a round

    def _plan(self) -> dict[str, PlannedRange]:
        plans = {source.log_path: source.reader.plan(self._position(source), self._limits) for source in self._read()}
        return {path: plan for path, plan in plans.items() if plan is not None}

    def _accepted(self, outputs: Mapping[str, Sequence[pa.RecordBatch]]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """The same, unless a sink says beforehand that it cannot take one of these: then what it was made of is bad.

        The mistake to avoid is to find that out while staging, when a round cannot be bisected any more.
        """
        for sink, batches in outputs.items():
            for batch in batches:
                try:
                    self._owned.writers[sink].check(batch)
                except (RecordTooLarge, RecordRefused) as error:
                    raise TransformationFailed(f"{self._called(sink)}: {error}", reason=str(error)) from error
        return outputs

    def _called(self, sink: str) -> str:
        """A sink, to people."""
        return f"sink '{sink}'"

    def _end_round(self, ran: RanRound) -> RoundOutcome | None:
        """Stage, commit, complete; None when the round turned out not to have happened. Raises StaleOwner, and what
        connectors raise."""
        ran_s = self._clock.monotonic_s()
        try:
            descriptors = self._stage(ran.outputs)
        except DecisionUnknown:  # fenced: by a later owner, which taking over tells, or by a late one, which has lost
            self.take_over()
            return None
        staged_s = self._clock.monotonic_s()
        number = self._commit(ran.planned, descriptors)
        if number is None:
            return None
        committed_s = self._clock.monotonic_s()
        if not self._owning:  # else it was taken over since, and completed with that
            self._complete(descriptors)
        for source in self._inputs:
            if source.log_path in ran.planned:
                source.reader.committed(ran.planned[source.log_path].end)
        return RoundOutcome(
            round=number,
            read=self._read_by_source(ran.planned),
            written=self._written_by_sink(descriptors),
            records_bad=ran.records_bad,
            plan_s=ran.planned_s - ran.begun_s,
            run_s=ran_s - ran.planned_s,
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

    def _written_by_sink(self, descriptors: Mapping[str, CommitDescriptor]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for stream, log_path in zip(self._owned.task.sinks, self._owned.sink_logs, strict=True):
            if log_path in descriptors:
                counts[stream.sink] += descriptors[log_path].records
        return counts

    def _stage(self, outputs: Mapping[str, Sequence[pa.RecordBatch]]) -> dict[str, CommitDescriptor]:
        """What is staged and durable, by the path of the sink stream's commit log."""
        self._owning = False  # until the round is complete: whatever goes wrong, `take_over` is the way back
        writers = self._owned.writers
        for sink, batches in outputs.items():
            for batch in batches:
                if batch.num_rows:
                    writers[sink].write(batch)
        return {path: descriptor for sink in writers.values() for path, descriptor in sink.prepare_commit().items()}

    def _commit(self, planned: Mapping[str, PlannedRange], descriptors: Mapping[str, CommitDescriptor]) -> int | None:
        """Move the commit logs and return the round's number, or None when the round turned out not to have happened.

        A stream that took no part keeps what its log says. In both cases the task is still owned.
        """
        moved = self._moved_sources(planned)
        for log_path in self._owned.sink_logs:
            changes = {"committed": descriptors[log_path]} if log_path in descriptors else {}
            moved[log_path] = self._ownership.moved(log_path, **changes)
        number = self._ownership.round + 1
        try:
            self._ownership.commit(self._decided(moved, number))
        except CommitTooLarge:
            for writer in self._owned.stream_writers.values():
                writer.rollback()
            raise
        except (OutcomeUnknown, VersionConflict, DecisionUnknown):
            self.take_over()
            return number if self._ownership.round == number else None
        return number

    def _moved_sources(self, planned: Mapping[str, PlannedRange]) -> dict[str, CommitLog]:
        """The commit logs of source streams as the round leaves them."""
        return {path: self._ownership.moved(path, position=plan.end) for path, plan in planned.items()}

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
        writers = self._owned.stream_writers
        for log_path, descriptor in descriptors.items():
            writers[log_path].complete_commit(descriptor)
        self._owning = True
