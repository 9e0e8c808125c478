"""What a master hears (events, past tense), what it wants done (instructions, imperative), and what it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import EditPlan
from scribengin.dataflow.registry.descriptors import (
    ConfigVersionBase,
    DataflowState,
    DataflowStatus,
    PlacementHead,
    TaskDescriptor,
    WorkerReport,
)
from scribengin.dataflow.registry.view import Placement
from scribengin.dataflow.tasks import StreamKey
from scribengin.launcher.contract import ContainerExit
from scribengin.master.state.spreading import Slot

JobKind = Literal["streams", "maintenance", "last maintenance"]

# -- what a master starts from


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One registered worker. `alive`: its session stands. `elsewhere`: it runs on another machine."""

    name: str
    executors: tuple[str, ...]
    alive: bool
    report: WorkerReport | None = None
    elsewhere: bool = False
    config_version: int = 0


@dataclass(frozen=True, slots=True)
class DataflowSnapshot:
    """Everything about a dataflow that its master decides from, read once. `containers` are the names of those that
    run."""

    dataflow: str
    config: DataflowConfig
    config_version: int
    head: PlacementHead
    status: DataflowStatus
    tasks: Mapping[str, TaskDescriptor] = field(default_factory=dict)
    workers: Mapping[str, WorkerSnapshot] = field(default_factory=dict)
    placements: tuple[Placement, ...] = ()
    containers: tuple[str, ...] = ()
    grouped_for: int | None = None
    workers_since: int = 0


# -- events


@dataclass(frozen=True, slots=True)
class ConfigEdited:
    """The `config` node holds this at this version, since `at_ms`. `config` is None when it cannot be read, and
    `error` says why. `reordering`: why its number of tasks is none for a dataflow that runs, `crowding`: why its
    number of workers is none for one machine; if no command has asked for that."""

    version: int
    config: DataflowConfig | None
    error: str | None = None
    at_ms: int = 0
    numbers: ConfigVersionBase | None = None
    reordering: str | None = None
    crowding: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigGone:
    """Somebody has deleted the `config` node. `words` say so, and what can be done."""

    words: str


@dataclass(frozen=True, slots=True)
class TasksFound:
    """The sources have streams that no task reads yet; these are the tasks for them, which follow those there are.

    Or, with `anew`, since the present tasks were made for another `grouped_for`: these are all tasks, grouped anew.
    """

    seen: Mapping[str, TaskDescriptor]
    """The tasks that there were when it was looked. If others are there now, nothing of it counts: a stream may be read
    by now, or be in another task than it was."""
    tasks: tuple[TaskDescriptor, ...] = ()
    grouped_for: int | None = None
    """What the config's `tasks` was."""
    grown: tuple[TaskDescriptor, ...] = ()
    """Tasks that are there, with the streams that join them."""
    anew: bool = False
    guarantees: Mapping[str, Guarantee] = field(default_factory=dict)
    """What the sinks promise."""
    again: tuple[str, ...] = ()
    """Tasks that have finished, of which a stream goes on."""
    left: frozenset[StreamKey] = frozenset()
    """Streams that are gone, and leave those that are `grown`."""


@dataclass(frozen=True, slots=True, eq=False)
class Drained:
    """Tasks that write no more, so that they can be grouped anew: once, for each time that they have come to that."""

    tasks: tuple[TaskDescriptor, ...]


@dataclass(frozen=True, slots=True)
class OutputRead:
    """Whether all that drained tasks have written was read by the dataflows that read it: `unread` says what was not,
    a line for each log."""

    drained: Drained
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """A worker has put itself down, with its executors."""

    name: str
    executors: tuple[str, ...]
    config_version: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's session has ended: whether its process still runs or not, it owns nothing any more."""

    name: str


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """A container has ended. `log` is the tail of what it wrote to stderr."""

    name: str
    how: ContainerExit
    log: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """A container could not be started."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRead:
    """A worker's report."""

    report: WorkerReport


@dataclass(frozen=True, slots=True)
class JobDone:
    """A regular or last job of the master has been done, or has failed with `error`."""

    job: JobKind
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `waiting` are the names of containers that wait for room, `ageing` of those that are to be
    replaced before what they were given ends."""

    waiting: frozenset[str] = frozenset()
    ageing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RegistryWasAway:
    """The registry has answered this process again, after so long."""

    away_s: float


MasterEvent = (
    ConfigEdited
    | ConfigGone
    | TasksFound
    | OutputRead
    | WorkerRegistered
    | WorkerLost
    | ContainerExited
    | LaunchFailed
    | ReportRead
    | JobDone
    | RegistryWasAway
    | Tick
)


# -- instructions. Those up to GrowTask are changes of the registry: all of one decision are one commit, in this
# order.


@dataclass(frozen=True, slots=True)
class AcceptConfig:
    """Put an edited config in force; workers that were started before version `workers_since` are to be replaced."""

    config: DataflowConfig
    version: int
    workers_since: int
    plan: EditPlan
    at_ms: int
    numbers: ConfigVersionBase | None = None


@dataclass(frozen=True, slots=True)
class RefuseConfig:
    """Write down why an edit is refused. `config` is None when there is none to be read."""

    config: DataflowConfig | None
    version: int
    plan: EditPlan
    at_ms: int


@dataclass(frozen=True, slots=True)
class RemoveWorker:
    """Delete a worker's nodes, its assignments among them. A worker that lives still leaves when it sees that."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """Ask for a task back: its executor finishes the round, gives the locks back and reports it. `then` is where it is
    to go, if that is not for the moment to decide when it is back."""

    task: str
    slot: Slot
    generation: int
    next_slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a task to an executor, under a new generation. `previous` is where it stood, which no longer counts.

    With `release` it is only to be taken over, brought to a clean end and given back: nothing new is read.
    """

    task: str
    slot: Slot
    generation: int
    previous: Slot | None = None
    release: bool = False


@dataclass(frozen=True, slots=True)
class Unassign:
    """Take a task from where it stands, for now to give it to nobody."""

    task: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class CreateTasks:
    """Make tasks, and what their sink streams need, behind those there are."""

    tasks: tuple[TaskDescriptor, ...]
    grouped_for: int | None = None


@dataclass(frozen=True, slots=True)
class ReplaceTasks:
    """Delete the tasks `removed` and make `tasks`: then there are `count`, grouped for that value of the config's
    `tasks`. The others stay as they are."""

    removed: tuple[str, ...]
    tasks: tuple[TaskDescriptor, ...]
    count: int
    grouped_for: int | None


@dataclass(frozen=True, slots=True)
class GrowTask:
    """Make a task what it is from now on: itself, and more streams, without those that are gone. It is clean, and
    stands nowhere."""

    task: TaskDescriptor


RegistryInstruction = (
    AcceptConfig | RefuseConfig | RemoveWorker | Release | Assign | Unassign | CreateTasks | ReplaceTasks | GrowTask
)


@dataclass(frozen=True, slots=True)
class LaunchWorker:
    """Launch a container for a worker of a name that was never used."""

    name: str


@dataclass(frozen=True, slots=True)
class LaunchStandby:
    """Launch another master, which waits until this one is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class KillContainer:
    """End a container that is of no use any more."""

    name: str


@dataclass(frozen=True, slots=True)
class AskReaders:
    """Find out whether the output of drained tasks was read."""


@dataclass(frozen=True, slots=True)
class RunLastMaintenance:
    """All tasks have come to their end: have the sinks leave nothing for later, and say when it is done."""


@dataclass(frozen=True, slots=True)
class ResumeMaintenance:
    """More comes, though the sinks' last maintenance was asked for: have them maintained as before."""


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Add a line to the dataflow's history."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class PublishStatus:
    """Write the status (without the time, which is the shell's)."""

    status: DataflowStatus


@dataclass(frozen=True, slots=True)
class Leave:
    """The dataflow has come to its end: so does its master. The status with this state has been published."""

    state: DataflowState


Instruction = (
    RegistryInstruction
    | LaunchWorker
    | LaunchStandby
    | KillContainer
    | AskReaders
    | RunLastMaintenance
    | ResumeMaintenance
    | RecordHistory
    | PublishStatus
    | Leave
)
