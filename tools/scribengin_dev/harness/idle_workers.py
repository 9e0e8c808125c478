"""Many dataflows on one registry: the real masters, each with a session of its own, and workers that do no work.

A worker of these registers, watches what it is assigned, and reports it, by the rules and with the nodes of a real one;
its tasks are idle at once, and given back when they are asked for. One thread does that for all of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.process import lifetime
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import TaskReport, WorkerDescriptor, WorkerReport
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import (
    ContainerDescriptor,
    ContainerExit,
    ContainerLauncher,
    ContainerRequest,
    ExitListener,
    LogName,
)
from scribengin.log import LogNamespace
from scribengin.master.leadership import Ending, MasterSettings
from scribengin.master.process import Master
from scribengin.worker.process import TICK_S
from scribengin.worker.reporting import ReportSchedule, WorkerLook
from scribengin_registry.contract import ProtectedRegistry, Registry, SessionState, WatchEvent
from scribengin_registry.errors import NodeMissing, OutcomeUnknown, RegistryError, RegistryUnreachable, SessionLost
from scribengin_registry.opening import connect

EXECUTOR = "executor-1"
SESSION_TIMEOUT_S = 60.0
SESSION_LOST = ContainerExit("exited", lifetime.EXIT_SESSION_LOST, f"exit code {lifetime.EXIT_SESSION_LOST}")
REMOVED = ContainerExit("exited", lifetime.EXIT_OK, f"exit code {lifetime.EXIT_OK}")


class IdleWorker:
    """One worker. Used by one thread, but for the watch."""

    def __init__(self, container: ContainerDescriptor, session_timeout_s: float, clock: Clock) -> None:
        self.container = container
        self.reports = 0
        """How many it has written."""
        self._clock = clock
        self._registry: ProtectedRegistry = connect(container.registry, session_timeout_s=session_timeout_s)
        self._lost = threading.Event()
        self._registry.on_session(lambda state: self._lost.set() if state is SessionState.LOST else None)
        self._view = DataflowView(self._registry, container.dataflow)
        self._changed = threading.Event()
        self._schedule = ReportSchedule()
        self._tasks: tuple[TaskReport, ...] = ()
        accepted = self._view.accepted(self._on_config)
        self._view.register_worker(
            WorkerDescriptor(
                name=container.name,
                container=container.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                executors=(EXECUTOR,),
                started_ms=clock.now_ms(),
                config_version=accepted.version,
            )
        )
        self._changed.set()

    @property
    def connected(self) -> bool:
        """Whether its session stands, as far as it knows."""
        return self._registry.state is SessionState.CONNECTED and not self._lost.is_set()

    def tick(self) -> ContainerExit | None:
        """Do what a worker does every TICK_S: how it has ended, once it has."""
        if self._lost.is_set():
            return SESSION_LOST
        if not self.connected:
            return None  # one thread is for all of them, and must not wait
        try:
            if self._changed.is_set():
                self._changed.clear()
                self._look()
            look = WorkerLook([dict(task) for task in self._tasks], spark_ready=True, leaving=False)
            if self._schedule.due(look, now_s := self._clock.monotonic_s()):
                name, now_ms = self.container.name, self._clock.now_ms()
                self._view.set_report(WorkerReport(worker=name, written_ms=now_ms, tasks=self._tasks, spark_ready=True))
                self._schedule.written(look, now_s)
                self.reports += 1
        except NodeMissing:
            return REMOVED
        except SessionLost:
            return SESSION_LOST
        except (RegistryUnreachable, OutcomeUnknown):
            self._changed.set()
        return None

    def close(self) -> None:
        """End it, and its session."""
        self._registry.close()

    def _look(self) -> None:
        found = self._view.assignments(self.container.name, EXECUTOR, self._on_watch)
        self._tasks = tuple(
            TaskReport(
                task=p.assignment.task,
                generation=p.assignment.generation,
                state="released" if p.assignment.release else "idle",
            )
            for p in found
        )

    def _on_watch(self, _: WatchEvent) -> None:
        self._changed.set()

    def _on_config(self, _: WatchEvent) -> None:
        with contextlib.suppress(RegistryError):
            self._view.accepted(self._on_config)


class IdleWorkers(ContainerLauncher):
    """The launcher of one master: its containers are idle workers, which `crew` lets tick. Thread-safe."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._listeners: list[ExitListener] = []

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        container = ContainerDescriptor(
            id=f"{request.dataflow}/{request.name}",
            registry=request.registry,
            dataflow=request.dataflow,
            name=request.name,
            memory_mb=request.memory_mb,
            cores=request.cores,
            launched_ms=self._crew.clock.now_ms(),
        )
        self._crew.hire(container, self)
        return container

    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        return None if self._crew.works(container) else REMOVED

    def kill(self, container: ContainerDescriptor) -> None:
        self._crew.dismiss(container)

    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        return [container for container in self._crew.containers() if container.dataflow == dataflow]

    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        return ""

    def close(self) -> None:
        """There is nothing to let go of."""

    def attach(self, container: ContainerDescriptor) -> None:
        """Every exit is told of."""

    def on_exit(self, listener: ExitListener) -> None:
        self._listeners.append(listener)

    def ended(self, container: ContainerDescriptor, how: ContainerExit) -> None:
        """For the crew: this one is no more."""
        for listener in self._listeners:
            listener(container, how)


class Crew:
    """All idle workers, and the thread that lets them tick. `check` raises what ended it."""

    def __init__(self, session_timeout_s: float, clock: Clock) -> None:
        self.clock = clock
        self._session_timeout_s = session_timeout_s
        self._lock = threading.Lock()
        self._hired: dict[str, tuple[ContainerDescriptor, IdleWorkers]] = {}
        self._working: dict[str, IdleWorker] = {}
        self._of_the_dismissed = 0
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="idle-workers")
        self._running = self._thread.submit(self._run)

    @property
    def reports(self) -> dict[str, int]:
        """How many reports each worker has written."""
        return {name: worker.reports for name, worker in list(self._working.items())}

    @property
    def connected(self) -> bool:
        """Whether the sessions of all workers stand, as far as they know."""
        return all(worker.connected for worker in list(self._working.values()))

    @property
    def reports_total(self) -> int:
        """How many reports have been written, by those that are no more as well."""
        return self._of_the_dismissed + sum(self.reports.values())

    def hire(self, container: ContainerDescriptor, launcher: IdleWorkers) -> None:
        with self._lock:
            self._hired[container.id] = (container, launcher)

    def works(self, container: ContainerDescriptor) -> bool:
        return container.id in self._hired

    def containers(self) -> list[ContainerDescriptor]:
        with self._lock:
            return [container for container, _ in self._hired.values()]

    def dismiss(self, container: ContainerDescriptor, how: ContainerExit = REMOVED) -> None:
        """It is no more once this was seen."""
        with self._lock:
            gone = self._hired.pop(container.id, None)
        if gone is not None:
            gone[1].ended(container, how)

    def check(self) -> None:
        if self._running.done():
            self._running.result()

    def close(self) -> None:
        self._over.set()
        self._thread.shutdown()
        for worker in self._working.values():
            worker.close()
        self._running.result()

    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            for container in self.containers():
                how = self._tick(container)
                if how is not None:
                    self.dismiss(container, how)
            for name in [name for name in self._working if name not in self._hired]:
                worker = self._working.pop(name)
                self._of_the_dismissed += worker.reports
                worker.close()

    def _tick(self, container: ContainerDescriptor) -> ContainerExit | None:
        if container.id not in self._working:
            try:
                self._working[container.id] = IdleWorker(container, self._session_timeout_s, self.clock)
            except RegistryError as error:  # as a worker's process ends that cannot register
                return ContainerExit("exited", lifetime.EXIT_FAILED, str(error))
        return self._working[container.id].tick()


@dataclass(frozen=True)
class Led:
    """Dataflows that are led: the masters' threads, and the workers."""

    crew: Crew
    masters: tuple[Future[Ending], ...]

    def check(self) -> None:
        """Raise what ended a master, or the thread of the workers."""
        self.crew.check()
        for master in self.masters:
            if master.done():
                raise AssertionError(f"a master has ended: {master.result()}")


@contextmanager
def led_by_masters(
    hosts: str,
    flows: Sequence[str],
    home: Path,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Led]:
    """A master for each of these dataflows, in a thread and with a session of its own, while the block lasts."""
    with ExitStack() as opened:
        crew = Crew(session_timeout_s, clock)
        opened.callback(crew.close)
        threads = opened.enter_context(ThreadPoolExecutor(len(flows), thread_name_prefix="master"))
        leading = []
        for name in flows:
            registry = opened.enter_context(connect(hosts, session_timeout_s=session_timeout_s))
            master = Master(registry, IdleWorkers(crew), MasterSettings(name, "master-1", home, standbys=0), clock)
            leading.append(threads.submit(master.run))
            opened.callback(leading[-1].exception)
            opened.callback(master.end)
        yield Led(crew, tuple(leading))


def submit_all(
    registry: Registry, names: Sequence[str], folder: Path, streams: int, logs: str = "/logs", *, workers: int = 1
) -> None:
    """Dataflows of these names, each from that many logs of a new namespace at the node `logs` into files."""
    LogNamespace.bind(logs, folder / "logs", registry=registry)
    with LogNamespace.open(logs, registry=registry) as namespace:
        for name in names:
            _submit(registry, namespace, name, folder, streams, workers)


def _submit(registry: Registry, namespace: LogNamespace, name: str, folder: Path, streams: int, workers: int) -> None:
    for stream in range(streams):
        namespace.create(f"{name}/{stream}")
    config = DataflowConfig.parse(
        {
            "name": name,
            "sources": {"src": {"kind": "log", "logs": f"{name}/*", "namespace": namespace.path}},
            "sinks": {"out": {"kind": "hdfs", "path": str(folder / "files" / name)}},
            "sql": "SELECT payload FROM src",
            "workers": workers,
        },
        source="idle workers",
    )
    with OpenedDataflow(config, Environment(registry=registry, dataflow=name, nodes=STREAM_NODES)) as resources:
        DataflowView(registry, name).submit(config, [s.resource for s in resources.sinks.values()], 1)
        for sink in resources.sinks.values():
            sink.create([stream for task in resources.tasks() for stream in task.sinks])


def is_idle(registry: Registry, name: str, *, streams: int, workers: int) -> bool:
    """Whether each of the tasks is with one of so many workers, and has nothing to do."""
    status = DataflowView(registry, name).status()
    idle = [task for task in status.tasks if task.state == "idle"]
    return len(idle) == streams and not status.tasks_unassigned and len(status.workers) == workers


def are_placed(registry: Registry, name: str, tasks: int) -> bool:
    """Whether workers have reported so many tasks as theirs, and the master has none left. A status lists the first of
    many tasks alone."""
    view = DataflowView(registry, name)
    status = view.status()
    if status.tasks_total != tasks or status.tasks_unassigned:
        return False
    reports = [view.report(worker) for worker in status.workers]
    return sum(task.state == "idle" for report in reports if report is not None for task in report.tasks) == tasks
