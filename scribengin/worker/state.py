"""What an executor does next with the tasks that it was given. Pure: no registry, no clock, no threads.

The shell asks `next_step`, does that one thing, and says how it went; in between it passes on what the master assigns.
A task, under one generation:

    new ──taken over──► running ◄──something to read / nothing──► idle
     ▲                    │                                        │
     └──error, try again──┴──────► (gives back) ◄──────────────────┘
                                       │
                       released · finished · failed · stale

The states of the last line are ends: only an assignment with a higher generation begins anew. In `new` nothing may be
assumed about what an earlier round left; `take_over` settles it. To release a task that is not owned it is taken over
first, so that nothing of a round is left half done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import EdgeRates, StreamLag, TaskAssignment, TaskReport, TaskState
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.spark.transform.spec import StateReport
from scribengin.worker.failures import Failure, Remedy
from scribengin.worker.progress import Flows, Progress, TaskFields

RETRIES_MIN = 5
"""So often an error that may pass is tried again, however long one try takes."""
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 10.0
WAIT_MAX_S = 2.0
"""Between two looks whether a system that is away has come back."""
LOOK_PERIOD_S = 1.0
LOOK_AFTER_ROUND_S = 0.1
IDLE_ROUND_S = 0.05
"""How long one turn through idle tasks takes, and so how late a new assignment may be seen."""
IDLE_SLICE_MIN_S = 0.001

Phase = Literal["new", "running", "idle", "released", "finished", "failed", "stale"]
_WORKING: tuple[Phase, ...] = ("new", "running", "idle")
_REPORTED: dict[Phase, TaskState] = {
    "new": "taking_over",
    "running": "running",
    "idle": "idle",
    "released": "released",
    "finished": "finished",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task under one generation: what a step is about."""

    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Open the task if it is not open, and take it over."""

    owned: AssignedTask


@dataclass(frozen=True, slots=True)
class RunRound:
    """Run one round, if there is something to read."""

    owned: AssignedTask


@dataclass(frozen=True, slots=True)
class MeasureLag:
    """See how far the task is behind, and whether its sources have come to their end."""

    owned: AssignedTask


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the task has something to read, or for that long."""

    owned: AssignedTask
    timeout_s: float


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Release the task, cleanly, and close it."""

    owned: AssignedTask


@dataclass(frozen=True, slots=True)
class Discard:
    """Close the task, and give back what can be given back: it is nothing to do with this executor any more."""

    owned: AssignedTask


@dataclass(frozen=True, slots=True)
class Sleep:
    """There is nothing to do, before so long or before something is assigned (None)."""

    timeout_s: float | None


Step = TakeOver | RunRound | MeasureLag | Wait | GiveBack | Discard | Sleep


@dataclass(slots=True)
class _Run:
    """One task under one generation."""

    owned: AssignedTask
    progress: Progress
    phase: Phase = "new"
    release: bool = False
    ended: bool = False
    tries: int = 0
    waits: int = 0
    troubled_s: float | None = None
    """Since when nothing but errors came, and, if `waiting`, systems that were away."""
    waiting: bool = False
    not_before_s: float = 0.0
    looked_s: float | None = None
    looked_rounds: int = 0
    error: str | None = None
    isolating: bool = False

    def report(self, now_s: float) -> TaskFields:
        owned, working = self.owned, self.phase in _WORKING
        counted = self.progress.report(now_s, busy=working and self.phase != "idle")
        if not working:
            counted["behind_s"] = 0.0
        counted["task"] = owned.task
        counted["generation"] = owned.generation
        counted["state"] = self._reported(working=working)
        counted["error"] = self.error
        return counted

    def _reported(self, *, working: bool) -> TaskState:
        if self.phase == "new" and self.waiting:
            return "waiting"
        return "isolating" if working and self.isolating else _REPORTED[self.phase]


class ExecutorReport(NamedTuple):
    """Each task, and what goes over the edges of those that are worked on: of one moment, so that the sums agree."""

    counted: list[TaskFields]
    flows: list[Flows]

    @classmethod
    def total(cls, reports: Sequence[ExecutorReport]) -> ExecutorReport:
        """Of several executors together."""
        counted = [task for report in reports for task in report.counted]
        return cls(counted, [flows for report in reports for flows in report.flows])

    @property
    def tasks(self) -> list[TaskReport]:
        """As they are told."""
        return [TaskReport.model_validate(task) for task in self.counted]

    @property
    def rates(self) -> EdgeRates:
        """The same, of all that are worked on."""
        return EdgeRates.total([EdgeRates(sources=sources, sinks=sinks) for sources, sinks in self.flows])


class ExecutorState:
    """The tasks of one executor, and whose turn it is."""

    def __init__(self, patience: PatienceConfig) -> None:
        self._patience = patience
        self._runs: dict[str, _Run] = {}
        self._discarded: list[AssignedTask] = []
        self._turn: list[str] = []
        self._leaving = False

    # -- what happened

    def assigned(self, assignments: Iterable[TaskAssignment], now_s: float) -> None:
        """This is all that is assigned now."""
        wanted = {assignment.task: assignment for assignment in assignments}
        for task in [task for task in self._runs if task not in wanted]:
            self._forget(self._runs.pop(task))
        for task, assignment in wanted.items():
            run = self._runs.get(task)
            if run is None or run.owned.generation < assignment.generation:
                if run is not None:
                    self._forget(run)
                run = self._runs[task] = _Run(AssignedTask(task, assignment.generation), Progress(now_s))
            if run.owned.generation == assignment.generation:
                run.release = run.release or assignment.release
        self._turn = [task for task in self._turn if task in wanted] + [t for t in wanted if t not in self._turn]

    def reconfigure(self, patience: PatienceConfig) -> None:
        """How long failing tasks are tried again, from the next error on."""
        self._patience = patience

    def leave(self) -> None:
        """Give everything back."""
        self._leaving = True

    def taken_over(self, owned: AssignedTask) -> None:
        """The task is owned: nothing is staged, everything committed is complete."""
        self._run(owned).phase = "running"

    def round_done(self, owned: AssignedTask, outcome: RoundOutcome | None, now_ms: int, now_s: float) -> None:
        """A round was committed, or (None) there was nothing to read. `now_ms` is for people."""
        run = self._run(owned)
        run.phase = "idle" if outcome is None else "running"
        run.isolating = False
        run.tries = 0
        run.waits = 0
        run.troubled_s = None
        run.waiting = False
        run.error = None
        if outcome is not None:
            run.progress.committed(outcome, now_ms, now_s)

    def isolating(self, owned: AssignedTask, now_s: float) -> None:
        """A round failed, and the search for its bad records has come a step further."""
        run = self._run(owned)
        run.isolating = True
        run.progress.moved(now_s)

    def waited(self, owned: AssignedTask, *, readable: bool) -> None:
        """The wait is over."""
        if readable:
            self._run(owned).phase = "running"

    def looked(
        self,
        owned: AssignedTask,
        lags: Sequence[StreamLag],
        *,
        ended: bool,
        now_s: float,
        kept: StateReport | None = None,
    ) -> None:
        """How far the task is behind, whether there will never be anything more to read, and what state it keeps."""
        run = self._run(owned)
        run.progress.looked(lags, now_s, kept)
        run.ended = ended
        run.looked_s = now_s
        run.looked_rounds = run.progress.rounds

    def gave_back(self, owned: AssignedTask) -> None:
        """The task was released."""
        run = self._run(owned)
        run.phase = "finished" if run.ended else "released"

    def failed(self, owned: AssignedTask, failure: Failure, now_s: float) -> None:
        """Something went wrong with the task, which is to be taken over again before anything else is done with it.

        If it is discarded already, that changes nothing.
        """
        run = self._runs.get(owned.task)
        if run is None or run.owned != owned or run.phase not in _WORKING:
            return
        run.isolating = False
        if failure.remedy is Remedy.DROP:
            run.phase = "stale"
        else:
            run.error = failure.text
            run.progress.failures += 1
            run.phase = "new" if self._tried_again(run, failure.remedy, now_s) else "failed"
        if run.phase != "new":
            self._discarded.append(owned)

    def _tried_again(self, run: _Run, remedy: Remedy, now_s: float) -> bool:
        """Whether the task is tried again, and if so, when."""
        if remedy is Remedy.FAIL:
            return False
        away = remedy is Remedy.AWAY
        if run.troubled_s is None or run.waiting != away:
            run.troubled_s = now_s
        run.waiting = away
        if remedy is Remedy.RETRY:
            run.tries += 1
            pause_s = min(RETRY_FIRST_S * 2.0 ** (run.tries - 1), RETRY_MAX_S)
        else:
            run.waits += 1
            pause_s = min(RETRY_FIRST_S * 2.0 ** min(run.waits - 1, 10), WAIT_MAX_S)
        run.not_before_s = now_s + pause_s
        troubled_s = now_s - run.troubled_s
        if away:
            return self._patience.away_s is None or troubled_s < self._patience.away_s
        return remedy is Remedy.PATIENT or run.tries <= RETRIES_MIN or troubled_s < self._patience.failing_s

    # -- what to do

    def next_step(self, now_s: float) -> Step:
        """The one thing to do now."""
        if self._discarded:
            return Discard(self._discarded.pop(0))
        ready = [run for run in self._working() if run.not_before_s <= now_s]
        giving_back = next((run for run in ready if run.phase != "new" and self._to_give_back(run)), None)
        if giving_back is not None:
            return GiveBack(giving_back.owned)
        unseen = next((run for run in ready if self._unseen(run, now_s)), None)
        if unseen is not None:
            return MeasureLag(unseen.owned)
        busy = any(run.phase != "idle" for run in ready)
        for run in ready:
            if run.phase == "new" or busy or self._to_look(run, now_s):
                return self._step(run, now_s)
        if ready:
            return self._wait(ready)
        return Sleep(self._until_retry(now_s))

    @property
    def done(self) -> bool:
        """Whether nothing is left to give back or to close."""
        return not self._discarded and not self._working()

    def report(self, now_s: float) -> ExecutorReport:
        """What there is to say. Of a stale task nothing: it is somebody else's."""
        counted = [run.report(now_s) for run in self._runs.values() if run.phase != "stale"]
        return ExecutorReport(counted, [run.progress.flows(now_s) for run in self._working()])

    def _working(self) -> list[_Run]:
        """The tasks that there is something to do with, in turn. Who leaves takes nothing over any more."""
        phases = _WORKING[1:] if self._leaving else _WORKING
        return [run for task in self._turn if (run := self._runs[task]).phase in phases]

    def _step(self, run: _Run, now_s: float) -> Step:
        if run.phase == "new":
            self._next_turn(run)
            return TakeOver(run.owned)
        if self._to_look(run, now_s):
            return MeasureLag(run.owned)
        self._next_turn(run)
        return RunRound(run.owned)

    def _wait(self, idle: list[_Run]) -> Step:
        run = idle[0]
        self._next_turn(run)
        return Wait(run.owned, max(IDLE_ROUND_S / len(idle), IDLE_SLICE_MIN_S))

    def _to_give_back(self, run: _Run) -> bool:
        return run.release or self._leaving or (run.ended and run.phase == "idle")

    def _to_look(self, run: _Run, now_s: float) -> bool:
        if run.looked_s is None:
            return True
        news = run.phase == "idle" and run.looked_rounds != run.progress.rounds
        return now_s - run.looked_s >= (LOOK_AFTER_ROUND_S if news else LOOK_PERIOD_S)

    def _unseen(self, run: _Run, now_s: float) -> bool:
        """Whether what is told of its lag has nothing to do with what it is: it was never looked up, or not since
        before a long round. That does not wait until other tasks have had their rounds, which may be as long."""
        if run.phase == "new":
            return False
        if run.looked_s is None:
            return True
        return run.looked_rounds != run.progress.rounds and now_s - run.looked_s >= LOOK_PERIOD_S

    def _until_retry(self, now_s: float) -> float | None:
        waiting = [run.not_before_s - now_s for run in self._working()]
        return max(0.0, min(waiting)) if waiting else None

    def _next_turn(self, run: _Run) -> None:
        self._turn.remove(run.owned.task)
        self._turn.append(run.owned.task)

    def _forget(self, run: _Run) -> None:
        if run.phase in _WORKING:
            self._discarded.append(run.owned)

    def _run(self, owned: AssignedTask) -> _Run:
        """The run that a step was about. A step is over before anything else is assigned, so it is still there."""
        run = self._runs[owned.task]
        assert run.owned == owned
        return run
