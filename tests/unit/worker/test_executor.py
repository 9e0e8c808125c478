"""The thread of an executor: it outlives what its tasks do, and a full disk under its log."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import TaskAssignment
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.testing.waiting import wait_until
from scribengin.worker.executor import Executor, OpenTask
from scribengin.worker.failures import Failure
from scribengin.worker.state import AssignedTask


def running(open_task: OpenTask) -> tuple[Executor, list[Failure]]:
    fatal: list[Failure] = []
    executor = Executor(
        "executor-1", open_task, SYSTEM_CLOCK, lambda: None, fatal.append, lambda _: None, PatienceConfig()
    )
    executor.start()
    return executor, fatal


def refused(error: BaseException) -> OpenTask:
    def open_task(_: AssignedTask, _told: object) -> RoundRunner:
        raise error

    return open_task


def error_of(executor: Executor) -> str:
    return next((task.error or "" for task in executor.report().tasks), "")


def test_a_users_exit_is_the_trouble_of_its_task_and_not_the_threads_silent_end() -> None:
    executor, fatal = running(refused(SystemExit(3)))
    executor.assign([TaskAssignment(task="task-0", generation=1)])
    wait_until(lambda: "sys.exit(3)" in error_of(executor), 120, "the task's error")
    assert any(thread.name == "executor-1" for thread in threading.enumerate())
    assert fatal == []
    executor.stop(60)


def test_a_full_disk_under_the_log_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        executor, fatal = running(refused(OSError(28, "No space left on device")))
        executor.assign([TaskAssignment(task="task-0", generation=1)])
        wait_until(lambda: "No space left" in error_of(executor), 120, "the task's error")
        assert fatal == []
        executor.stop(60)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
