"""What an executor says and reports of a round that goes on for long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import cast

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import TaskAssignment
from scribengin.dataflow.round.bad_records import Isolating
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.testing.waiting import wait_until
from scribengin.worker.executor import Executor
from scribengin.worker.state import AssignedTask


class Searching:
    """A task whose first round is a search for bad records, which ends when the test says so."""

    round = 4

    def __init__(self, tell: Callable[[Isolating], None]) -> None:
        self._tell = tell
        self.begun, self.done = threading.Event(), threading.Event()

    def take_over(self) -> None: ...

    def state(self) -> None:
        return None

    def lags(self) -> list[object]:
        return []

    def ended(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        return self.done.wait(timeout_s) and False

    def run_round(self) -> None:
        if not self.begun.is_set():
            self._tell(Isolating(31_836, 0, 0, 1, "ValueError: Grüße"))
            self.begun.set()
            assert self.done.wait(120)
            self._tell(Isolating(31_836, 3, 40, 0, "ValueError: Grüße"))

    def close(self) -> None: ...


def test_a_search_for_bad_records_is_in_the_report_while_it_goes_on_and_in_the_log_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "scribengin")
    tasks: list[Searching] = []

    def opened(_owned: AssignedTask, tell: Callable[[Isolating], None]) -> RoundRunner:
        tasks.append(Searching(tell))
        return cast(RoundRunner, tasks[0])

    executor = Executor(
        "executor-1", opened, SYSTEM_CLOCK, lambda: None, lambda _: None, lambda _: None, PatienceConfig()
    )
    executor.assign([TaskAssignment(task="task-0", generation=1)])
    executor.start()
    wait_until(lambda: tasks and tasks[0].begun.is_set(), what="the search")
    assert [task.state for task in executor.report().tasks] == ["isolating"]
    tasks[0].done.set()
    wait_until(lambda: executor.report().tasks[0].state == "idle", what="the end of the round")
    executor.stop(120)
    said = caplog.text
    assert "task-0: a round of 31,836 records failed (ValueError: Grüße); its bad records are isolated" in said
    assert "task-0: 40 bad among 31,836 records, found with 3 more runs" in said
