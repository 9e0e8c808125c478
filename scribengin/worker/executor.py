"""An executor: the thread that does, one after another, what its state wants done with its tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import log_context, tagged
from scribengin.base.text.counting import many
from scribengin.base.threads import background
from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import TaskAssignment
from scribengin.dataflow.round.bad_records import Isolating
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.errors import ScribenginError
from scribengin.worker import state
from scribengin.worker.failures import Failure, Remedy, remedy_for
from scribengin.worker.state import AssignedTask, ExecutorReport, ExecutorState
from scribengin.worker.task_runner import TaskRunner

_LOG = logging.getLogger(__name__)

OpenTask = Callable[[AssignedTask, Callable[[Isolating], None]], TaskRunner]
"""Opens a task whose owner tells the second how a search for bad records goes."""


class Executor:
    """One thread and its tasks. All methods but `_run` and what it calls are for other threads."""

    def __init__(
        self,
        name: str,
        open_task: OpenTask,
        clock: Clock,
        on_change: Callable[[], None],
        on_fatal: Callable[[Failure], None],
        on_round: Callable[[RoundOutcome], None],
        patience: PatienceConfig,
    ) -> None:
        """`on_change` is called when a report is worth writing, `on_fatal` when the whole worker is of no use any
        more, `on_round` when a round was committed."""
        self.name = name
        self._open_task = open_task
        self._clock = clock
        self._on_change = on_change
        self._on_fatal = on_fatal
        self._on_round = on_round
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._state = ExecutorState(patience)
        self._assignments: list[TaskAssignment] | None = None
        self._reconfigure: Callable[[TaskRunner], None] | None = None
        self._leaving = False
        self._idle = True
        self._owners: dict[AssignedTask, TaskRunner] = {}
        self._thread = background(name, self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def assign(self, assignments: Sequence[TaskAssignment]) -> None:
        """This is all that is assigned now; it counts from the next step on."""
        with self._lock:
            self._assignments = list(assignments)
            self._idle = False
        self._woken.set()

    def reconfigure(self, change: Callable[[TaskRunner], None], patience: PatienceConfig) -> None:
        """Have this done with every open task before its next step. Those that are opened from now on have it."""
        with self._lock:
            self._reconfigure = change
            self._state.reconfigure(patience)
        self._woken.set()

    def leave(self) -> None:
        """Give every task back, round by round."""
        with self._lock:
            self._leaving = True
            self._idle = False
        self._woken.set()

    def stop(self, timeout_s: float) -> None:
        """End the thread after its present step, and close the tasks, giving nothing back."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def report(self) -> ExecutorReport:
        """What there is to say just now. Thread-safe."""
        with self._lock:
            return self._state.report(self._clock.monotonic_s())

    @property
    def done(self) -> bool:
        """Whether everything was given back or closed."""
        with self._lock:
            return self._idle

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                step, change = self._next_step()
                if change is not None:
                    for owner in self._owners.values():
                        change(owner)
                self._do(step)
            for owner in self._owners.values():
                owner.close()
        except Exception as error:  # noqa: BLE001  the thread's outermost loop: the worker ends, and says why
            _LOG.warning(f"{self.name} of the worker ended: {error!r}", exc_info=error, extra=tagged("executor_ended"))
            self._on_fatal(Failure(Remedy.WORKER, f"{self.name} of the worker ended: {error!r}"))

    def _next_step(self) -> tuple[state.Step, Callable[[TaskRunner], None] | None]:
        with self._lock:
            change, self._reconfigure = self._reconfigure, None
            if self._assignments is not None:
                self._state.assigned(self._assignments, self._clock.monotonic_s())
                self._assignments = None
            if self._leaving:
                self._state.leave()
            self._idle = self._state.done
            return self._state.next_step(self._clock.monotonic_s()), change

    def _do(self, step: state.Step) -> None:
        if isinstance(step, state.Sleep):
            self._woken.wait(step.timeout_s)
            self._woken.clear()
            return
        try:
            with log_context(task=step.owned.task, round=self._next_round(step.owned)):
                self._perform(step)
        except SystemExit as error:  # of a user's function: of a thread it would be the end without a word
            self._failed(step.owned, RuntimeError(f"its code called sys.exit({error.code!r})"))
        except Exception as error:  # noqa: BLE001  whatever a connector raises is this task's, and in its report
            self._failed(step.owned, error)

    def _perform(self, step: state.Step) -> None:
        match step:
            case state.TakeOver(owned):
                self._owner(owned).take_over()
                self._tell(lambda: self._state.taken_over(owned))
                text = f"{owned.task} is taken over by {self.name} (generation {owned.generation})"
                _LOG.info(text, extra=tagged("task_taken_over", round=self._next_round(owned)))
            case state.RunRound(owned):
                outcome = self._owner(owned).run_round()
                now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
                self._tell(lambda: self._state.round_done(owned, outcome, now_ms, now_s))
                if outcome is not None:
                    self._on_round(outcome)
            case state.MeasureLag(owned):
                owner = self._owner(owned)
                lags, ended, kept, now_s = owner.lags(), owner.ended(), owner.state(), self._clock.monotonic_s()
                self._tell(lambda: self._state.looked(owned, lags, ended=ended, now_s=now_s, kept=kept))
            case state.Wait(owned, timeout_s):
                readable = self._owner(owned).wait(timeout_s)
                self._tell(lambda: self._state.waited(owned, readable=readable))
            case state.GiveBack(owned):
                self._close(owned)
                self._tell(lambda: self._state.gave_back(owned))
                _LOG.info(
                    f"{owned.task} is given back by {self.name} (generation {owned.generation})",
                    extra=tagged("task_given_back"),
                )
                self._on_change()
            case state.Discard(owned):
                self._discard(owned)

    def _isolating(self, owned: AssignedTask, step: Isolating) -> None:
        """What is told while a round goes on: at the begin and the end to the log, and always to the report."""
        self._tell(lambda: self._state.isolating(owned, self._clock.monotonic_s()))
        records = many(step.records, "record")
        if not step.runs:
            text = f"{owned.task}: a round of {records} failed ({step.reason}); its bad records are isolated"
            _LOG.info(text, extra=tagged("isolating", records=step.records, reason=step.reason))
        elif not step.pending:
            text = f"{owned.task}: {step.bad} bad among {records}, found with {many(step.runs, 'more run')}"
            _LOG.info(text, extra=tagged("isolated", records=step.records, bad=step.bad, runs=step.runs))
        self._on_change()

    def _failed(self, owned: AssignedTask, error: Exception) -> None:
        failure = remedy_for(error)
        trace = None if isinstance(error, ScribenginError) else error
        task, number = owned.task, self._next_round(owned)
        _LOG.warning(
            f"{task}: {failure.text}",
            exc_info=trace,
            extra=tagged("task_trouble", task=task, round=number, then=failure.remedy),
        )
        if failure.remedy is Remedy.WORKER:
            self._stopping.set()
            self._on_fatal(failure)
            return
        with self._lock:
            self._state.failed(owned, failure, self._clock.monotonic_s())
        self._on_change()

    def _next_round(self, owned: AssignedTask) -> int | None:
        """The number of the round that the task is in, or comes to next, as far as this is known."""
        done = self._owners[owned].round if owned in self._owners else None
        return None if done is None else done + 1

    def _owner(self, owned: AssignedTask) -> TaskRunner:
        if owned not in self._owners:
            self._owners[owned] = self._open_task(owned, lambda step: self._isolating(owned, step))
        return self._owners[owned]

    def _close(self, owned: AssignedTask) -> None:
        """Give the task's locks back and close it. If the first raises, the task is still open, and will be retried."""
        owner = self._owner(owned)
        owner.release()
        del self._owners[owned]
        owner.close()

    def _discard(self, owned: AssignedTask) -> None:
        """Close a task that is not ours any more, or has failed. Locks that do not go now go with the session."""
        owner = self._owners.pop(owned, None)
        if owner is None:
            return
        try:
            owner.release()
        finally:
            owner.close()

    def _tell(self, tell: Callable[[], None]) -> None:
        with self._lock:
            tell()
