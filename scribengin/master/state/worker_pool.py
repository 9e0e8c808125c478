"""The processes of a dataflow as its master sees them: workers and standby masters, launched, retired, lost,
replaced. Pure.

What keeps dying is started again later and later (`Backoff`): time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from scribengin.base.names import natural
from scribengin.dataflow.registry.descriptors import WorkerReport
from scribengin.master.state.events import KillContainer
from scribengin.master.state.facts import PooledWorker

REGISTER_TIMEOUT_S = 120.0
"""A worker that has not put itself down this long after there was room for it never will."""
LONG_WAIT_S = 30.0
"""A cluster that has no room for so long is worth a word."""
GRACE_S = 15.0
"""How long a worker that was removed may take to leave by itself."""
COMING_UP_MAX = 16
"""So many workers start at the same time on one machine: what is more waits until they have registered."""
_MASTER = "master-"
YOUNG_S = 30.0
"""What dies younger than this died of itself; what lived longer had a reason of the moment."""
_FIRST_DELAY_S = 1.0
_DELAY_MAX_S = 30.0


class WorkerPool:
    """Workers by name, and the standbys behind the master `master`."""

    def __init__(
        self, master: str, standbys: int, containers: Collection[str], now_s: float, is_foreign: Callable[[str], bool]
    ) -> None:
        """`containers` are the names of those that run; nobody knows since when, so they count as old. `is_foreign`:
        whether one of that name is an earlier dataflow's."""
        self._is_foreign = is_foreign
        self._master = master
        self._standbys_wanted = standbys
        self._worker_deaths = Backoff()
        self._standby_deaths = Backoff()
        self._last_death_s = now_s - YOUNG_S
        self._standbys: dict[str, float] = {}
        self.workers: dict[str, PooledWorker] = {}
        for name in containers:
            if is_foreign(name):
                self.workers[name] = PooledWorker(name, launched_s=now_s, foreign=True, retiring=True, kill_at_s=now_s)
            elif not name.startswith(_MASTER):
                self.workers[name] = PooledWorker(name, launched_s=now_s)
            elif name != master:
                self._standbys[name] = now_s - YOUNG_S

    def remember(self, before: WorkerPool) -> None:
        """Take over what an earlier pool of the same leadership knew: deaths, ages, and sessions that have ended."""
        self._worker_deaths = before._worker_deaths
        self._standby_deaths = before._standby_deaths
        self._last_death_s = before._last_death_s
        for name, worker in self.workers.items():
            if name in before.workers:
                worker.launched_s = before.workers[name].launched_s
                worker.alive = worker.alive and (before.workers[name].alive or not before.workers[name].registered)

    # -- what happened

    def registered(
        self, name: str, executors: tuple[str, ...], now_s: float, config_version: int | None = None
    ) -> None:
        """A worker has put itself down; its session stands."""
        worker = self.workers.setdefault(name, PooledWorker(name, launched_s=now_s, container=False))
        worker.executors = executors
        worker.registered = True
        worker.alive = True
        worker.gone = False
        worker.config_version = config_version
        if self._is_foreign(name):
            worker.foreign = worker.retiring = True

    def reported(self, report: WorkerReport) -> None:
        """A worker has said how it is."""
        worker = self.workers.get(report.worker)
        if worker is not None:
            worker.ready = report.spark_ready
            worker.leaving = report.leaving

    def lost(self, name: str) -> None:
        """A worker's session has ended."""
        if name in self.workers:
            self.workers[name].alive = False

    def exited(self, name: str, reason: str, *, killed: bool, now_s: float) -> tuple[str, str] | None:
        """A container has ended. What it was (`worker`, `standby`) and why, if nobody wanted that, else None."""
        if name in self._standbys:
            self._standby_deaths.died(now_s, now_s - self._standbys.pop(name))
            return "standby", reason
        worker = self.workers.get(name)
        if worker is None:
            return None
        worker.container = False
        worker.alive = False
        if worker.gone or not worker.registered:
            del self.workers[name]
        if worker.retiring or worker.leaving or (worker.gone and killed):
            return None
        self._worker_deaths.died(now_s, now_s - worker.launched_s)
        self._last_death_s = now_s
        return "worker", worker.kill_reason or reason

    def launched(self, name: str, now_s: float, config_version: int) -> None:
        """A worker is about to be launched, under that version of the config."""
        self.workers[name] = PooledWorker(name, launched_s=now_s, config_version=config_version)

    def waiting(self, names: Collection[str], now_s: float) -> list[str]:
        """The containers of `names` wait for room: that is no time in which a worker could have registered. Those that
        have waited for long already."""
        waiting = [worker for name, worker in self.workers.items() if name in names and not worker.registered]
        for worker in waiting:
            worker.room_since_s = now_s
        return sorted((w.name for w in waiting if now_s - w.launched_s >= LONG_WAIT_S), key=natural)

    def ageing(self, names: Collection[str]) -> list[str]:
        """The containers of `names` end in a while, and are to be replaced before. The workers of which that is new."""
        found = [worker for worker in self.workers.values() if worker.name in names and not worker.ageing]
        for worker in found:
            worker.ageing = True
        return sorted((worker.name for worker in found if worker.present), key=natural)

    def standby_launched(self, name: str, now_s: float) -> None:
        """A standby is about to be launched."""
        self._standbys[name] = now_s

    def removed(self, worker: PooledWorker, now_s: float) -> None:
        """Its nodes are about to be removed; it may take a while to leave by itself."""
        worker.gone = True
        worker.kill_at_s = now_s + GRACE_S
        if not worker.container:
            del self.workers[worker.name]

    # -- who there is

    def executors(self) -> dict[str, tuple[str, ...]]:
        """The executors that tasks may be given to, by worker."""
        return {worker.name: worker.executors for worker in self.workers.values() if worker.eligible}

    def names(self) -> list[str]:
        """The workers whose sessions stand."""
        return sorted((w.name for w in self.workers.values() if w.alive and not w.gone), key=natural)

    def anybody(self) -> bool:
        """Whether there is a worker that takes tasks, or will."""
        return any(worker.present for worker in self.workers.values())

    def nobody_left(self) -> bool:
        """Whether the last worker, and the last container of one, is gone."""
        return not self.workers

    def calm(self, wanted: int, now_s: float) -> list[str]:
        """Of what (`worker`, `standby`) all are there that are wanted, and none has died for a while."""
        workers = len(self.executors()) >= wanted and now_s - self._last_death_s >= YOUNG_S
        standbys = [name for name, since_s in self._standbys.items() if now_s - since_s >= YOUNG_S]
        return ["worker"] * workers + ["standby"] * (len(standbys) >= self._standbys_wanted)

    def coming_up(self) -> int:
        """How many workers were launched, and have not registered yet."""
        return sum(worker.present and not worker.registered for worker in self.workers.values())

    def retiring(self) -> list[PooledWorker]:
        """Workers that are to go as soon as they have given their tasks back."""
        return [worker for worker in self.workers.values() if worker.retiring and worker.registered and not worker.gone]

    # -- what to do

    def to_remove_lost(self) -> list[PooledWorker]:
        """Workers whose sessions have ended, and whose nodes still stand."""
        return [w for w in self.workers.values() if w.registered and not w.alive and not w.gone]

    def plan_workers(self, wanted: int, load: Mapping[str, int], now_s: float, since: int = 0) -> int:
        """Retire workers, or keep ones that were to retire, until `wanted` are left: how many must be launched.

        Those go first that have not come up yet, then those with the fewest tasks: what works is disturbed least.
        Workers that were started before version `since` of the config, or that age, are replaced one after the other:
        one more than wanted is launched, and when it takes tasks an old one goes.
        """
        present = [worker for worker in self.workers.values() if worker.present]
        present.sort(key=lambda w: (w.eligible, load.get(w.name, 0), [-w.launched_s], natural(w.name)))
        old = [worker for worker in present if worker.outdated(since)]
        if old:
            missing = self._plan_rolling(present, old, wanted, now_s)
        else:
            missing = wanted - len(present)
            for worker in present[: max(0, -missing)]:
                self._retire(worker, now_s)
        for worker in sorted(self.retiring(), key=lambda w: -load.get(w.name, 0)):
            kept = worker.alive and not (worker.leaving or worker.foreign or worker.outdated(since))
            if missing > 0 and kept:
                worker.retiring = False
                missing -= 1
        return max(0, missing) if self._worker_deaths.may_start(now_s) else 0

    def _plan_rolling(self, present: list[PooledWorker], old: list[PooledWorker], wanted: int, now_s: float) -> int:
        """Retire of the `old` ones whom the others can spare: how many must be launched."""
        working = sum(worker.eligible for worker in present)
        for worker in old:
            if len(present) > wanted and (working > wanted or not worker.eligible):
                working -= worker.eligible
                present.remove(worker)
                self._retire(worker, now_s)
        one_at_a_time = 1 if wanted and not self.retiring() and any(worker in present for worker in old) else 0
        return wanted + one_at_a_time - len(present)

    def to_dismiss(self, now_s: float) -> list[PooledWorker]:
        """At the end: everybody goes. Those whose nodes are to be removed; the others are killed where they are."""
        remaining = [worker for worker in self.workers.values() if not worker.gone]
        for worker in remaining:
            self._retire(worker, now_s)
        return [worker for worker in remaining if worker.registered]

    def standby_wanted(self, now_s: float) -> bool:
        """Whether another standby is to be launched now."""
        return len(self._standbys) < self._standbys_wanted and self._standby_deaths.may_start(now_s)

    def to_kill(self, now_s: float) -> list[KillContainer]:
        """Containers that are of no use and do not end by themselves, once each."""
        for worker in self.workers.values():
            since_s = worker.launched_s if worker.room_since_s is None else worker.room_since_s
            if not worker.registered and worker.kill_at_s is None and now_s - since_s >= REGISTER_TIMEOUT_S:
                worker.kill_at_s = now_s
                worker.kill_reason = f"it did not register within {REGISTER_TIMEOUT_S:.0f} s"
        due = [w for w in self.workers.values() if w.container and w.kill_at_s is not None and w.kill_at_s <= now_s]
        for worker in due:
            worker.kill_at_s = float("inf")
        return [KillContainer(worker.name) for worker in due]

    def _retire(self, worker: PooledWorker, now_s: float) -> None:
        worker.retiring = True
        if not worker.registered:
            worker.kill_at_s = now_s


def delay_s(failures: int) -> float:
    """How long to wait after so many failures in a row: not at all after the first, then ever longer."""
    return 0.0 if failures < 2 else min(_FIRST_DELAY_S * 2.0 ** (failures - 2), _DELAY_MAX_S)


@dataclass(slots=True)
class Backoff:
    """The deaths in a row of one kind of thing."""

    failures: int = 0
    not_before_s: float = 0.0

    def died(self, now_s: float, age_s: float) -> None:
        """One of them has died at this age."""
        self.failures = self.failures + 1 if age_s < YOUNG_S else 1
        self.not_before_s = now_s + delay_s(self.failures)

    def may_start(self, now_s: float) -> bool:
        """Whether another one may be started now."""
        return now_s >= self.not_before_s
