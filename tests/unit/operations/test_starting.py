"""When a dataflow has begun: what `submit --wait` waits for; and why a sandbox ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.registry.descriptors import DataflowStatus, TaskReport
from scribengin.operations.lifecycle import has_begun, is_running
from scribengin_tools.sandbox import free_bytes, why_it_died


def status(**task: Any) -> DataflowStatus:
    return DataflowStatus.model_validate(
        {
            "dataflow": "hot",
            "state": "running",
            "updated_ms": 0,
            "config_version": 1,
            "tasks_total": 1,
            "tasks": [TaskReport.model_validate({"task": "task-0", "generation": 1, **task})],
        }
    )


@pytest.mark.parametrize(
    ("task", "begun"),
    [
        ({"state": "running"}, False),
        ({"state": "running", "rounds": 1}, True),
        ({"state": "running", "rounds": 1, "error": "the disk is full"}, False),
        ({"state": "isolating"}, False),
        ({"state": "isolating", "rounds": 1}, True),
        ({"state": "idle"}, True),
        ({"state": "finished"}, True),
    ],
)
def test_a_dataflow_has_begun_once_every_task_has_done_what_it_is_for(task: dict[str, Any], begun: bool) -> None:
    found = status(**task)
    assert is_running(found)
    assert has_begun(found) is begun


def test_a_sandbox_whose_disk_is_full_says_so(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    for said, free in (("", 4096), ("IOException: No space left on device", 10**9)):
        text = why_it_died(tmp_path, log, said, free)
        assert f"the disk under {tmp_path} is full" in text
        assert "make room" in text
    other = why_it_died(tmp_path, log, "OutOfMemoryError", 10**9)
    assert "full" not in other
    assert "OutOfMemoryError" in other
    assert free_bytes(tmp_path) > 0
