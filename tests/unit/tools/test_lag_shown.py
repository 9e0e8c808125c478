"""How far a dataflow is behind, as all that show it say it: `?` before anybody has looked, `~` before what is old."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from scribengin.dataflow.lag import LAG_OLD_S
from scribengin.dataflow.registry.descriptors import DataflowStatus, StreamLag, TaskReport, WorkerReport
from scribengin.master.state.status import shown_reports
from scribengin.monitoring.metrics import WorkerSeries
from scribengin.monitoring.overview import DataflowOverview, OverviewNodes, build_overview
from scribengin_tools.monitor.cells import ChainRow, chain_cells, detail_lines, flow_cells, task_cells
from scribengin_tools.rendering.dataflow import ShownDataflow
from scribengin_tools.rendering.text import lag_text
from scribengin_tools.web.model.timeline import Timeline, row_of
from scribengin_tools.web.model.values import detail_json, flow_json, tasks_json

NOW_MS = 10_000_000
REPORT_AGE_S = 4.0
FRESH = LAG_OLD_S - REPORT_AGE_S
OLD = FRESH + 0.1


def task(name: str = "task-0", records: int | None = 7, age_s: float | None = FRESH, **more: Any) -> TaskReport:
    lag = () if records is None else (StreamLag(source="in", stream=f"in/{name}", records=records),)
    fields = {"lag_records": records, "lag_age_s": None if records is None else age_s, "lag": lag, **more}
    return TaskReport.model_validate({"task": name, "generation": 1, "state": "running", **fields})


def seen(*tasks: TaskReport, total: int | None = None, orphans: tuple[TaskReport, ...] = ()) -> ShownDataflow:
    total = len(tasks) + len(orphans) if total is None else total
    status = DataflowStatus(dataflow="hot", state="running", config_version=0, tasks=orphans, tasks_total=total)
    written_ms = NOW_MS - int(REPORT_AGE_S * 1000)
    report = WorkerReport(worker="worker-1", written_ms=written_ms, tasks=tasks, spark_ready=True)
    return ShownDataflow(
        status, build_overview(OverviewNodes(status, None, 0, None, masters=1, reports={"worker-1": report}), NOW_MS)
    )


def text(found: DataflowOverview) -> str:
    return lag_text(found)


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (task(records=None), "?"),
        (task(), "7"),
        (task(records=0), "0"),
        (task(age_s=OLD), "~7"),
        (task(records=12_345, age_s=OLD), "~12,345"),
        (task(age_s=None), "~7"),
        (task(records=0, age_s=3600.0, state="finished"), "0"),
        (task(records=0, age_s=OLD, state="released"), "~0"),
    ],
)
def test_one_task(one: TaskReport, shown: str) -> None:
    found = seen(one).overview
    assert [lag_text(found.tasks[0]), lag_text(found.workers[0]), lag_text(found)] == [
        shown,
        "0" if one.state == "released" else shown,
        shown,
    ]


def test_a_sum_says_what_it_leaves_out() -> None:
    assert text(seen(task(), task("task-1", 3)).overview) == "10"
    assert text(seen(task(), task("task-1", 3, OLD)).overview) == "~10"
    assert text(seen(task(), task("task-1", None)).overview) == "~7", "one of them has never been looked at"
    assert text(seen(task(), total=2).overview) == "~7", "of one nobody has told"
    assert text(seen(total=2).overview) == "?"
    assert text(seen().overview) == "?", "its tasks are not made yet"
    assert seen(task(age_s=1.0), task("task-1", 3, 5.0)).overview.lag_age_s == 9.0, "as old as the oldest"


def test_what_nobody_owns_is_old_however_fresh_its_last_report_was() -> None:
    (kept,) = shown_reports([task()])
    assert (kept.lag_records, kept.lag_age_s) == (7, None), "a status does not change with ages"
    assert text(seen(orphans=(kept,)).overview) == "~7"
    assert text(seen(orphans=(task(records=None),)).overview) == "?"


def test_a_source_says_what_its_streams_leave_out() -> None:
    whole = seen(task(), task("task-1", 3)).overview
    assert [lag_text(source) for source in whole.sources] == ["10"]
    without = task("task-1", 3).model_copy(update={"lag": ()})
    assert [lag_text(source) for source in seen(task(), without).overview.sources] == ["~7"]


def test_status_as_a_table_and_as_json() -> None:
    found = seen(task(records=None), task("task-1", age_s=OLD), orphans=(task("task-2"),))
    out = StringIO()
    Console(file=out, width=200).print(found.renderable())
    lines = [line.split() for line in out.getvalue().splitlines() if line.startswith(("TASK", "task-"))]
    column = lines[0].index("LAG")
    assert [line[column] for line in lines] == ["LAG", "?", "~7", "~7"]
    told = found.to_json()
    assert (told["lag_records"], told["lag_age_s"]) == (14, 10.1)
    assert [(one["task"], one["lag_records"], one["lag_age_s"]) for one in told["tasks"]] == [("task-2", 7, None)]
    unseen = seen(task(records=None)).to_json()
    assert (unseen["lag_records"], unseen["lag_age_s"]) == (None, None)


def test_the_monitor() -> None:
    found = seen(task(records=None), task("task-1", 84_210, OLD)).overview
    assert str(flow_cells(found, NOW_MS)[6]) == "~84.2k"
    assert [str(task_cells(one, NOW_MS)[5]) for one in found.tasks] == ["?", "~84.2k"]
    assert "lag     in ~84.2k (in/task-1 84.2k)" in [str(line) for line in detail_lines(found)]
    nothing = seen().overview
    chains = [ChainRow("c", flows) for flows in ((found, nothing), (nothing,))]
    assert [str(chain_cells(chain)[6]) for chain in chains] == ["~84.2k", "?"]


def test_the_page() -> None:
    unseen, old = seen(task(records=None)).overview, seen(task(age_s=OLD)).overview
    assert [(flow_json(one, None)["lag"], flow_json(one, None)["lag_about"]) for one in (unseen, old)] == [
        (None, False),
        (7, True),
    ]
    assert flow_json(old, None)["sources"] == {"in": [0.0, 7, True]}
    assert detail_json(old)["workers"][0]["lag_about"]
    page = tasks_json(unseen, order="lag_records", descending=True, words="", offset=0, limit=50)
    assert page["tasks"][0]["lag_records"] is None
    line = Timeline()
    line.add(row_of(unseen, 1))
    line.add(row_of(old, 2))
    assert [row[3] for row in line.rows()] == [None, 7]


def test_metrics_have_no_lag_before_somebody_has_looked() -> None:
    tasks = [task(records=None)]
    series = WorkerSeries("hot", lambda: tasks)
    try:

        def samples() -> dict[str, list[float]]:
            return {
                family.name: [sample.value for sample in family.samples]
                for family in series.collect()
                if family.name.startswith("scribengin_lag")
            }

        assert samples() == {"scribengin_lag_records": [], "scribengin_lag_age_seconds": []}
        tasks[0] = task(records=0, age_s=61.0)
        assert samples() == {"scribengin_lag_records": [0], "scribengin_lag_age_seconds": [61.0]}
    finally:
        series.close()
