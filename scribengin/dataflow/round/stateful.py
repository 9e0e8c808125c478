"""A task with state and its rounds: each is one batch of a streaming query of Spark, committed with the commit logs.

Who moves what: the engine plans the ranges, of all source streams at once, and offers them to the query. Spark runs a
batch over them, and hands its output over. The owner stages it and commits; the commit logs name the checkpoint and
the batch. Only then Spark writes down that the batch is done, and with it which state holds. A batch without new
records, which only gives out what its watermark has closed, is a round like any other.

| before the crash            | then the query has           | and the next owner                                  |
|-----------------------------|------------------------------|-----------------------------------------------------|
| the batch was offered       | nothing, or the batch's plan | the batch runs (again), over the same range         |
| stage                       | its plan                     | rolls back; the batch runs again                    |
| commit                      | its plan; the logs name it   | completes; it runs again, for its state alone: its  |
|                             |                              | output is dropped, for it is there                  |
| commit, complete, and       | it is done                   | goes on with the next                               |
| Spark has written it down   |                              |                                                     |

Any other combination is of a checkpoint or a registry that was brought back from a copy, and is refused.

With an error route, a batch that fails is run again without what cannot be decoded: its query is started anew, and
finds the batch planned. What is left out is found by a look at the range, so whoever runs the batch again leaves out
the same. As long as looks find something, the next batch begins with one. What a function raises on still stops the
task: which record that was is not known once keys have met.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Unpack

import pyarrow as pa

from scribengin.base.commit_log import CommitLog, QueryBatch
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Position
from scribengin.base.text.counting import many
from scribengin.connectors.contract import PlannedAgain, PlannedRange
from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.round.bad_records import BadRecord, Piece, error_batch, failed_at, first_screened, screened
from scribengin.dataflow.round.checkpoints import OwnedCheckpoint, StateOfTask, registry_begun_ms
from scribengin.dataflow.round.key_looks import KeyedRange, KeyLooks
from scribengin.dataflow.round.rounds import RanRound, RoundOutcome, TaskInput, TaskParts, TaskRounds
from scribengin.dataflow.round.state.partitions import Divide, NameBatch, RunBatchFirst, TakeBack, next_step, way_back
from scribengin.dataflow.round.state.query import BatchQuery, Offsets, StreamTransform
from scribengin.dataflow.round.state.silence import Silence
from scribengin.errors import (
    CheckpointMismatch,
    ScribenginError,
    SparkUnavailable,
    StaleOwner,
    TransformationFailed,
)
from scribengin.spark.stateful.beats import beat_offset, beats_of, bound_beat, is_beats
from scribengin.spark.stateful.offers import BoundRange, Offset
from scribengin.spark.stateful.query import ExecutedBatch
from scribengin.spark.stateful.query_log import READ_AGAIN, QueryDirectory, QueryLog, take_back, take_schemas_along
from scribengin.spark.transform.spec import StateReport
from scribengin_registry.contract import Registry

FILES_MAX = 500
"""So many files of a stream a round reads at most: its query keeps in its log where each of them was read."""
_OLDER_COPY = (
    f"one of the two was brought back from an older copy; bring back the other one of that time, too, or {READ_AGAIN}"
)


@dataclass(frozen=True, slots=True)
class _Offered:
    """What the query was offered and has not taken yet."""

    planned: Mapping[str, PlannedRange]
    """By the path of the commit log."""
    offsets: Offsets


class StatefulRunner(TaskRounds):
    """Runs the rounds of one task whose transformation has state. Used by one thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: TaskDescriptor,
        *,
        transform: StreamTransform,
        state: StateOfTask,
        **parts: Unpack[TaskParts],
    ) -> None:
        """As TaskRounds."""
        super().__init__(registry, dataflow, task, **parts)
        self._registry = registry
        self._transform = transform
        self._state = state
        self._query: BatchQuery | None = None
        self._log: QueryLog
        self._named = QueryBatch(checkpoint="")
        """The last batch that was committed."""
        self._at: Offsets = {}
        """Where the query stands after it."""
        self._offered: _Offered | None = None
        self._committing = self._named
        self._silence: Silence
        self._key_looks: KeyLooks
        self._quiet = False
        """Whether the query has nothing to do before there are new records."""
        self._screening = False
        """Whether ranges are looked through before the query reads them."""
        self._owes = False
        """Whether the state has something due of a batch that another query has run: of itself this one does not see
        to it before there are records."""
        self._repeats = False
        """Whether the next batch is committed, and runs again for its state alone. What it was committed without, it is
        run without, whatever the config says of bad records by now."""
        self._late_routed = 0
        self._divides_next = False
        """Whether the state is divided anew once the query has run the batch that stands planned."""
        self._bad: list[BadRecord] = []
        """What the range that was bound last is read without."""

    def reconfigure(self, round_config: RoundConfig, errors: ErrorsConfig, paused: Collection[str]) -> None:
        super().reconfigure(round_config, errors, paused)
        self._limits = replace(self._limits, files_max=FILES_MAX)

    # -- owning

    def take_over(self) -> None:
        """As TaskRounds, and then the checkpoint moves here, and its query is started.

        Raises CheckpointMismatch when it and the commit logs contradict each other, and what starting the query raises.
        """
        self._stop_query()
        super().take_over()
        self._owning = False
        self._silence = Silence(self._state.silent_after, self._clock.monotonic_s())
        self._key_looks = KeyLooks(self._transform.misplaced)
        with self._staleness_first():
            self._start_query()
        self._owning = True

    def _start_query(self) -> None:
        directory = self._own_checkpoint().query
        take_schemas_along(directory)
        self._divides_next = self._divided(directory)
        self._refuse_mismatch()
        initial = {source: self._initial(source) for source in self._sources()}
        initial |= {beats_of(source): beat_offset(source, None) for source in self._state.silent_after}
        self._at = initial if self._named.number < 0 else self._log.offsets(self._named.number)
        self._offered = None
        self._quiet = False
        bound: list[BoundRange] = []
        self._repeats = self._log.done < self._log.planned == self._named.number
        if self._log.planned > self._log.done:
            self._offered, bound = self._planned_before(initial)
        read = None if self._log.planned < 0 else self._log.sources(self._log.planned)
        settled = self._log.planned == self._log.done >= 0
        owes = settled and self._log.owes
        self._query = self._transform.start(directory.url, initial, bound, read)
        self._owes = owes or (settled and self._query.by_clock)

    @contextmanager
    def _staleness_first(self) -> Iterator[None]:
        """Around what fails oddly once a later owner has moved the checkpoint: raises StaleOwner if one has."""
        try:
            yield
        except (CheckpointMismatch, FileNotFoundError, SparkUnavailable, TransformationFailed):
            self._ownership.refuse_if_stale()
            raise

    def release(self) -> None:
        self._stop_query()
        super().release()

    def close(self) -> None:
        self._stop_query()
        super().close()

    def ended(self) -> bool:
        """As TaskRounds, and the query has nothing left to give out."""
        return self._quiet and super().ended()

    def wait(self, timeout_s: float) -> bool:
        """As TaskRounds, and until a beat is due, or the query has run a batch by itself."""
        query = self._query
        if super().wait(timeout_s):
            return True
        with self._staleness_first():
            return query is not None and (query.has_batch() or bool(self._beats(query, {})))

    def state(self) -> StateReport | None:
        """As TaskRounds: how much its query has."""
        if self._query is None:
            return None
        with self._staleness_first():
            return self._query.state().model_copy(update={"late_routed": self._late_routed})

    def _has_batch(self, query: BatchQuery) -> bool:
        with self._staleness_first():
            return query.has_batch()

    def _stop_query(self) -> None:
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def _own_checkpoint(self) -> OwnedCheckpoint:
        """Raises CheckpointMismatch, StaleOwner, and what the registry and the file system raise. The checkpoint may be
        a later owner's of whom the registry knows nothing: then it was the registry that went back."""
        named = [log.batch for s in self._inputs if (log := self._ownership.logs[s.log_path]).batch is not None]
        if not named:
            checkpoint = self._state.checkpoints.begin(
                self._ownership.epoch, self._state.partitions, registry_begun_ms(self._registry)
            )
            self._name(QueryBatch(checkpoint=checkpoint.mark.name))
            return checkpoint
        self._named = max(named, key=lambda batch: batch.number)
        try:
            return self._state.checkpoints.take(self._named.checkpoint, self._ownership.epoch)
        except StaleOwner as stale:
            self._ownership.refuse_if_stale()
            raise CheckpointMismatch(f"{stale}, and the commit logs know of no such owner: {_OLDER_COPY}") from stale

    def _name(self, batch: QueryBatch) -> None:
        self._ownership.name_batch(batch, [one.log_path for one in self._inputs])
        self._named = batch

    def _divided(self, directory: QueryDirectory) -> bool:
        """Have the state in as many partitions as are wanted. Whether a batch has to run before."""
        wanted = self._state.partitions if self._state.fixed else None
        while True:
            self._log = QueryLog.read(directory)
            match next_step(self._named.number, self._log, wanted):
                case Divide(partitions):
                    self._refuse_mismatch()  # before anything is added to it
                    before = way_back(self._named.number, self._log)
                    with failpoint("state.divide"):
                        self._transform.divide(directory.url, partitions, before)
                case TakeBack(number):
                    self._refuse_mismatch()
                    take_back(directory, number)
                case NameBatch(number):
                    self._name(self._named.model_copy(update={"number": number, "start": None}))
                case RunBatchFirst():
                    return True
                case None:
                    return False

    def _refuse_mismatch(self) -> None:
        """Raises CheckpointMismatch unless the query and the commit logs have come to the same batch, or the query is
        one behind."""
        named, log = self._named.number, self._log
        logs = f"the commit logs name batch {named} of checkpoint {self._named.checkpoint}"
        if named not in (log.done, log.done + 1) or log.planned not in (log.done, log.done + 1) or named > log.planned:
            there = f"in {log.directory} batch {log.planned} is planned and {log.done} is done"
            raise CheckpointMismatch(f"{logs}, and {there}: {_OLDER_COPY}")
        self._refuse_other_sources()
        if named < 0:
            return
        ends = log.offsets(named)
        for one in self._inputs:
            at = _streams(ends, one.source).get(one.stream)
            if at is not None and at["at"] != self._position(one):
                raise CheckpointMismatch(
                    f"{logs} and position {self._position(one)} of {one.source}/{one.stream}, and in {log.directory} "
                    f"that batch ends at {at['at']}: {_OLDER_COPY}"
                )

    def _refuse_other_sources(self) -> None:
        """Raises CheckpointMismatch where the checkpoint has beats of other sources than those that may be silent."""
        if self._log.planned < 0:
            return
        offsets = self._log.offsets(self._log.planned)
        kept = {source for source in self._sources() if beats_of(source) in offsets}
        if kept != set(self._state.silent_after):
            raise CheckpointMismatch(
                f"the checkpoint in {self._log.directory} began with idle_after_s for {_listed(kept)}, and keeps that; "
                f"now {_listed(self._state.silent_after)} would have it: set state.watermarks back"
            )

    # -- a round

    def run_round(self) -> RoundOutcome | None:
        """One batch, committed, or None when there is nothing to do just now, or the round was undone.

        Raises TransformationFailed (nothing was staged), StaleOwner, CheckpointMismatch, SparkUnavailable, and what
        connectors raise. After any of them the task is taken over again.
        """
        begun_s = self._clock.monotonic_s()
        query = self._query
        assert query is not None, "take_over comes first"
        if self._divides_next and self._offered is None and not self._has_batch(query):
            self._owning = False
            with self._staleness_first():
                query = self._restarted()
            self._owning = True
        if self._offered is None and not self._has_batch(query) and not self._offer(query):
            return None
        planned_s = self._clock.monotonic_s()
        self._owning = False  # until the batch is committed: whatever goes wrong, `take_over` is the way back
        with self._staleness_first():
            query, batch = self._next_batch(query)
        if batch is None:
            self._nothing_came()
            return None
        if batch.number == self._named.number:  # it is committed, and its output is where it belongs
            self._offered = None
            self._repeats = False
            query.finish(batch)
            self._owning = True
            return self.run_round()
        with self._staleness_first():
            ends, planned = self._range_of(batch)
        bad = self._bad if planned else []
        outputs = self._accepted(self._with_error_records(batch.outputs, bad))
        committing = self._committing = self._named.model_copy(update={"number": batch.number, "start": None})
        outcome = self._end_round(RanRound(planned, outputs, begun_s, planned_s, len(bad)))
        if outcome is not None and self._state.late_sink is not None:
            self._late_routed += outcome.written.get(self._state.late_sink, 0)
        if self._query is query:  # else it was taken over meanwhile, and another query runs the batch again
            self._named = committing
            self._at = ends
            # What the clock makes due later, the query runs by itself.
            self._quiet = query.by_clock and not planned and not any(b.num_rows for of in outputs.values() for b in of)
            self._screening = bool(bad) if planned else self._screening
            self._hear(planned)  # once more: the round may have taken as long as a source may be silent
            query.finish(batch)
        return outcome

    def _next_batch(self, query: BatchQuery) -> tuple[BatchQuery, ExecutedBatch | None]:
        """The query's next batch; if it fails and bad records have a route, that of a query started anew, without what
        cannot be decoded."""
        try:
            return query, query.next_batch()
        except TransformationFailed as error:
            if self._errors.action != "route" and not self._repeats:
                if (record := self._first_undecodable()) is not None:
                    raise failed_at(error, record) from error
                raise
            if self._screening:
                self._screening = False
                raise
        self._screening = True
        again = self._restarted()
        return again, again.next_batch()

    def _restarted(self) -> BatchQuery:
        self._stop_query()
        self._start_query()
        assert self._query is not None, "it was just started"
        return self._query

    def _first_undecodable(self) -> BadRecord | None:
        """The first record of the batch that failed that cannot be decoded, if there is one."""
        offered = self._offered
        if offered is None:
            return None
        with suppress(ScribenginError, OSError):  # what cannot be read again just now must not hide the failure
            if self._log.offsets(self._named.number + 1) != offered.offsets:
                return None  # it was a batch without records, which the state had due
            return first_screened(self._pieces(offered.planned), self._transform.undecodable)
        return None

    def _with_error_records(
        self, outputs: Mapping[str, Sequence[pa.RecordBatch]], bad: Sequence[BadRecord]
    ) -> Mapping[str, Sequence[pa.RecordBatch]]:
        sink = self._errors.sink
        if not bad or sink is None:
            return outputs
        return {**outputs, sink: [error_batch(bad, self._owned.writers[sink].payload_bytes_max)]}

    def _called(self, sink: str) -> str:
        late = sink == self._state.late_sink
        return f"state.late: a late record, for sink '{sink}'" if late else super()._called(sink)

    def _offer(self, query: BatchQuery) -> bool:
        """Offer what there is to read, or nothing, for what the state has due; whether either was to be done."""
        planned = {one.log_path: self._exact(one, plan) for one, plan in self._planned_inputs()}
        beats = self._beats(query, planned)
        if not planned and not beats and self._quiet:
            return False
        late = {} if self._state.late_sink is None or not planned else {"watermark_ms": query.watermark()}
        ends = {**self._at, **{source: self._end(source, planned, late) for source in self._sources()}, **beats}
        if ends == self._at and self._owes:
            first = self._sources()[0]
            ends[first] = {**ends[first], "owed_by": self._named.number}
        for bound in self._bound(self._at, ends, planned):
            query.bind(bound)
        query.offer(ends)
        self._offered = _Offered(planned, ends)
        self._owes = False
        return True

    def _beats(self, query: BatchQuery, planned: Mapping[str, PlannedRange]) -> Offsets:
        """Where the beats end that are due to silent sources, by the source that has them."""
        self._hear(planned)
        silent = self._silence.silent(self._clock.monotonic_s())
        if not silent:
            return {}
        due = self._silence.beats(silent, query.watermarks())
        ends = {beats_of(source): beat_offset(source, at_ms) for source, at_ms in due.items()}
        return {source: end for source, end in ends.items() if end != self._at[source]}

    def _hear(self, planned: Mapping[str, PlannedRange]) -> None:
        """Of whom there is something to read. Of a paused source nobody knows: it is not silent."""
        heard = {one.source for one in self._inputs if one.log_path in planned}
        self._silence.heard(heard | self._paused, self._clock.monotonic_s())

    def _planned_inputs(self) -> list[tuple[TaskInput, PlannedRange]]:
        plans = self._plan()
        return [(one, plans[one.log_path]) for one in self._inputs if one.log_path in plans]

    def _exact(self, one: TaskInput, plan: PlannedRange) -> PlannedRange:
        """The same range, with the end that it has when it is planned again."""
        if plan.again is not None:
            return plan
        return one.reader.plan_again(PlannedAgain(plan.start, plan.end, plan.records, None)) or plan

    def _bound(self, starts: Offsets, ends: Offsets, planned: Mapping[str, PlannedRange]) -> list[BoundRange]:
        """What the sources' ranges read. Raises TooManyBadRecords, RecordMisplaced."""
        self._key_looks.refuse_misplaced(self._keyed(planned), self._clock.monotonic_s())
        without = self._screened(planned)
        bound = []
        for source, end in ends.items():
            if end == starts[source]:
                continue
            if is_beats(source):
                bound.append(bound_beat(starts[source], end))
            else:
                of_source = [one for one in self._inputs if one.source == source and one.log_path in planned]
                read = [one.splits(planned[one.log_path], without.get(one.log_path)) for one in of_source]
                splits = list(itertools.chain.from_iterable(read))
                bound.append(BoundRange(starts[source], end, splits))
        return bound

    def _keyed(self, planned: Mapping[str, PlannedRange]) -> list[KeyedRange]:
        """The ranges of divided sources."""
        return [
            KeyedRange(one.source, one.stream, one.number, planned[one.log_path], one.schema)
            for one in self._inputs
            if one.number is not None and one.log_path in planned
        ]

    def _screened(self, planned: Mapping[str, PlannedRange]) -> Mapping[str, Collection[int]]:
        """By the commit log's path, which records of the ranges to leave out, where ranges are looked through."""
        self._bad = []
        if not self._screening or not (self._repeats or self._errors.action == "route"):
            return {}
        bad_max = None if self._repeats else self._errors.records_max
        self._bad = screened(self._pieces(planned), self._transform.undecodable, bad_max)
        return {
            one.log_path: {bad.index for bad in self._bad if (bad.source, bad.stream) == (one.source, one.stream)}
            for one in self._inputs
        }

    def _pieces(self, planned: Mapping[str, PlannedRange]) -> list[Piece]:
        return [one.piece(planned[one.log_path]) for one in self._inputs if one.log_path in planned]

    def _nothing_came(self) -> None:
        offered, self._offered = self._offered, None
        if offered is not None and offered.offsets != self._at:
            raise SparkUnavailable(f"the query of task {self._owned.task.name} ran no batch over what it was offered")
        self._quiet = True
        self._owning = True

    def _range_of(self, batch: ExecutedBatch) -> tuple[Offsets, Mapping[str, PlannedRange]]:
        """Where the sources' ranges end in a batch, and the ranges. Raises CheckpointMismatch for a batch that nobody
        here has offered, or whose state would be in a directory that lacks what was before."""
        if self._named.number >= 0:
            self._log.refuse_lost(self._named.number)
        ends = self._log.offsets(batch.number)
        if batch.number == self._named.number + 1:
            if self._offered is not None and ends == self._offered.offsets:
                offered, self._offered = self._offered, None
                return ends, offered.planned
            if ends == self._at:
                return ends, {}  # the state had something due before the offer was seen
        raise CheckpointMismatch(
            f"the query in {self._log.directory} runs batch {batch.number} up to {ends}, and after batch "
            f"{self._named.number} this owner has offered {self._offered and self._offered.offsets}: somebody else "
            "writes there; look for a process that was not ended"
        )

    def _planned_before(self, initial: Offsets) -> tuple[_Offered, list[BoundRange]]:
        """The batch that was planned and is not done, and what it reads. Raises CheckpointMismatch when that cannot be
        read as it was."""
        number = self._log.planned
        starts = self._log.offsets(number - 1) if number > 0 else initial
        ends = self._log.offsets(number)
        planned = {}
        for one in self._inputs:
            end = _streams(ends, one.source).get(one.stream)
            start = _streams(starts, one.source).get(one.stream, {"at": self._start_of(one, number)})["at"]
            if end is None or end["at"] == start:
                continue
            plan = one.reader.plan_again(PlannedAgain(start, end["at"], end["records"], end.get("again")))
            if plan is None or (plan.end, plan.records) != (end["at"], end["records"]):
                raise CheckpointMismatch(
                    f"batch {number} in {self._log.directory} reads {many(end['records'], 'record')} of "
                    f"{one.source}/{one.stream} from {start} to {end['at']}, and they end at {plan and plan.end} now: "
                    f"{_OLDER_COPY}"
                )
            planned[one.log_path] = plan
        return _Offered(planned, ends), self._bound(starts, ends, planned)

    def _moved_sources(self, planned: Mapping[str, PlannedRange]) -> dict[str, CommitLog]:
        """All of them: each says which batch was the last, whether it has a part in it or not."""
        moved = {}
        for one in self._inputs:
            plan = planned.get(one.log_path)
            batch = self._committing.model_copy(update={"start": None if plan is None else plan.start})
            changes = {"batch": batch} if plan is None else {"batch": batch, "position": plan.end}
            moved[one.log_path] = self._ownership.moved(one.log_path, **changes)
        return moved

    # -- offsets

    def _sources(self) -> list[str]:
        return list(dict.fromkeys(one.source for one in self._inputs))

    def _initial(self, source: str) -> Offset:
        """Where a source's streams began, for the query's first batch."""
        of_source = [one for one in self._inputs if one.source == source]
        streams = {one.stream: {"at": self._start_of(one, 0), "records": 0} for one in of_source}
        return {"source": source, "streams": streams}

    def _start_of(self, one: TaskInput, number: int) -> Position:
        """Where a batch begins to read a stream that the query had not read before."""
        batch = self._ownership.logs[one.log_path].batch
        if batch is not None and batch.number == number and batch.start is not None:
            return batch.start
        return self._position(one)

    def _end(self, source: str, planned: Mapping[str, PlannedRange], late: Mapping[str, int]) -> Offset:
        """Where a source's streams end once what is planned is read, and what is `late` of that; as it is, if nothing
        is."""
        read = {
            one.stream: _ended(plan)
            for one in self._inputs
            if one.source == source and (plan := planned.get(one.log_path)) is not None
        }
        if not read:
            return self._at[source]
        others = {s: {"at": at["at"], "records": at["records"]} for s, at in self._at[source]["streams"].items()}
        return {"source": source, "streams": {**others, **read}, **late}


def _listed(sources: Collection[str]) -> str:
    return ", ".join(sorted(sources)) or "no source"


def _ended(plan: PlannedRange) -> dict[str, Any]:
    """Where a stream ends, in an offset, and what it takes to plan what is read up to there again."""
    return {"at": plan.end, "records": plan.records, **({} if plan.again is None else {"again": plan.again})}


def _streams(offsets: Offsets, source: str) -> Mapping[str, dict[str, Any]]:
    """By stream, where it ends and how many records that were."""
    return dict(offsets.get(source, {}).get("streams", {}))
