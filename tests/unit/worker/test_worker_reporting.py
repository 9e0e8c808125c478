"""When a worker writes its report."""

from __future__ import annotations

from scribengin.dataflow.registry.descriptors import TaskState
from scribengin.worker.progress import Progress
from scribengin.worker.reporting import ReportSchedule, WorkerLook


def report(state: TaskState = "running", rounds: int = 0, rate: float = 0.0) -> WorkerLook:
    run = {"task": "task-0", "generation": 1, "state": state, "error": None, "rounds": rounds}
    aged = {"in_per_s": rate, "behind_s": rate, "lag_age_s": rate}
    return WorkerLook([{**Progress(0.0).report(0.0, busy=False), **run, **aged}], spark_ready=True, leaving=False)


def written(at_s: float = 10.0) -> ReportSchedule:
    schedule = ReportSchedule()
    schedule.written(report(), at_s)
    return schedule


def test_the_first_report_goes_at_once() -> None:
    assert ReportSchedule().due(report(), 0.0)


def test_a_new_state_goes_at_once_because_the_master_waits_for_it() -> None:
    assert written().due(report("released"), 10.1)


def test_counts_go_once_a_second() -> None:
    assert not written().due(report(rounds=1), 10.9)
    assert written().due(report(rounds=1), 11.0)


def test_nothing_new_goes_every_few_seconds() -> None:
    assert not written().due(report(), 14.9)
    assert written().due(report(), 15.0)


def test_what_changes_by_time_alone_waits_for_the_next_word() -> None:
    assert not written().due(report(rate=3.0), 14.9)
    assert written().due(report(rate=3.0), 15.0)
