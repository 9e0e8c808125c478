"""What stands in the nodes of a dataflow: complete, frozen, JSON (paths.py says where)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.model import Descriptor, JsonObject

DataflowState = Literal[
    "starting", "running", "paused", "stopping", "stopped", "finished", "failed", "killed", "deleting"
]
STATUS_TASKS_MAX = 1000
"""A status must fit into one node."""
FINAL_STATES: tuple[DataflowState, ...] = ("stopped", "finished", "failed", "killed")
TaskState = Literal["taking_over", "running", "idle", "finished", "failed", "released"]


class TaskDescriptor(Descriptor):
    """One task: the source streams it reads, the sink streams it writes. Complete: a worker needs nothing else but
    the config.
    """

    name: str
    sources: tuple[SourceStreamDescriptor, ...]
    sinks: tuple[SinkStreamDescriptor, ...]


class WorkerDescriptor(Descriptor):
    """One worker process and the container it lives in. `container` is the launcher's name for it."""

    name: str
    container: str
    host: str
    pid: int
    executors: tuple[str, ...]
    started_ms: int


class TaskAssignment(Descriptor):
    """The master's word that an executor shall run a task. `lease` grows with every assignment of the task.

    `release` asks the executor to drain: finish the round, give the locks back and say so in its report.
    """

    task: str
    lease: int
    release: bool = False


class PlacementHead(Descriptor):
    """The data of the `workers` node: who places tasks. Every change that a master makes below checks its version, so
    a master that was replaced can place nothing any more. Names and leases are never used twice.

    `unsettled` counts the leaderships in a row that ended before they had lasted: what the next one's patience grows
    with.
    """

    master: str = ""
    epoch: int = 0
    next_worker: int = 1
    next_lease: int = 1
    next_master: int = 2
    unsettled: int = 0


class ConfigInForce(Descriptor):
    """The data of the `master` node: the config that masters and workers go by, and the version of the `config` node
    that it was accepted from. A bad edit of that node leaves this one alone."""

    version: int
    config: JsonObject


class TaskSet(Descriptor):
    """The data of the `task-descriptors` node: how many tasks there are. A descriptor beyond them (`task-<count>` and
    later) was left by a master that died while it made them."""

    count: int = 0


class TaskReport(Descriptor):
    """What one task of a worker did since the worker took it over. Counts are of this ownership, lag is of now."""

    task: str
    lease: int
    state: TaskState
    rounds: int = 0
    records_in: int = 0
    records_out: int = 0
    records_bad: int = 0
    lag_records: int = 0
    last_commit_ms: int | None = None
    round_ms: float | None = None
    error: str | None = None


class WorkerReport(Descriptor):
    """The report of all tasks of one worker: one node, one write, whatever their number."""

    worker: str
    written_ms: int
    tasks: tuple[TaskReport, ...] = ()
    spark_ready: bool = False
    leaving: bool = False
    """It was told to end (SIGTERM): it gives its tasks back and takes no new ones."""


class HistoryEvent(Descriptor):
    """One line of a dataflow's history."""

    at_ms: int
    kind: str
    message: str


class History(Descriptor):
    """The last events of a dataflow, oldest first."""

    events: tuple[HistoryEvent, ...] = ()


class DataflowStatus(Descriptor):
    """What the master makes of its dataflow. `error` is the last one, in the words of whoever met it."""

    dataflow: str
    state: DataflowState
    config_version: int
    """The version of the config in force; a later one in the `config` node was refused, and `config_error` says why."""
    config_error: str | None = None
    error: str | None = None
    master: str | None = None
    workers: tuple[str, ...] = ()
    tasks: tuple[TaskReport, ...] = ()
    """The last report of each task; of the first STATUS_TASKS_MAX, those with errors before the others."""
    tasks_total: int = 0
    tasks_unassigned: tuple[str, ...] = ()
    updated_ms: int = 0
    submitted_ms: int = 0


ERRORS_CHARACTERS_MAX = 64 * 1024
_ERROR_SHORT_CHARACTERS = 120


def with_bounded_errors(reports: Iterable[TaskReport]) -> tuple[TaskReport, ...]:
    """The same reports, with so much of their errors that a node takes them all: the first in full, then their ends.

    When thousands of tasks fail at once they mostly fail alike, and the last line says how.
    """
    left = ERRORS_CHARACTERS_MAX
    bounded = []
    for report in reports:
        error = report.error
        if error is not None and len(error) > left:
            error = shortened(error.strip().splitlines()[-1], _ERROR_SHORT_CHARACTERS)
            report = report.model_copy(update={"error": error})
        left -= len(error or "")
        bounded.append(report)
    return tuple(bounded)


def shortened(text: str, characters_max: int) -> str:
    """`text`, cut at its end if it is longer than that."""
    return text if len(text) <= characters_max else text[: characters_max - 4] + " ..."
