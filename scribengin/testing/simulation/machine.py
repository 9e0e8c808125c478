"""The machine that containers run on: starts the engine's processes in simulated ones, and tells masters of their ends.

A container that is killed keeps its session at the servers until that expires, as a process does whose machine says
nothing any more. One that ends by itself closes its session in order, or is cut short by `end_at_once`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from scribengin.base.process.lifetime import EXIT_FAILED, EXIT_SESSION_LOST
from scribengin.errors import ScribenginError
from scribengin.launcher.contract import (
    ContainerDescriptor,
    ContainerExit,
    ContainerLauncher,
    ContainerRequest,
    ExitListener,
    LogName,
)
from scribengin.master.leadership import MasterSettings
from scribengin.master.process import Master
from scribengin.testing.simulation.people.rewinding import PROGRAM
from scribengin.testing.simulation.registry import SimulatedSession
from scribengin.testing.simulation.scheduler import ProcessEnded, SimulatedProcess, SimulatedThread
from scribengin.worker.host import WorkerHost
from scribengin.worker.process import WorkerProcess, WorkerSettings
from scribengin_registry.errors import SessionLost

if TYPE_CHECKING:
    from scribengin.testing.simulation.world import World

START_MAX_S = 0.5
"""Between the launch of a container and the first thing that its process does."""
SPARK_START_MAX_S = 1.0


@dataclass(eq=False)
class Container:
    """One container and its process."""

    descriptor: ContainerDescriptor
    request: ContainerRequest
    process: SimulatedProcess
    session: SimulatedSession | None = None
    exit: ContainerExit | None = None
    told: list[SimulatedLauncher] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What it is called among all there are."""
        return f"{self.descriptor.dataflow}/{self.descriptor.name}"

    @property
    def is_master(self) -> bool:
        """Whether it leads a dataflow, or stands by."""
        return "scribengin.master" in self.request.argv


class Machine:
    """Every container that was ever launched."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.containers: dict[str, Container] = {}

    @property
    def running(self) -> list[Container]:
        """Those that have not ended, oldest first."""
        return [container for container in self.containers.values() if container.exit is None]

    def has_master(self, dataflow: str) -> bool:
        """Whether a master of that dataflow runs."""
        return any(one.is_master and one.descriptor.dataflow == dataflow for one in self.running)

    def of(self, process: SimulatedProcess) -> Container | None:
        """The container of a process."""
        return next((c for c in self.containers.values() if c.process is process), None)

    def start(self, request: ContainerRequest) -> Container:
        """Have a container run, in a while."""
        world = self.world
        number = len(self.containers) + 1
        descriptor = ContainerDescriptor(
            id=f"{request.name}/{number}",
            registry=request.registry,
            dataflow=request.dataflow,
            name=request.name,
            memory_mb=request.memory_mb,
            cores=request.cores,
            launched_ms=world.now_ms(),
        )
        process = world.process(request.name)
        container = self.containers[descriptor.id] = Container(descriptor, request, process)
        process.died = partial(self._thread_died, container)
        main = partial(self._main, container, self._part_of(container))
        world.scheduler.spawn(process, "main", main, delay_s=world.scheduler.random.uniform(0.01, START_MAX_S))
        return container

    def end(self, container: Container, how: ContainerExit, *, closed: bool = False) -> None:
        """The process is no more. What this is called by ends with it, if it is a part of it."""
        if container.exit is not None:
            return
        container.exit = how
        world = self.world
        world.tell(f"{container.descriptor.name} has ended: {how.reason}")
        if container.session is not None and not closed:
            container.session.outlived(float("inf"))
        for launcher in container.told:
            launcher.tell(container)
        world.scheduler.end(container.process)

    def _main(self, container: Container, be: Callable[[Container, SimulatedSession], int]) -> None:
        world = self.world
        world.wait_for_servers()
        server = world.ensemble.drawn_server(world.scheduler.random)
        session = SimulatedSession(world, container.process, world.session_timeout_s, server=server)
        container.session = session
        if server is not None:
            world.tell("asks a server that may fall behind")
        try:
            with session:
                code = be(container, session)
        except ScribenginError as error:
            code = error.exit_code
            world.tell(f"ends by {error}")
        self.end(container, ContainerExit("exited", code, f"exit code {code}"), closed=True)

    def _part_of(self, container: Container) -> Callable[[Container, SimulatedSession], int]:
        if container.is_master:
            return self._be_master
        if PROGRAM in container.request.argv:
            return self._be_rewinder
        return self._be_worker if "scribengin.worker" in container.request.argv else self._be_client

    def _be_client(self, container: Container, session: SimulatedSession) -> int:
        self.world.streams.be_client(container, session)
        return 0

    def _be_rewinder(self, container: Container, session: SimulatedSession) -> int:
        self.world.rewinding.be_one(container, session)
        return 0

    def _be_worker(self, container: Container, session: SimulatedSession) -> int:
        world, name = self.world, container.descriptor.name

        def end_at_once(_event: str, message: str, code: int) -> NoReturn:
            world.tell(message)
            self.end(container, ContainerExit("exited", code, f"exit code {code}"))
            raise ProcessEnded(name)

        def start_transform(_opened: object, _name: str) -> object:
            world.scheduler.pass_time(world.scheduler.random.uniform(0.05, SPARK_START_MAX_S))
            return world.transform(container.descriptor.dataflow)

        host = WorkerHost(
            open_dataflow=world.open_dataflow,
            start_transform=start_transform,  # type: ignore[arg-type]  # as much of a RoundTransform as rounds need
            on_termination=lambda _told: None,
            end_at_once=end_at_once,
        )
        settings = WorkerSettings(container.descriptor.dataflow, name, name)
        try:
            return WorkerProcess(session, settings, world.clock, host).run()
        except SessionLost as error:
            end_at_once("session_lost", str(error), EXIT_SESSION_LOST)

    def _be_master(self, container: Container, session: SimulatedSession) -> int:
        world, name = self.world, container.descriptor.name
        settings = MasterSettings(
            container.descriptor.dataflow, name, world.home, world.plan.standbys, open_dataflow=world.open_dataflow
        )
        launcher = SimulatedLauncher(self, container.process)
        Master(session, launcher, settings, world.clock).run()
        return 0

    def _thread_died(self, container: Container, thread: SimulatedThread, error: BaseException) -> None:
        self.world.tell(f"{thread} died of {error!r}")
        self.world.errors.append(error)
        self.end(container, ContainerExit("exited", EXIT_FAILED, f"exit code {EXIT_FAILED}"))


class SimulatedLauncher(ContainerLauncher):
    """The launcher of one master."""

    def __init__(self, machine: Machine, process: SimulatedProcess) -> None:
        self._machine = machine
        self._process = process
        self._listeners: list[ExitListener] = []

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        self._machine.world.passed("launcher.launch:before", request.name)
        container = self._machine.start(request)
        container.told.append(self)
        self._machine.world.passed("launcher.launch:after", request.name)
        return container.descriptor

    def attach(self, container: ContainerDescriptor) -> None:
        found = self._machine.containers[container.id]
        found.told.append(self)
        if found.exit is not None:
            self.tell(found)

    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        return self._machine.containers[container.id].exit

    def kill(self, container: ContainerDescriptor) -> None:
        self._machine.world.passed("launcher.kill:before", container.name)
        found = self._machine.containers[container.id]
        self._machine.end(found, ContainerExit("killed", -9, "killed by its master"))

    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        return [c.descriptor for c in self._machine.running if c.descriptor.dataflow == dataflow]

    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        return ""

    def close(self) -> None:
        """The containers go on."""

    def on_exit(self, listener: ExitListener) -> None:
        self._listeners.append(listener)

    def tell(self, container: Container) -> None:
        """Its master hears of the end, on a thread of its own, in a while."""
        world = self._machine.world
        how = container.exit
        assert how is not None
        for listener in self._listeners:
            told = partial(listener, container.descriptor, how)
            world.scheduler.spawn(self._process, "container-exit", told, delay_s=world.latency_s())
