"""The process of a worker: it registers, starts Spark, and lets its executors do what the master assigns.

It needs no master to go on working; it only needs its registry session. When that expires, its tasks are given to
others at once, so it stops in the middle of whatever it does: nothing it does could be committed any more.
Its exit codes tell its master, and people, why it ended.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import configure_logging, tagged
from scribengin.base.process.lifetime import EXIT_FAILED, EXIT_OK, EXIT_SESSION_LOST, end_at_once
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import with_live_part
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import (
    WorkerDescriptor,
    WorkerReport,
    with_bounded_details,
    with_bounded_errors,
)
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.bad_records import Isolating
from scribengin.dataflow.round.checkpoints import state_of_task
from scribengin.dataflow.round.rounds import TaskParts
from scribengin.dataflow.round.runner import RaisedBefore, RoundRunner
from scribengin.dataflow.round.state.query import StreamTransform
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.errors import ConfigInvalid, DataflowNotFound, DescriptorUnreadable
from scribengin.monitoring.metrics import observe_round
from scribengin.worker.executor import Executor
from scribengin.worker.failures import Failure
from scribengin.worker.host import THIS_PROCESS, AnyTransform, WorkerHost
from scribengin.worker.monitoring import monitored
from scribengin.worker.reporting import ReportSchedule, WorkerLook
from scribengin.worker.state import AssignedTask, ExecutorReport
from scribengin.worker.task_runner import TaskRunner
from scribengin_registry.contract import Registry, SessionState, WatchEvent
from scribengin_registry.errors import NodeMissing, OutcomeUnknown, RegistryUnreachable, SessionLost

_LOG = logging.getLogger(__name__)

TICK_S = 0.25
STOP_TIMEOUT_S = 5.0
Wakeup = Literal["look", "report", "leave", "config"]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Who this worker is. `name` was never used before in its dataflow; `container` is what the launcher calls it;
    `package` is where this machine has the dataflow's package (default: where its config says)."""

    dataflow: str
    name: str
    container: str
    package: str | None = None


class WorkerProcess:
    """One worker, from registration to its end. `run` blocks; it must be called on the main thread."""

    def __init__(
        self, registry: Registry, settings: WorkerSettings, clock: Clock, host: WorkerHost = THIS_PROCESS
    ) -> None:
        """Raises DataflowNotFound, ConfigInvalid, DescriptorUnreadable."""
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._host = host
        self._wakeups: queue.SimpleQueue[Wakeup | Failure] = queue.SimpleQueue()
        self._view = DataflowView(registry, settings.dataflow)
        in_force = self._view.config_in_force(self._on_config)
        self._config: DataflowConfig = in_force.value
        self._config_version = in_force.version
        if settings.package is not None:
            self._config = self._config.model_copy(update={"package": os.path.abspath(settings.package)})
        self._schedule = ReportSchedule()
        self._executors: list[Executor] = []
        self._raised_before: RaisedBefore = {}
        self._ready = False
        self._leaving = False
        self._removed = False

    def run(self) -> int:
        """Work until removed, told to end, or of no use any more. Returns the exit code."""
        self._host.on_termination(lambda: self._wakeups.put("leave"))
        self._registry.on_session(self._on_session)
        with ExitStack() as opened:
            self._register(
                opened.enter_context(monitored(self._config, self._settings.name, lambda: self._told().tasks))
            )
            resources = opened.enter_context(self._host.open_dataflow(self._config, self._environment()))
            transform = self._host.start_transform(resources, self._settings.name)
            self._start_executors(resources, transform)
            opened.callback(self._stop_executors)
            self._ready = True
            _LOG.info(f"{self._settings.name} has started Spark and takes tasks", extra=tagged("worker_ready"))
            self._look()
            failure = self._work()
        if failure is None:
            return EXIT_OK
        _LOG.warning(failure.text, extra=tagged("worker_failed"))
        return EXIT_FAILED

    # -- starting

    def _register(self, metrics: str | None) -> None:
        name = self._settings.name
        descriptor = WorkerDescriptor(
            name=name,
            container=self._settings.container,
            host=socket.gethostname(),
            pid=os.getpid(),
            executors=tuple(f"executor-{k}" for k in range(1, self._config.executors_per_worker + 1)),
            started_ms=self._clock.now_ms(),
            metrics=metrics,
            config_version=self._config_version,
        )
        try:
            self._view.register_worker(descriptor)
        except OutcomeUnknown:
            self._registry.sync()
            if not self._view.lives(name):
                raise

    def _environment(self) -> Environment:
        return Environment(
            registry=self._registry,
            clock=self._clock,
            dataflow=self._settings.dataflow,
            nodes=STREAM_NODES,
            submitted=True,
        )

    def _start_executors(self, resources: OpenedDataflow, transform: AnyTransform) -> None:
        for number in range(1, self._config.executors_per_worker + 1):
            name = f"executor-{number}"

            def open_task(owned: AssignedTask, isolating: Callable[[Isolating], None], name: str = name) -> TaskRunner:
                return self._open_task(owned, name, resources, transform, isolating)

            executor = Executor(
                name,
                open_task,
                self._clock,
                on_change=lambda: self._wakeups.put("report"),
                on_fatal=lambda failure: self._wakeups.put(failure),
                on_round=lambda outcome: observe_round(self._settings.dataflow, outcome),
                patience=self._config.patience,
            )
            self._executors.append(executor)
            executor.start()

    def _open_task(
        self,
        owned: AssignedTask,
        executor: str,
        resources: OpenedDataflow,
        transform: AnyTransform,
        isolating: Callable[[Isolating], None],
    ) -> TaskRunner:
        config, name = self._config, self._settings.name
        parts: TaskParts = {
            "owner": f"{name}/{executor}",
            "generation": owned.generation,
            "sources": resources.sources,
            "sinks": resources.sinks,
            "round_config": config.round,
            "errors": config.errors,
            "clock": self._clock,
            "paused": paused_sources(config),
            "member": self._view.paths.worker(name),
        }
        dataflow, task = self._settings.dataflow, self._view.task(owned.task)
        if isinstance(transform, StreamTransform):
            assert config.state is not None, "only then there is such a transformation"
            state = state_of_task(dataflow, task.name, config.state, config.container.cores)
            return StatefulRunner(self._registry, dataflow, task, transform=transform, state=state, **parts)
        return RoundRunner(
            self._registry,
            dataflow,
            task,
            transform=transform,
            isolating=isolating,
            raised_before=self._raised_before,
            **parts,
        )

    def _stop_executors(self) -> None:
        for executor in self._executors:
            executor.stop(STOP_TIMEOUT_S)

    # -- working

    def _work(self) -> Failure | None:
        """Pass on what is assigned and what is reported, until this worker is to end: because of what, if it is
        amiss."""
        while True:
            for wakeup in self._awaited():
                if isinstance(wakeup, Failure):
                    return wakeup
                if wakeup == "look":
                    self._look()
                elif wakeup == "leave":
                    self._leave()
                elif wakeup == "config":
                    self._reread_config()
            self._report()
            if (self._leaving or self._removed) and all(executor.done for executor in self._executors):
                self._report()
                return None

    def _awaited(self) -> Sequence[Wakeup | Failure]:
        """What has come up, each thing once; nothing, when it is only time to see to the report."""
        found: dict[Wakeup | Failure, None] = {}
        try:
            found[self._wakeups.get(timeout=TICK_S)] = None
            while True:
                found[self._wakeups.get_nowait()] = None
        except queue.Empty:
            return list(found)

    def _look(self) -> None:
        """Read what is assigned to each executor, and be told when that changes."""
        if self._removed:
            return
        try:
            for executor in self._executors:
                placements = self._view.assignments(self._settings.name, executor.name, self._on_watch)
                executor.assign([placement.assignment for placement in placements])
        except NodeMissing:
            self._removed = True  # by the master: the tasks are others' now
            for executor in self._executors:
                executor.assign([])
        except RegistryUnreachable:
            self._wakeups.put("look")  # the tasks go on as they were assigned; see again

    def _reread_config(self) -> None:
        """Take over of the config in force what counts from a task's next round on. For everything else there will be
        another worker."""
        try:
            config = self._view.config_in_force(self._on_config).value
        except RegistryUnreachable:
            self._wakeups.put("config")
            return
        except DataflowNotFound:
            return  # its end is told to this worker by other nodes
        except (ConfigInvalid, DescriptorUnreadable) as error:  # somebody wrote into the master's own node
            _LOG.warning(
                f"{self._settings.name} goes on with the config it has: {error}", extra=tagged("config_unreadable")
            )
            return
        self._config = with_live_part(self._config, config)
        changed = self._config

        def reconfigure(owner: TaskRunner) -> None:
            owner.reconfigure(changed.round, changed.errors, paused_sources(changed))

        for executor in self._executors:
            executor.reconfigure(reconfigure, changed.patience)

    def _leave(self) -> None:
        _LOG.info(f"{self._settings.name} was told to end, and gives its tasks back", extra=tagged("worker_leaves"))
        self._leaving = True
        for executor in self._executors:
            executor.leave()

    def _report(self) -> None:
        told = self._told()
        look = WorkerLook(told.counted, self._ready, self._leaving)
        now_s = self._clock.monotonic_s()
        if self._removed or not self._schedule.due(look, now_s):
            return
        report = WorkerReport(
            worker=self._settings.name,
            written_ms=self._clock.now_ms(),
            tasks=with_bounded_details(with_bounded_errors(told.tasks)),
            rates=told.rates,
            spark_ready=look.spark_ready,
            leaving=look.leaving,
        )
        try:
            self._view.set_report(report)
        except NodeMissing:
            self._wakeups.put("look")
        except (RegistryUnreachable, OutcomeUnknown):
            return  # it is still due, and so written at the next occasion
        self._schedule.written(look, now_s)

    def _told(self) -> ExecutorReport:
        return ExecutorReport.total([executor.report() for executor in self._executors])

    # -- on threads of the registry

    def _on_watch(self, _: WatchEvent) -> None:
        self._wakeups.put("look")

    def _on_config(self, _: WatchEvent) -> None:
        self._wakeups.put("config")

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            text = f"{self._settings.name} lost its registry session; its tasks are others' now"
            self._host.end_at_once("session_lost", text, EXIT_SESSION_LOST)


def paused_sources(config: DataflowConfig) -> list[str]:
    """The sources that are not to be read."""
    return [name for name, source in config.sources.items() if source.paused]


def run_worker(registry: Registry, settings: WorkerSettings, clock: Clock) -> int:
    """Be a worker until it is over. Returns the exit code; never raises SessionLost."""
    configure_logging(dataflow=settings.dataflow, worker=settings.name)
    try:
        return WorkerProcess(registry, settings, clock).run()
    except SessionLost as error:
        end_at_once("session_lost", str(error), EXIT_SESSION_LOST)
