"""What one dataflow is doing, put together from its status and its workers' reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.descriptors import FINAL_STATES, DataflowStatus, TaskReport, WorkerReport
from scribengin.dataflow.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowNotFound
from scribengin_registry.contract import Registry, Watch
from scribengin_tools.ending import masters
from scribengin_tools.render import age, error_text, facts, moment, state_text, table

_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Overview:
    """A dataflow as it is shown. `owners` names the worker of each task that has one, `starting` the workers
    without a Spark session yet, `edit` is what is wrong with the
    config as it stands in the registry."""

    status: DataflowStatus
    owners: dict[str, str]
    starting: tuple[str, ...]
    masters: int
    version: int
    desired_state: str
    edit: str | None

    def to_json(self) -> dict[str, Any]:
        """The status as the master wrote it, and what else is known."""
        return {
            **self.status.model_dump(mode="json"),
            "owners": self.owners,
            "workers_starting": self.starting,
            "masters": self.masters,
            "desired_state": self.desired_state,
            "config_version_latest": self.version,
        }

    def renderable(self) -> RenderableType:
        """For a terminal."""
        status, now_ms = self.status, SYSTEM_CLOCK.now_ms()
        head = facts(
            (
                ("dataflow", status.dataflow),
                ("state", self._state()),
                ("error", error_text(status.error) if status.error else None),
                ("config", self._config()),
                ("master", self._master()),
                ("workers", self._workers()),
                ("submitted", f"{moment(status.submitted_ms)} ({age(status.submitted_ms, now_ms)} ago)"),
                ("waiting", self._waiting()),
            )
        )
        if not status.tasks:
            return head
        more = status.tasks_total - len(status.tasks)
        rest = [Text(f"... and {more:,} more tasks", "dim")] if more > 0 else []
        return Group(head, Text(), _tasks(status.tasks, self.owners, now_ms), *rest, *_task_errors(status))

    def _state(self) -> Text:
        text = state_text(self.status.state)
        if self.status.state not in FINAL_STATES and self.desired_state not in (self.status.state, "running"):
            text.append(f" (to be {self.desired_state})", "yellow")
        return text

    def _config(self) -> Text:
        text = Text(f"version {self.status.config_version}")
        refused = self.status.config_error or self.edit
        if refused:
            text.append(f"; the edit after it was refused: {refused}", "red")
        elif self.version > self.status.config_version and self.status.state not in FINAL_STATES:
            text.append(f"; version {self.version} is being taken over", "yellow")
        return text

    def _master(self) -> Text | None:
        if self.masters:
            return Text(f"{self.status.master or 'being elected'}{' + standby' if self.masters > 1 else ''}")
        return None if self.status.state in FINAL_STATES else Text("none is alive", "red")

    def _workers(self) -> str:
        shown = [f"{name} (starting)" if name in self.starting else name for name in self.status.workers]
        more = f" ... and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
        return (", ".join(shown[:_NAMES_SHOWN]) or "none") + more

    def _waiting(self) -> str:
        unassigned = self.status.tasks_unassigned
        more = " ..." if len(unassigned) > _NAMES_SHOWN else ""
        return f"for a worker: {', '.join(unassigned[:_NAMES_SHOWN])}{more}" if unassigned else ""


def all_statuses(registry: Registry) -> list[DataflowStatus]:
    """The status of every dataflow of a registry, by name."""
    found = []
    for name in dataflow_names(registry):
        try:
            found.append(DataflowView(registry, name).status())
        except DataflowNotFound:
            continue  # deleted since the names were read
    return found


def overview(view: DataflowView, watch: Watch | None = None) -> Overview:
    """What is known of a dataflow now; `watch` fires when its status changes. Raises DataflowNotFound."""
    status = view.status(watch)
    config, edit = _config_of(view)
    reports = {name: view.report(name) for name in status.workers}
    known = [report for report in reports.values() if report is not None]
    return Overview(
        status=status,
        owners=_owners(known),
        starting=tuple(name for name, found in reports.items() if found is None or not found.spark_ready),
        masters=masters(view),
        version=view.registry.get(view.paths.config).version,
        desired_state=config.desired_state if config is not None else "running",
        edit=edit,
    )


def _config_of(view: DataflowView) -> tuple[DataflowConfig | None, str | None]:
    try:
        return view.config().value, None
    except ConfigInvalid as error:
        return None, str(error)


def _owners(reports: Sequence[WorkerReport]) -> dict[str, str]:
    """The worker of each task: the one with the latest lease, among those that have not given it back."""
    owners: dict[str, tuple[int, str]] = {}
    for report in reports:
        for task in report.tasks:
            if task.lease >= owners.get(task.task, (-1, ""))[0] and task.state != "released":
                owners[task.task] = (task.lease, report.worker)
    return {task: worker for task, (_lease, worker) in sorted(owners.items())}


def _tasks(tasks: Sequence[TaskReport], owners: dict[str, str], now_ms: int) -> RenderableType:
    columns = ("TASK", "WORKER", "STATE", ">IN", ">OUT", ">BAD", ">LAG", ">ROUNDS", ">MS/ROUND", "COMMITTED")
    rows = [
        (
            task.task,
            owners.get(task.task),
            state_text(task.state),
            task.records_in,
            task.records_out,
            task.records_bad,
            task.lag_records,
            task.rounds,
            None if task.round_ms is None else f"{task.round_ms:.0f}",
            "-" if task.last_commit_ms is None else f"{age(task.last_commit_ms, now_ms)} ago",
        )
        for task in tasks
    ]
    return table(columns, rows)


def _task_errors(status: DataflowStatus) -> list[RenderableType]:
    return [
        error_text(f"\n{task.task}: {task.error}")
        for task in status.tasks
        if task.error and task.error not in (status.error or "")
    ]
