"""A task that looks for the records that a query cannot take is at work: people are shown what it does."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from scribengin.dataflow.registry.descriptors import DataflowStatus, TaskReport, WorkerReport
from scribengin.master.state.status import shown_reports
from scribengin.monitoring.overview import OverviewNodes, build_overview
from scribengin_tools.monitor.cells import task_cells
from scribengin_tools.rendering.dataflow import ShownDataflow
from scribengin_tools.web.model.values import tasks_json

NOW_MS = 10_000_000
REPORTS = (
    TaskReport(task="task-0", generation=1, state="isolating", rounds=3),
    TaskReport(task="task-1", generation=1, state="running", rounds=3),
)


def seen() -> ShownDataflow:
    status = DataflowStatus(
        dataflow="hot", state="running", config_version=0, tasks=shown_reports(REPORTS), tasks_total=2
    )
    worker = WorkerReport(worker="worker-1", written_ms=NOW_MS, tasks=REPORTS, spark_ready=True)
    nodes = OverviewNodes(status, None, 0, None, masters=1, reports={"worker-1": worker})
    return ShownDataflow(status, build_overview(nodes, NOW_MS))


def test_status_as_a_table_and_as_json() -> None:
    out = StringIO()
    Console(file=out, width=200).print(seen().renderable())
    lines = [line.split() for line in out.getvalue().splitlines() if line.startswith(("TASK", "task-"))]
    column = lines[0].index("STATE")
    assert [line[column] for line in lines] == ["STATE", "isolating", "running"]
    told = seen().to_json()
    assert told["state"] == "running", "the dataflow as a whole is neither stalled nor in trouble"
    assert [one["state"] for one in told["tasks"]] == ["isolating", "running"]


def test_the_monitor() -> None:
    assert [str(task_cells(one, NOW_MS)[1]) for one in seen().overview.tasks] == ["isolating", "running"]


def test_the_page_shows_it_and_finds_it_by_that_word() -> None:
    page = tasks_json(seen().overview, order="task", descending=False, words="isolating", offset=0, limit=50)
    assert [(one["task"], one["state"]) for one in page["tasks"]] == [("task-0", "isolating")]
