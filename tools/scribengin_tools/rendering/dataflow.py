"""What one dataflow is doing, put together from its status and its workers' reports."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many
from scribengin.base.text.plain_words import in_plain_words
from scribengin.dataflow.registry.descriptors import FINAL_STATES, STATUS_TASKS_MAX, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.dataflow.retention_holds import HeldLog
from scribengin.errors import DataflowNotFound, DescriptorUnreadable
from scribengin.monitoring.overview import DataflowOverview, TaskOverview, build_overview, read_overview
from scribengin_registry.contract import Registry, Watch
from scribengin_tools.rendering.text import age, error_text, facts, kept_text, lag_text, moment, state_text, table
from scribengin_tools.rendering.yarn import ApplicationFacts

_LOGS_SHOWN = 3


_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ShownDataflow:
    """A dataflow as it is shown: what its master wrote, and the overview that this is a part of."""

    status: DataflowStatus
    overview: DataflowOverview
    application: ApplicationFacts | None = None
    """Of a dataflow on YARN."""
    held: tuple[HeldLog, ...] = ()
    """What logs keep for one that has ended."""

    def to_json(self) -> dict[str, Any]:
        """The status as the master wrote it, and what else is known."""
        return {
            **self.status.model_dump(mode="json"),
            "tasks": self._tasks_json(),
            "state": self.overview.state,
            "lag_records": self.overview.lag_records,
            "lag_age_s": self.overview.lag_age_s,
            "tasks_stalled": self.overview.tasks_stalled,
            **({"kept": self.overview.kept.model_dump(mode="json")} if self.overview.kept else {}),
            "owners": {task.task: task.worker for task in self.overview.tasks if task.worker is not None},
            "workers_starting": [worker.name for worker in self.overview.workers if not worker.ready],
            "masters": self.overview.masters,
            "desired_state": self.overview.desired_state,
            "config_version_latest": self.overview.config_version_latest,
            **({"retention_holds": [one.model_dump(mode="json") for one in self.held]} if self.held else {}),
            **(self.application.to_json() if self.application is not None else {}),
        }

    def renderable(self) -> RenderableType:
        """For a terminal."""
        status, now_ms = self.status, SYSTEM_CLOCK.now_ms()
        head = facts(
            (
                ("dataflow", status.dataflow),
                ("state", self._state()),
                ("stalled", self._stalled()),
                ("error", error_text(status.error) if status.error else None),
                ("config", self._config()),
                ("master", self._master()),
                ("workers", self._workers()),
                ("submitted", f"{moment(status.submitted_ms)} ({age(status.submitted_ms, now_ms)} ago)"),
                ("waiting", self._waiting()),
                ("state kept", kept_text(self.overview.kept) if self.overview.kept else None),
                ("guarantees", self._guarantees()),
                ("logs keep", held_text(self.held, status.dataflow)),
                *(self.application.rows() if self.application is not None else ()),
            )
        )
        tasks = self.overview.tasks[:STATUS_TASKS_MAX]
        if not tasks:
            return head
        more = status.tasks_total - len(tasks)
        rest = [Text(f"... and {more:,} more tasks", "dim")] if more > 0 else []
        since = Text("IN, OUT, BAD and ROUNDS count from when the worker took the task over.", "dim")
        return Group(head, Text(), _tasks(tasks, now_ms), *rest, since, *_task_errors(tasks, status))

    def _tasks_json(self) -> list[dict[str, Any]]:
        """With the lag as it is shown, and how old that is: a status tells no age."""
        lags = {
            task.task: {"lag_records": task.lag_records, "lag_age_s": task.lag_age_s} for task in self.overview.tasks
        }
        return [{**task.model_dump(mode="json"), **lags.get(task.task, {})} for task in self.status.tasks]

    def _state(self) -> Text:
        wanted = self.overview.desired_state
        text = state_text(self.overview.state)
        if self.status.state not in FINAL_STATES and wanted not in (self.status.state, "running"):
            text.append(f" (to be {wanted})", "yellow")
        return text

    def _stalled(self) -> Text | None:
        stalled = [task for task in self.overview.tasks if task.stalled]
        if not stalled:
            return None
        shown = ", ".join(
            f"{task.task} (nothing committed for {task.behind_s:.0f} s)" for task in stalled[:_NAMES_SHOWN]
        )
        return Text(
            shown + (f" ... and {len(stalled) - _NAMES_SHOWN} more" if len(stalled) > _NAMES_SHOWN else ""), "red"
        )

    def _config(self) -> Text:
        text = Text(f"version {self.status.config_version}")
        refused, version = self.overview.config_error, self.overview.config_version_latest
        if refused:
            text.append(f"; the edit after it was refused: {refused}", "red")
        elif version > self.status.config_version and self.status.state not in FINAL_STATES:
            waits = "is being taken over" if self.overview.masters else "waits for a master"
            text.append(f"; version {version} {waits}", "yellow")
        return text

    def _master(self) -> Text | None:
        masters = self.overview.masters
        if masters:
            return Text(f"{self.status.master or 'being elected'}{' + standby' if masters > 1 else ''}")
        return None if self.status.state in FINAL_STATES else Text("none is alive", "red")

    def _workers(self) -> str:
        shown = [worker.name if worker.ready else f"{worker.name} (starting)" for worker in self.overview.workers]
        more = f" ... and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
        return (", ".join(shown[:_NAMES_SHOWN]) or "none") + more

    def _guarantees(self) -> str:
        return ", ".join(f"{sink}: {guarantee}" for sink, guarantee in sorted(self.status.guarantees.items()))

    def _waiting(self) -> str:
        unassigned = self.status.tasks_unassigned
        more = " ..." if len(unassigned) > _NAMES_SHOWN else ""
        return f"for a worker: {', '.join(unassigned[:_NAMES_SHOWN])}{more}" if unassigned else ""


def overview(view: DataflowView, watch: Watch | None = None) -> ShownDataflow:
    """What is known of a dataflow now; `watch` fires when its status changes. Raises DataflowNotFound."""
    nodes = read_overview(view, watch)
    return ShownDataflow(nodes.status, build_overview(nodes, SYSTEM_CLOCK.now_ms()))


def overviews(registry: Registry, unreadable: MutableMapping[str, str]) -> list[ShownDataflow]:
    """The same of every dataflow of a registry, by name; of one whose nodes are damaged, why goes to `unreadable`."""
    found = []
    for name in dataflow_names(registry):
        try:
            found.append(overview(DataflowView(registry, name)))
        except DescriptorUnreadable as error:
            unreadable[name] = in_plain_words(error)
        except DataflowNotFound:
            continue  # deleted since the names were read
    return found


def _tasks(tasks: Sequence[TaskOverview], now_ms: int) -> RenderableType:
    columns = ("TASK", "WORKER", "STATE", ">IN", ">OUT", ">BAD", ">LAG", ">ROUNDS", ">MS/ROUND", "COMMITTED")
    rows = [
        (
            task.task,
            task.worker,
            state_text("stalled" if task.stalled else task.state),
            task.records_in,
            task.records_out,
            task.records_bad,
            lag_text(task),
            task.rounds,
            None if task.round_ms is None else f"{task.round_ms:.0f}",
            "-" if task.last_commit_ms is None else f"{age(task.last_commit_ms, now_ms)} ago",
        )
        for task in tasks
    ]
    return table(columns, rows)


def _task_errors(tasks: Sequence[TaskOverview], status: DataflowStatus) -> list[RenderableType]:
    return [
        error_text(f"\n{task.task}: {task.error}")
        for task in tasks
        if task.error and task.error not in (status.error or "")
    ]


def held_text(held: Sequence[HeldLog], name: str) -> str:
    """What logs keep for a dataflow that has ended, in a line; nothing if there is nothing."""
    if not held:
        return ""
    names = ", ".join(one.log for one in held[:_LOGS_SHOWN])
    more = f" and {len(held) - _LOGS_SHOWN} more" if len(held) > _LOGS_SHOWN else ""
    kept = many(sum(one.records for one in held), "record")
    return f"{kept} of {names}{more}, until it has read them; `scribengin release-holds {name}` gives them up"
