"""Who is stalled: somebody who has something to do and commits nothing, however alive it is."""

from __future__ import annotations

import pytest

from scribengin.dataflow.registry.descriptors import TaskReport, TaskState, WorkerReport
from scribengin.monitoring.stalled import SILENT_S, STALL_TURNS, stalled_tasks

AFTER_S = 60.0
WRITTEN_MS = 1_000_000


def task(
    name: str = "task-0", state: TaskState = "running", behind_s: float = 0.0, round_ms: float | None = 5.0
) -> TaskReport:
    return TaskReport(task=name, generation=1, state=state, behind_s=behind_s, round_ms=round_ms)


def stalled(*tasks: TaskReport, age_s: float = 1.0) -> dict[str, float]:
    report = WorkerReport(worker="worker-1", written_ms=WRITTEN_MS, tasks=tasks, spark_ready=True)
    return stalled_tasks(report, WRITTEN_MS + int(age_s * 1000), AFTER_S)


@pytest.mark.parametrize("state", ["taking_over", "running", "isolating", "idle"])
def test_a_task_that_has_been_behind_for_longer_than_allowed_is_stalled(state: TaskState) -> None:
    assert stalled(task(state=state, behind_s=58.9)) == {}
    assert stalled(task(state=state, behind_s=59.5)) == {"task-0": 60.5}


def test_a_task_without_anything_to_do_never_is() -> None:
    assert stalled(task(state="idle", behind_s=0.0), age_s=SILENT_S) == {}


@pytest.mark.parametrize("state", ["released", "finished", "failed"])
def test_a_task_that_has_come_to_its_end_never_is(state: TaskState) -> None:
    assert stalled(task(state=state, behind_s=500.0), age_s=500.0) == {}


def test_long_rounds_are_given_the_time_of_some_of_them() -> None:
    minute = task(behind_s=STALL_TURNS * 60.0 - 2, round_ms=60_000)
    assert stalled(minute) == {}
    assert set(stalled(minute, age_s=3.0)) == {"task-0"}


def test_tasks_take_turns_so_each_is_given_the_time_of_all() -> None:
    many = [task(f"task-{n}", behind_s=100.0, round_ms=1000) for n in range(40)]
    assert stalled(*many) == {}
    assert len(stalled(*many[:20])) == 20


def test_of_a_worker_that_says_nothing_any_more_all_tasks_are() -> None:
    idle, busy = task("task-0", "idle"), task("task-1", "running", behind_s=1.0)
    assert stalled(idle, busy, age_s=59.5) == {"task-1": 60.5}
    assert set(stalled(idle, busy, age_s=61.0)) == {"task-0", "task-1"}


def test_a_report_of_the_future_is_one_of_now() -> None:
    assert stalled(task(behind_s=59.0), age_s=-3600.0) == {}
