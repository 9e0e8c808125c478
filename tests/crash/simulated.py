"""Owners of the crash flow as simulated processes: the same code on a registry, a log store and files in memory, each
stopped as a case wants it. A case takes some hundredths of a second, so every stop is tried in every way.

The stand-ins pass the suites of what they stand for, and the same failpoints (`test_round_processes.py` compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from scribengin.base.failpoints import set_hook
from scribengin.errors import ScribenginError
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.registry import Loss
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.simulation.registry import SimulatedEnsemble, SimulatedSession
from scribengin.testing.simulation.scheduler import ProcessEnded, Scheduler, SimulatedProcess
from scribengin.testing.simulation.takeover import taken_over
from scribengin.testing.simulation.world import SimulatedClock
from tests.crash.comparing import wrong
from tests.crash.flow import Place, prepare, run_to_the_end
from tests.crash.stops import FINISHED, KILLED, STALE, Stop

_T = TypeVar("_T")
PROTOCOL = "in-memory"
PAUSE_S = 10_000.0
"""Of the cluster's time: whoever takes over is through long before that."""
_SESSION_S = 1_000_000.0
"""No session ends here: owners give way to generations."""
_LOOK_S = 0.05


@dataclass(eq=False)
class SimulatedOwner:
    """One owner of all tasks, from its start on."""

    process: SimulatedProcess
    stop: Stop | None = None
    passed: list[str] = field(default_factory=list)
    """The stops that it has passed, in order."""
    paused: bool = False
    code: int | None = None
    """How it ended."""


class Stage:
    """One case's place, and the owners that run there. All but `run` is for what `run` is given."""

    def __init__(
        self, tasks: int, scheduler: Scheduler, disk: MemoryDisk, files: MemoryFiles, kafka: MemoryKafka | None = None
    ) -> None:
        """With a `kafka`, the flow is the one that writes a topic."""
        self.scheduler = scheduler
        self.ensemble = SimulatedEnsemble(SimulatedClock(scheduler))
        self.ensemble.lose = self._lost
        self.files = files
        self._kafka = kafka
        self.place = Place(
            "",
            "topic" if kafka is not None else "",
            tasks,
            bootstrap=kafka.bootstrap if kafka is not None else "",
            files_path=f"{PROTOCOL}://odd",
            store=MEMORY_STORE,
            store_location=disk.name,
        )
        self._people = SimulatedProcess("test")
        self._owners: list[SimulatedOwner] = []
        self._losing: SimulatedProcess | None = None

    # -- cases

    def own_to_the_end(self, generation: int, stop: Stop | None = None) -> SimulatedOwner:
        """Run an owner until it has ended."""
        owner = self.start(generation, stop)
        self.finish(owner)
        return owner

    def start(self, generation: int, stop: Stop | None = None) -> SimulatedOwner:
        """Start an owner of all tasks of the flow, under `generation`."""
        owner = SimulatedOwner(SimulatedProcess(f"owner-{generation}"), stop)
        self._owners.append(owner)
        self.scheduler.spawn(owner.process, "main", lambda: self._own(owner, generation))
        return owner

    def finish(self, owner: SimulatedOwner) -> None:
        """Wait for its end."""
        while owner.code is None:
            self.scheduler.pass_time(_LOOK_S)

    def wait_until_paused(self, owner: SimulatedOwner) -> bool:
        """Wait until it is paused (True) or has ended without meeting its stop (False)."""
        while not owner.paused and owner.code is None:
            self.scheduler.pass_time(_LOOK_S)
        return owner.paused

    def outlast_pause(self) -> None:
        """Let so much time go by that whoever is paused goes on."""
        self.scheduler.pass_time(PAUSE_S)

    def session(self) -> SimulatedSession:
        """A session of the test's own. A stage is as much of a world as it needs."""
        return SimulatedSession(self, self._people, _SESSION_S)  # type: ignore[arg-type]

    @property
    def kafka(self) -> MemoryKafka:
        """The cluster of a stage that has one."""
        assert self._kafka is not None, "this flow writes no topic"
        return self._kafka

    def wrong(self, case: object) -> list[str]:
        """What is not as in an undisturbed run, now."""
        with self.session() as session:
            return wrong(self.place, session, case, self._committed)

    def _committed(self, place: Place, partition: int) -> list[bytes]:
        """Once all that was decided is visible."""
        self.kafka.write_marks()
        return [value or b"" for value in self.kafka.visible(place.topic, partition)]

    # -- what owners do

    def _own(self, owner: SimulatedOwner, generation: int) -> None:
        name = owner.process.name
        try:
            with SimulatedSession(self, owner.process, _SESSION_S) as session:  # type: ignore[arg-type]
                run_to_the_end(session, self.place, generation, name)
        except ScribenginError:
            owner.code = STALE
        except ProcessEnded:
            owner.code = KILLED
            raise
        else:
            owner.code = FINISHED
        self.scheduler.end(owner.process)

    def passed(self, stop: str, _about: str = "") -> None:
        """Somebody passes a stop, or comes to the registry or back from it."""
        scheduler = self.scheduler
        scheduler.refuse_ended()
        thread = scheduler.running
        if thread is None or thread.atomic:
            return
        owner = next((owner for owner in self._owners if owner.process is thread.process), None)
        if owner is not None and not stop.startswith("registry."):
            owner.passed.append(stop)
            if owner.stop is not None and stop == owner.stop.name:
                self._stopped(owner, owner.stop)
        scheduler.give_way()

    def _stopped(self, owner: SimulatedOwner, stop: Stop) -> None:
        if owner.passed.count(stop.name) != stop.occurrence:
            return
        if stop.action == "kill":
            self.scheduler.end(owner.process)
        elif stop.action == "lose_reply":
            self._losing = owner.process
        else:
            owner.paused = True
            self.scheduler.stall(owner.process, PAUSE_S)
            self.scheduler.pass_time(0.0)

    def _lost(self, _act: str, _path: str) -> Loss | None:
        thread = self.scheduler.running
        if thread is None or self._losing is not thread.process:
            return None
        self._losing = None
        return "reply"

    # -- what a simulated session asks of its world

    def later(
        self, seconds: float, name: str, run: Callable[[], object], process: SimulatedProcess | None = None
    ) -> None:
        """Have something done after so long."""
        self.scheduler.spawn(process or self._people, name, run, delay_s=seconds)

    def latency_s(self) -> float:
        """How long a word takes."""
        return 0.001

    def tell(self, _line: str) -> None:
        """Nobody writes a transcript."""

    # -- running

    def run(self, case: Callable[[Stage], _T]) -> _T:
        """What a case returns, on a flow that is made ready. Raises what it raises."""
        outcome: Future[_T] = Future()

        def play() -> None:
            try:
                with self.session() as session:
                    prepare(self.place, session)
                outcome.set_result(case(self))
            except Exception as error:  # noqa: BLE001  whoever asks for the result raises it
                outcome.set_exception(error)

        set_hook(self.passed)
        try:
            self.scheduler.spawn(self._people, "test", play)
            self.scheduler.run(outcome.done)
        finally:
            self.scheduler.close([self._people, *(owner.process for owner in self._owners)])
            set_hook(None)
        return outcome.result(timeout=0)


def simulated(tasks: int, case: Callable[[Stage], _T], seed: int = 0, *, kafka: bool = False) -> _T:
    """What a case returns that was run in a place of its own. `kafka`: of the flow that writes a topic. Raises what it
    raises."""
    scheduler = Scheduler(seed)
    # Made before anything is taken over: what they do, they do at once, whoever is killed or paused.
    disk, files = MemoryDisk("of the crash flow"), MemoryFiles(clock=SimulatedClock(scheduler))
    with files.opened_by(PROTOCOL), taken_over(scheduler):
        if not kafka:
            return Stage(tasks, scheduler, disk, files).run(case)
        with MemoryKafka("in-memory:9").serving() as cluster:  # who waits for its answers lets time go by
            return Stage(tasks, scheduler, disk, files, cluster).run(case)
