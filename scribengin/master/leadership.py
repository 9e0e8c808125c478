"""One leadership: from taking the placement head to the dataflow's end, or until somebody else leads.

A leader first takes the head by compare-and-set: from then on no master before it can change anything. Only then it
looks, and what it decides it writes against the head that it took. Whenever it is not sure what was written (a lost
reply, a node that is not as it should be) it begins again from a new snapshot; when the head is another's, it steps
down.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import tagged
from scribengin.base.threads import pause
from scribengin.connectors import Environment
from scribengin.dataflow.containers import master_request, worker_request
from scribengin.dataflow.opened import OpenDataflow, OpenedDataflow
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowStatus, HistoryEvent, PlacementHead
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.errors import DataflowNotFound, LauncherError
from scribengin.launcher.contract import (
    ContainerDescriptor,
    ContainerExit,
    ContainerLauncher,
    ContainerRequest,
)
from scribengin.master.ended_streams import Grouping
from scribengin.master.jobs import (
    MAINTENANCE_PERIOD_S,
    STREAMS_PERIOD_S,
    Job,
    find_streams,
    maintain_sinks,
)
from scribengin.master.state import events as ev
from scribengin.master.state.machine import MasterState
from scribengin.master.state.worker_pool import delay_s
from scribengin.master.transactions import operations_for
from scribengin.master.watching import DataflowWatcher, Recheck
from scribengin_registry.contract import Check, Registry, Set
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    OutcomeUnknown,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

_LOG = logging.getLogger(__name__)

TICK_S = 0.5
RETRY_S = 0.5


class Ending(Enum):
    """How a leadership ended: the dataflow is OVER, another master leads or the registry is away (REPLACED), or
    this one was told to END."""

    OVER = "over"
    REPLACED = "replaced"
    END = "end"


class Replaced(Exception):
    """Another master has taken the head."""


@dataclass(frozen=True, slots=True)
class Exited:
    """A container has ended."""

    container: ContainerDescriptor
    how: ContainerExit


@dataclass(frozen=True, slots=True)
class Elected:
    """This master is to lead."""


@dataclass(frozen=True, slots=True)
class Demoted:
    """Somebody else leads, or will. `error`: the election itself has failed."""

    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Terminated:
    """This process was told to end."""


Wakeup = Recheck | Exited | Elected | Demoted | Terminated | ev.MasterEvent
Wakeups = queue.SimpleQueue[Wakeup]


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """Who this master is: `name` is also its container's. `standbys`: how many masters wait behind the one that
    leads."""

    dataflow: str
    name: str
    home: Path
    standbys: int = 1
    metrics: str | None = None
    """Where it serves /metrics and /health."""
    open_dataflow: OpenDataflow = OpenedDataflow
    """Opens the sources and sinks of a config."""


class Leadership:
    """Leads one dataflow. `run` blocks; whatever comes up is put into `wakeups` by other threads."""

    def __init__(
        self,
        registry: Registry,
        launcher: ContainerLauncher,
        settings: MasterSettings,
        wakeups: Wakeups,
        fence: Callable[[], Check],
        clock: Clock,
        absences: Callable[[], Sequence[float]],
    ) -> None:
        """`fence` makes an operation that fails unless this master still is elected. Raises SessionLost when it is
        not. `absences` tells for how long the registry was away, each time once."""
        self._registry = registry
        self._launcher = launcher
        self._settings = settings
        self._wakeups = wakeups
        self._fence = fence
        self._clock = clock
        self._absences = absences
        self._view = DataflowView(registry, settings.dataflow)
        self._reader = DataflowWatcher(self._view, wakeups.put)
        self._containers: dict[str, ContainerDescriptor] = {}
        self._head: Versioned[PlacementHead]
        self._state: MasterState
        self._finding: Job
        self._maintenance: Job
        self._jobs: tuple[Job, ...] = ()
        """Both, once they were started."""

    def run(self) -> Ending:
        """Lead. Raises what makes leading impossible: DataflowNotFound, DescriptorUnreadable."""
        try:
            head = self._find_head()
            if head is None:
                return Ending.OVER
            self._head = self._take_head(head)
            self._attach_containers()
            self._begin_again(None)
            self._do(self._state.provide_standby(self._clock.monotonic_s()))
            ending = self._be_patient()
            if ending is not None:
                return ending
            with ExitStack() as jobs:
                self._start_jobs(jobs)
                return self._lead()
        except (Replaced, SessionLost, RegistryUnreachable):  # who leads is for the election to say, once it can
            return Ending.REPLACED

    # -- beginning

    def _is_over(self) -> bool:
        """Whether the dataflow came to its end, and nobody has asked for more since; or it is being deleted."""
        status = self._view.status()
        if status.state == "deleting":
            return True
        return status.state in FINAL_STATES and not self._reader.is_asked_for(since=status.config_version)

    def _find_head(self) -> Versioned[PlacementHead] | None:
        """The head to take; None: there is nothing to lead any more. It is read first. Who deletes the dataflow raises
        it as he says so: it is his by then, or what he says is read after it."""
        try:
            head = self._view.placement_head()
        except DataflowNotFound:
            if self._is_over():
                return None
            raise
        return None if self._is_over() or head.value.is_foreign(self._settings.name) else head

    def _take_head(self, head: Versioned[PlacementHead]) -> Versioned[PlacementHead]:
        mine = head.value.model_copy(
            update={
                "master": self._settings.name,
                "epoch": head.value.epoch + 1,
                "short_leaderships": head.value.short_leaderships + 1,
            }
        )
        try:
            return self._view.commit_placement(Versioned(mine, head.version), [self._fence()])
        except (VersionConflict, NodeMissing):
            raise Replaced from None
        except (OutcomeUnknown, RegistryUnreachable):
            self._registry.sync()
            found = self._view.placement_head()
            if (found.value.master, found.value.epoch) == (mine.master, mine.epoch):
                return found
            raise Replaced from None

    def _be_patient(self) -> Ending | None:
        """Wait before doing anything, the longer the more leaders in a row did not last: it may be what we do."""
        deadline_s = self._clock.monotonic_s() + delay_s(self._head.value.short_leaderships)
        kept: list[Wakeup] = []
        while (remaining_s := deadline_s - self._clock.monotonic_s()) > 0:
            wakeups = self._awaited(remaining_s)
            ending = _ending(wakeups)
            if ending is not None:
                return ending
            kept += wakeups
        for wakeup in kept:
            self._wakeups.put(wakeup)
        return None

    def _attach_containers(self) -> None:
        for container in self._launcher.containers(self._registry.hosts, self._settings.dataflow):
            self._containers[container.name] = container
            if container.name != self._settings.name:
                self._launcher.attach(container)

    def _begin_again(self, before: MasterState | None) -> None:
        """Decide from a new snapshot, after making sure that the head is still ours. Raises Replaced, SessionLost."""
        while True:
            try:
                self._registry.sync()
                head = self._view.placement_head()
                if (head.value.master, head.value.epoch) != (self._head.value.master, self._head.value.epoch):
                    raise Replaced
                self._head = head
                running = [name for name in self._containers if name != self._settings.name]
                snapshot = self._reader.snapshot(running)
            except RegistryUnreachable:
                self._pause()
                continue
            self._state = MasterState(
                snapshot,
                master=self._settings.name,
                standbys=self._settings.standbys,
                now_s=self._clock.monotonic_s(),
                before=before,
            )
            self._wakeups.put(Recheck("config"))
            return

    def _start_jobs(self, jobs: ExitStack) -> None:
        environment = Environment(
            registry=self._registry,
            clock=self._clock,
            dataflow=self._settings.dataflow,
            nodes=STREAM_NODES,
            # Also while they are regrouped, when there are none: what comes then is no beginning.
            has_tasks=lambda: (
                bool(self._state.tasks) or self._state.head.next_generation > self._state.head.first_generation
            ),
            submitted=True,
        )

        def open_resources() -> OpenedDataflow:
            return self._settings.open_dataflow(self._state.config, environment)

        tell = self._wakeups.put

        def grouping() -> Grouping:
            state = self._state
            finished = frozenset(state.placement.finished)
            return Grouping(dict(state.tasks), state.regrouping, state.placement.unread, finished)

        streams = find_streams(self._registry, grouping, tell)
        self._finding = Job("streams", STREAMS_PERIOD_S, open_resources, streams, tell)
        self._maintenance = Job(
            "maintenance", MAINTENANCE_PERIOD_S, open_resources, maintain_sinks(self._registry), tell
        )
        self._jobs = (self._finding, self._maintenance)
        for job in self._jobs:
            job.start()
            jobs.callback(job.stop)

    # -- leading

    def _lead(self) -> Ending:
        while True:
            wakeups = self._awaited(TICK_S)
            ending = _ending(wakeups)
            if ending is not None:
                return ending
            away = [ev.RegistryWasAway(away_s) for away_s in self._absences()]
            events = [*self._events(wakeups), *away, ev.Tick(self._launcher.waiting(), self._launcher.ageing())]
            instructions = self._state.handle(events, self._clock.monotonic_s())
            if self._do(instructions) and any(isinstance(i, ev.Leave) for i in instructions):
                return Ending.OVER

    def _awaited(self, timeout_s: float) -> list[Wakeup]:
        """What has come up, each thing once, in order."""
        found: dict[int | Wakeup, Wakeup] = {}
        try:
            wakeup = self._wakeups.get(timeout=timeout_s)
            while True:
                found[wakeup if isinstance(wakeup, Recheck | Demoted | Terminated) else len(found)] = wakeup
                wakeup = self._wakeups.get_nowait()
        except queue.Empty:
            return list(found.values())

    def _events(self, wakeups: Iterable[Wakeup]) -> list[ev.MasterEvent]:
        found: list[ev.MasterEvent] = []
        for wakeup in wakeups:
            match wakeup:
                case Recheck():
                    try:
                        found += self._reader.events(wakeup)
                    except RegistryUnreachable:
                        self._wakeups.put(wakeup)  # nothing can be decided on it yet: look again
                case Exited(container, how):
                    found += self._exited(container, how)
                case Elected() | Demoted() | Terminated():
                    continue
                case _:
                    found.append(wakeup)
        return found

    def _exited(self, container: ContainerDescriptor, how: ContainerExit) -> list[ev.MasterEvent]:
        known = self._containers.get(container.name)
        if known is None or known.id != container.id:
            return []
        del self._containers[container.name]
        log = self._launcher.log_tail(container, "stderr")
        return [ev.ContainerExited(container.name, how, log)]

    def _pause(self) -> None:
        pause(RETRY_S)

    # -- carrying out

    def _do(self, instructions: Sequence[ev.Instruction]) -> bool:
        """Do what was decided: whether all was done. If not, this has begun again. Raises Replaced, SessionLost."""
        try:
            self._carry_out(instructions)
            return True
        except (OutcomeUnknown, RegistryUnreachable, NodeMissing, NodeExists, NodeNotEmpty) as error:
            _LOG.warning(f"{self._settings.name} begins again: {error}", extra=tagged("begins_again"))
            self._pause()
            self._begin_again(self._state)
            for job in self._jobs:
                job.hurry()  # a config may have been accepted and not been told to them
            if self._jobs:
                self._maintenance.become("maintenance")  # whoever decides asks for the last one again
            return False

    def _carry_out(self, instructions: Sequence[ev.Instruction]) -> None:
        changes = [i for i in instructions if isinstance(i, ev.RegistryInstruction)]
        if changes or self._state.head != self._head.value:
            self._change(changes)
        history = [i for i in instructions if isinstance(i, ev.RecordHistory)]
        if history:
            now_ms = self._clock.now_ms()
            for event in history:
                _LOG.info(f"{event.kind}: {event.message}", extra=tagged(event.kind))
            self._view.add_history([HistoryEvent(at_ms=now_ms, kind=h.kind, message=h.message) for h in history])
        for instruction in instructions:
            self._act(instruction)

    def _change(self, changes: Sequence[ev.RegistryInstruction]) -> None:
        operations = operations_for(self._view, changes)
        try:
            self._head = self._view.commit_placement(Versioned(self._state.head, self._head.version), operations)
        except VersionConflict:
            raise Replaced from None

    def _act(self, instruction: ev.Instruction) -> None:
        settings = self._settings
        match instruction:
            case ev.LaunchWorker(name):
                self._launch(worker_request(self._state.config, name, self._registry.hosts, settings.home))
            case ev.LaunchStandby(name):
                standby = master_request(
                    self._state.config, name, self._registry.hosts, settings.home, settings.standbys
                )
                self._launch(standby)
            case ev.KillContainer(name):
                self._kill(name)
            case ev.AcceptConfig():
                self._finding.hurry()
                self._maintenance.hurry()
            case ev.AskReaders():
                self._finding.wake()
            case ev.RunLastMaintenance():
                self._maintenance.become("last maintenance")
            case ev.ResumeMaintenance():
                self._maintenance.become("maintenance")
            case ev.PublishStatus(status):
                self._publish(status)
            case _:
                return

    def _launch(self, request: ContainerRequest) -> None:
        try:
            container = self._launcher.launch(request)
        except LauncherError as error:
            self._wakeups.put(ev.LaunchFailed(request.name, str(error)))
            return
        self._containers[container.name] = container

    def _kill(self, name: str) -> None:
        container = self._containers.get(name)
        if container is None:
            return
        try:
            self._launcher.kill(container)
        except LauncherError as error:
            _LOG.warning(
                str(error), extra=tagged("kill_failed")
            )  # an orphan cannot commit; its end is told when it is known

    def _publish(self, status: DataflowStatus) -> None:
        """Write the status if the head is still ours: a master that was replaced must not have the last word."""
        paths = self._view.paths
        known = {"updated_ms": self._clock.now_ms(), "metrics": self._settings.metrics}
        data = status.model_copy(update=known).to_bytes()
        try:
            self._registry.commit([Check(paths.placement, self._head.version), Set(paths.status, data)])
        except VersionConflict:
            raise Replaced from None


def _ending(wakeups: Iterable[Wakeup]) -> Ending | None:
    """Whether one of these ends the leadership."""
    for wakeup in wakeups:
        if isinstance(wakeup, Demoted):
            return Ending.REPLACED
        if isinstance(wakeup, Terminated):
            return Ending.END
    return None
