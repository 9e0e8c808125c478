"""What a master knows about its workers and tasks between two decisions. Plain values; state.py changes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from scribengin.dataflow.registry.descriptors import TaskReport
from scribengin.master.state.spreading import Slot


@dataclass(slots=True)
class PooledWorker:
    """One worker, from its launch until nothing of it is left."""

    name: str
    launched_s: float
    container: bool = True
    """Its container runs, as far as we know."""
    executors: tuple[str, ...] = ()
    registered: bool = False
    alive: bool = False
    """Its session stands."""
    ready: bool = False
    """Its Spark session has started."""
    leaving: bool = False
    """It was told by somebody to end, and says so."""
    config_version: int | None = None
    """The version of the config that it was started with; None: nobody knows yet."""
    retiring: bool = False
    """There shall be fewer workers: it is to give its tasks back, and then to go."""
    ageing: bool = False
    """What it was given to show who it is ends in a while."""
    gone: bool = False
    """Its nodes are removed; what may be left is its container."""
    foreign: bool = False
    """It is of an earlier dataflow of this name, which was deleted: it gets nothing, and goes at once."""
    room_since_s: float | None = None
    """Until then, its container was seen waiting for room; None: never."""
    kill_at_s: float | None = None
    kill_reason: str = ""

    @property
    def present(self) -> bool:
        """Whether it counts as one of those that the config asks for."""
        return not (self.gone or self.retiring or self.leaving) and (self.alive or not self.registered)

    @property
    def eligible(self) -> bool:
        """Whether tasks may be given to it."""
        return self.present and self.registered and self.ready

    def outdated(self, since: int) -> bool:
        """Whether another one is to take its place: it was started before the config was at that version, or ages."""
        return self.ageing or (self.config_version is not None and self.config_version < since)


@dataclass(slots=True)
class TaskPlace:
    """Where a task stands, by which generation. `done`: its executor has given it back, finished it or failed."""

    slot: Slot
    generation: int
    release: bool = False
    done: bool = False


@dataclass(slots=True)
class Recoveries:
    """How long the tasks of lost workers take to run again."""

    _waiting: dict[str, tuple[float, set[str]]] = field(default_factory=dict)

    def lost(self, worker: str, tasks: set[str], now_s: float) -> None:
        """These tasks of a worker run no longer."""
        if tasks:
            self._waiting[worker] = (now_s, tasks)

    def runs(self, task: str, now_s: float) -> list[str]:
        """A task runs. Returns a line for each worker whose last task this was."""
        for _, tasks in self._waiting.values():
            tasks.discard(task)
        over = [worker for worker, (_, tasks) in self._waiting.items() if not tasks]
        return [f"the tasks of {w} run again, {now_s - self._waiting.pop(w)[0]:.1f} s after its loss" for w in over]


MAINTENANCE_TRIES_MAX = 5


@dataclass(slots=True)
class LastMaintenance:
    """The sinks' last maintenance: to be asked for until it succeeds, or has failed often enough."""

    asked: bool = False
    done: bool = False
    failures: int = 0

    def to_ask(self) -> bool:
        """Whether it must be asked for now. Then it counts as asked for."""
        before, self.asked = self.asked, True
        return not before and not self.done

    def take_back(self) -> bool:
        """The dataflow goes on: it is for another end. Whether it was asked for, or done, meanwhile."""
        begun = self.asked or self.done or bool(self.failures)
        self.asked = self.done = False
        self.failures = 0
        return begun

    def forget_asking(self) -> None:
        """What was decided may not have been carried out: it is asked for again, which does no harm."""
        self.asked = self.done

    def heard(self, error: str | None) -> None:
        """It has been done, or has failed."""
        if self.asked:
            self.failures += error is not None
            self.done = error is None or self.failures >= MAINTENANCE_TRIES_MAX
            self.asked = self.done


def runs(report: TaskReport) -> bool:
    """Whether a task does its work again, as its owner says."""
    return report.state in ("running", "isolating", "idle", "finished")
