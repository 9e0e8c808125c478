"""A disk that is full for a while: the task waits, says so, and goes on by itself, with nothing lost or twice."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.failpoints import set_hook
from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import TaskAssignment, TaskReport
from scribengin.log import LogNamespace
from scribengin.testing.waiting import wait_until
from scribengin.worker.executor import Executor
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_round_edges import LOG_SINK, Copy, append, delivered, resources
from tests.integration.owners import owners_of

FAILURES_MIN = 3


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("in/0")
        yield opened


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """The hook sees every effect of this process: a failpoint strikes once, and a disk is full until there is room."""
    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("files.create:before", "hdfs"),
        ("files.append:before", "hdfs"),
        ("files.sync:before", "hdfs"),
        ("log.stage_write:before", "log"),
        ("log.stage_sync:before", "log"),
    ],
)
def test_a_task_waits_for_room_and_goes_on(
    registry: Registry, namespace: LogNamespace, tmp_path: Path, stop: str, kind: str
) -> None:
    full = threading.Event()
    full.set()

    def no_room(passed: str) -> None:
        if passed == stop and full.is_set():
            raise OSError(errno.ENOSPC, "No room")

    sink: Mapping[str, Any] = LOG_SINK if kind == "log" else {"kind": "hdfs", "path": str(tmp_path / "out")}
    append(namespace, range(10))
    with resources(registry, sink) as opened, hooked(no_room):
        (task,) = opened.tasks()

        def report() -> TaskReport:
            found = executor.report().tasks
            return found[0] if found else TaskReport(task=task.name, generation=1, state="taking_over")

        executor = Executor(
            "executor-1",
            lambda owned, _told: owners_of(registry, opened, Copy("out"), generation=owned.generation)[0],
            SYSTEM_CLOCK,
            on_change=lambda: None,
            on_fatal=lambda failure: None,
            on_round=lambda outcome: None,
            patience=PatienceConfig(failing_s=0),
        )
        executor.start()
        executor.assign([TaskAssignment(task=task.name, generation=1)])
        try:
            wait_until(lambda: report().failures >= FAILURES_MIN, 120, "the disk to be found full")
            wait_until(lambda: report().state == "waiting", 120, "the task to say that it waits")
            assert "No room" in (report().error or "")
            assert "it goes on when there is room" in (report().error or "")
            assert delivered(opened) == []
            full.clear()
            wait_until(lambda: delivered(opened) == list(range(10)), 120, "the records to be delivered")
            wait_until(lambda: report().error is None, 120, "the task to be well again")
        finally:
            executor.stop(60)
