"""A task and its rounds without state: plan, run, stage, commit, complete (docs/internals/round.md).

The owner of a task is always in one of three conditions, and `take_over` leads to the second from each of them:

    not owning      at first, after `release`, and after any error that leaves something open
    owning          nothing is staged, everything committed is complete: `run_round` may be called
    in a round      inside `run_round`

What may go wrong before there is output, and what then holds (from then on: rounds.py):

| in        | what                     | then                                                                      |
|-----------|--------------------------|---------------------------------------------------------------------------|
| plan, run | the user's code raises   | isolate; route or raise; nothing is staged, still owning                   |
| run       | a sink refuses a record  | the same                                                                  |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Protocol, Unpack

import pyarrow as pa

from scribengin.connectors.contract import PlannedRange, RecordSplit
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.round.bad_records import Isolated, Isolating, Piece, error_batch, failed_at, isolate
from scribengin.dataflow.round.rounds import RanRound, RoundOutcome, TaskParts, TaskRounds
from scribengin.errors import TransformationFailed
from scribengin_registry.contract import Registry


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

    def raising(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Mapping[int, str]]:
        """The rows on which the user's code seems to raise, by source, and what: one look at all of them, which may be
        wrong. What is empty where it is not sure which row it was."""
        ...


RaisedBefore = MutableMapping[str, str]
"""What records of a task's last round raised, by the task, if looks named all of these: its next begins with looks."""


class RoundRunner(TaskRounds):
    """Runs the rounds of one task whose records are transformed one by one. Used by one thread."""

    def __init__(
        self,
        registry: Registry,
        dataflow: str,
        task: TaskDescriptor,
        *,
        transform: RoundTransform,
        isolating: Callable[[Isolating], None] = lambda _: None,
        raised_before: RaisedBefore | None = None,
        **parts: Unpack[TaskParts],
    ) -> None:
        """As TaskRounds. `isolating` is told how the search for bad records goes. `raised_before` outlives this owner
        where another one of the task may follow it in this process."""
        super().__init__(registry, dataflow, task, **parts)
        self._transform = transform
        self._isolating = isolating
        self._task_name = task.name
        self._raised_before: RaisedBefore = {} if raised_before is None else raised_before

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
        return self._end_round(RanRound(planned, outputs, begun_s, planned_s, bad))

    def _run(self, planned: Mapping[str, PlannedRange]) -> tuple[dict[str, list[pa.RecordBatch]], int]:
        splits: dict[str, list[RecordSplit]] = {source.source: [] for source in self._inputs}
        for source in self._inputs:
            if source.log_path in planned:
                splits[source.source].extend(source.splits(planned[source.log_path]))
        raised = self._raised_before.pop(self._task_name, None)
        if raised is not None:
            isolated = self._isolate(planned, raised, believed=True)
        else:
            try:
                outputs = self._accepted(self._transform.run(splits))
                return {name: list(batches) for name, batches in outputs.items()}, 0
            except TransformationFailed as error:
                isolated = self._isolate(planned, error.reason)
                if isolated.bad and self._errors.action == "stop":
                    raise failed_at(error, isolated.bad[0]) from error
        if isolated.believed:
            self._raised_before[self._task_name] = isolated.bad[0].reason
        if isolated.bad and self._errors.sink is not None:
            bytes_max = self._owned.writers[self._errors.sink].payload_bytes_max
            isolated.outputs.setdefault(self._errors.sink, []).append(error_batch(isolated.bad, bytes_max))
        return isolated.outputs, len(isolated.bad)

    def _isolate(self, planned: Mapping[str, PlannedRange], reason: str, *, believed: bool = False) -> Isolated:
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
            believed=believed,
            reason=reason,
            told=self._isolating,
        )

    def _run_tables(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Sequence[pa.RecordBatch]]:
        return self._accepted(self._transform.run_tables(inputs))
