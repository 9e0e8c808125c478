"""An executor: the thread that does, one after another, what its state wants done with its tasks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence

from scribengin.clock import Clock
from scribengin.dataflow.descriptors import TaskAssignment, TaskReport
from scribengin.dataflow.round import TaskOwner
from scribengin.errors import ScribenginError
from scribengin.worker import state
from scribengin.worker.failures import Failure, Remedy, judge
from scribengin.worker.state import ExecutorState, Owned

OpenTask = Callable[[Owned], TaskOwner]


class Executor:
    """One thread and its tasks. All methods but `_run` and what it calls are for other threads."""

    def __init__(
        self,
        name: str,
        open_task: OpenTask,
        clock: Clock,
        on_change: Callable[[], None],
        on_fatal: Callable[[Failure], None],
    ) -> None:
        """`on_change` is called when a report is worth writing, `on_fatal` when the whole worker is of no use any
        more."""
        self.name = name
        self._open_task = open_task
        self._clock = clock
        self._on_change = on_change
        self._on_fatal = on_fatal
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._state = ExecutorState()
        self._assignments: list[TaskAssignment] | None = None
        self._leaving = False
        self._idle = True
        self._owners: dict[Owned, TaskOwner] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def assign(self, assignments: Sequence[TaskAssignment]) -> None:
        """This is all that is assigned now; it counts from the next step on."""
        with self._lock:
            self._assignments = list(assignments)
            self._idle = False
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

    def reports(self) -> list[TaskReport]:
        """What there is to say about each task."""
        with self._lock:
            return self._state.reports()

    @property
    def done(self) -> bool:
        """Whether everything was given back or closed."""
        with self._lock:
            return self._idle

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._do(self._next_step())
            for owner in self._owners.values():
                owner.close()
        except Exception as error:  # noqa: BLE001  the thread's outermost loop: the worker ends, and says why
            traceback.print_exc()
            self._on_fatal(Failure(Remedy.WORKER, f"{self.name} of the worker ended: {error!r}"))

    def _next_step(self) -> state.Step:
        with self._lock:
            if self._assignments is not None:
                self._state.assigned(self._assignments)
                self._assignments = None
            if self._leaving:
                self._state.leave()
            self._idle = self._state.done
            return self._state.next_step(self._clock.monotonic_s())

    def _do(self, step: state.Step) -> None:
        if isinstance(step, state.Sleep):
            self._woken.wait(step.timeout_s)
            self._woken.clear()
            return
        try:
            self._perform(step)
        except Exception as error:  # noqa: BLE001  whatever a connector raises is this task's, and in its report
            self._failed(step.owned, error)

    def _perform(self, step: state.Step) -> None:
        match step:
            case state.TakeOver(owned):
                self._owner(owned).take_over()
                self._tell(lambda: self._state.taken_over(owned))
            case state.RunRound(owned):
                outcome = self._owner(owned).run_round()
                self._tell(lambda: self._state.round_done(owned, outcome, self._clock.now_ms()))
            case state.Look(owned):
                owner = self._owner(owned)
                lag, ended, now_s = owner.lag(), owner.ended(), self._clock.monotonic_s()
                self._tell(lambda: self._state.looked(owned, lag, ended=ended, now_s=now_s))
            case state.Wait(owned, timeout_s):
                readable = self._owner(owned).wait(timeout_s)
                self._tell(lambda: self._state.waited(owned, readable=readable))
            case state.GiveBack(owned):
                self._close(owned)
                self._tell(lambda: self._state.gave_back(owned))
                self._on_change()
            case state.Discard(owned):
                self._discard(owned)

    def _failed(self, owned: Owned, error: Exception) -> None:
        failure = judge(error)
        if not isinstance(error, ScribenginError):
            traceback.print_exception(error)
        if failure.remedy is Remedy.WORKER:
            self._stopping.set()
            self._on_fatal(failure)
            return
        with self._lock:
            self._state.failed(owned, failure, self._clock.monotonic_s())
        self._on_change()

    def _owner(self, owned: Owned) -> TaskOwner:
        if owned not in self._owners:
            self._owners[owned] = self._open_task(owned)
        return self._owners[owned]

    def _close(self, owned: Owned) -> None:
        """Give the task's locks back and close it. If the first raises, the task is still open, and will be retried."""
        owner = self._owner(owned)
        owner.release()
        del self._owners[owned]
        owner.close()

    def _discard(self, owned: Owned) -> None:
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
