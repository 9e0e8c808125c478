"""What is made of what stands in the registry: one overview of a dataflow, as everybody shows it."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import (
    DataflowStatus,
    EdgeRates,
    PhaseTimes,
    RoundTimes,
    StreamLag,
    TaskReport,
    WorkerReport,
)
from scribengin.master.monitoring import master_health
from scribengin.monitoring.overview import DataflowOverview, OverviewNodes, TaskOverview, build_overview

NOW_MS = 10_000_000
STREAM_B = StreamLag(source="b", stream="0", records=1)
CONFIG = DataflowConfig.parse(
    {
        "name": "hot",
        "sources": {"in": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM in",
        "workers": 2,
    },
    source="the test",
)


def task(name: str = "task-0", generation: int = 1, **fields: Any) -> TaskReport:
    return TaskReport.model_validate({"task": name, "generation": generation, "state": "running", **fields})


def worker(name: str, *tasks: TaskReport, age_ms: int = 1000) -> WorkerReport:
    return WorkerReport(worker=name, written_ms=NOW_MS - age_ms, tasks=tasks, spark_ready=True)


def seen(
    *reports: WorkerReport, tasks: tuple[TaskReport, ...] = (), masters: int = 2, **status: Any
) -> DataflowOverview:
    said = DataflowStatus.model_validate(
        {"dataflow": "hot", "state": "running", "config_version": 0, "tasks": tasks, "tasks_total": 2, **status}
    )
    return build_overview(
        OverviewNodes(said, CONFIG, 0, None, masters=masters, reports={report.worker: report for report in reports}),
        NOW_MS,
    )


def only(found: DataflowOverview) -> TaskOverview:
    (task,) = found.tasks
    return task


def test_a_task_is_as_its_latest_owner_reports_it() -> None:
    old, new = task(generation=1, records_in=500), task(generation=2, records_in=3)
    found = only(seen(worker("worker-2", new), worker("worker-1", old)))
    assert (found.worker, found.records_in) == ("worker-2", 3)


@pytest.mark.parametrize("state", ["running", "paused", "stopping"])
def test_without_a_master_nobody_calls_it_running(state: str) -> None:
    assert seen(worker("worker-1", task()), state=state).state == state
    assert seen(worker("worker-1", task()), state=state, masters=0).state == "leaderless"


@pytest.mark.parametrize("state", ["starting", "stopped", "finished", "failed", "killed", "deleting"])
def test_what_needs_no_master_or_waits_for_its_first_is_as_it_was_said(state: str) -> None:
    assert seen(state=state, masters=0).state == state


def test_a_standstill_is_worse_than_that_nobody_leads() -> None:
    assert seen(worker("worker-1", task(lag_records=1, behind_s=1e6)), masters=0).state == "stalled"


def test_what_was_released_is_still_told_of_but_nobodys() -> None:
    found = only(seen(worker("worker-1", task(state="released", lag_records=7, in_per_s=3.0))))
    assert (found.worker, found.lag_records, found.in_per_s, found.stalled) == (None, 7, 0.0, False)


def test_sums_and_lag_by_source() -> None:
    one = task("task-0", in_per_s=10.0, out_per_s=1.0, lag_records=5, failures=1, last_commit_ms=7,
               lag=(StreamLag(source="in", stream="in/0", records=5),))  # fmt: skip
    two = task("task-1", in_per_s=5.5, lag_records=9, last_commit_ms=9,
               lag=(StreamLag(source="in", stream="in/1", records=8), STREAM_B))  # fmt: skip
    found = seen(worker("worker-1", one), worker("worker-2", two))
    assert (found.in_per_s, found.out_per_s, found.lag_records, found.failures) == (15.5, 1.0, 14, 1)
    assert found.last_commit_ms == 9
    assert [(s.source, s.lag_records) for s in found.sources] == [("b", 1), ("in", 13)]
    assert [s.stream for s in found.sources[1].streams] == ["in/1", "in/0"]
    assert [(w.name, w.tasks, w.in_per_s, w.lag_records) for w in found.workers] == [
        ("worker-1", 1, 10.0, 5),
        ("worker-2", 1, 5.5, 9),
    ]


def test_rates_by_source_and_sink_are_those_of_all_workers_that_are_heard() -> None:
    rates = EdgeRates(sources={"in": 10.5, "b": 1.0}, sinks={"out": 3.0})
    one, two, silent = (
        worker(name, task(name), age_ms=age_ms).model_copy(update={"rates": rates})
        for name, age_ms in (("worker-1", 1_000), ("worker-2", 1_000), ("worker-3", 3_600_000))
    )
    found = seen(one, two, silent)
    assert [(s.source, s.in_per_s, s.lag_records) for s in found.sources] == [
        ("b", 2.0, None),
        ("in", 21.0, None),
    ]
    assert [(s.sink, s.out_per_s) for s in found.sinks] == [("out", 6.0)]


def test_a_round_is_the_mean_of_the_tasks_that_had_one() -> None:
    def times(run: float) -> RoundTimes:
        return RoundTimes(last=PhaseTimes(), mean=PhaseTimes(run=run))

    found = seen(worker("worker-1", task("task-0", times=times(10.0)), task("task-1", times=times(20.0)), task("t")))
    assert found.round_ms == PhaseTimes(run=15.0)
    assert seen(worker("worker-1", task())).round_ms is None


def test_a_running_dataflow_with_a_stalled_task_is_stalled() -> None:
    found = seen(worker("worker-1", task(behind_s=70.0, lag_records=1), task("task-1")))
    assert (found.state, found.tasks_stalled) == ("stalled", ("task-0",))
    assert seen(worker("worker-1", task(behind_s=7.0))).state == "running"


def test_only_what_is_to_run_can_stall() -> None:
    found = seen(worker("worker-1", task(behind_s=70.0)), state="stopping")
    assert found.state == "stopping"


def test_a_worker_that_has_been_silent_has_no_rates_and_its_tasks_stall() -> None:
    found = seen(worker("worker-1", task(in_per_s=10.0, state="idle"), age_ms=61_000))
    assert (found.state, found.in_per_s, found.workers[0].silent_s) == ("stalled", 0.0, 61.0)


def test_a_task_without_an_owner_stalls_when_records_wait_for_it() -> None:
    waiting = task(lag_records=3, last_commit_ms=NOW_MS - 61_000)
    assert seen(tasks=(waiting,)).state == "stalled"
    assert seen(tasks=(waiting.model_copy(update={"lag_records": 0}),)).state == "running"
    assert seen(tasks=(waiting.model_copy(update={"last_commit_ms": NOW_MS - 50_000}),)).state == "running"
    assert seen(tasks=(waiting,), submitted_ms=NOW_MS - 5_000).state == "running", "it was just started again"


def test_tasks_are_in_their_order() -> None:
    found = seen(worker("worker-1", *(task(f"task-{n}") for n in (10, 9, 0))))
    assert [t.task for t in found.tasks] == ["task-0", "task-9", "task-10"]


def test_what_is_paused_is_not_stalled() -> None:
    waiting = task(lag_records=3, lag_paused=3, last_commit_ms=NOW_MS - 61_000)
    assert seen(tasks=(waiting,)).state == "running"
    assert seen(tasks=(waiting.model_copy(update={"lag_records": 4}),)).state == "stalled"
    assert seen(worker("worker-1", task(state="idle", lag_records=3, lag_paused=3), age_ms=61_000)).state == "stalled"
    paused = CONFIG.model_copy(update={"sources": {"in": CONFIG.sources["in"].model_copy(update={"paused": True})}})
    silent = worker("worker-1", task(state="idle", lag_records=3, lag_paused=3), age_ms=61_000)
    status = DataflowStatus(dataflow="hot", state="running", config_version=0, tasks_total=1)
    found = build_overview(OverviewNodes(status, paused, 0, None, masters=1, reports={"worker-1": silent}), NOW_MS)
    assert (found.state, found.lag_records) == ("running", 3)
    assert master_health(found, "master-1").well
