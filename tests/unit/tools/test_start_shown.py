"""What a command says of a dataflow while it waits until it runs."""

from __future__ import annotations

import pytest

from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin_tools.cli.dataflow.submit import progress_of


@pytest.mark.parametrize(
    ("workers", "unassigned", "said"),
    [
        ((), (), "starting"),
        ((), ("task-0",), "starting, 1 task waits for a worker"),
        (("worker-1",), (), "starting, 1 worker"),
        (("worker-1", "worker-2"), ("task-0", "task-1"), "starting, 2 workers, 2 tasks wait for a worker"),
    ],
)
def test_what_is_there_is_counted_and_what_is_not_is_not_told(
    workers: tuple[str, ...], unassigned: tuple[str, ...], said: str
) -> None:
    status = DataflowStatus(
        dataflow="hot", state="starting", config_version=0, workers=workers, tasks_unassigned=unassigned
    )
    assert progress_of(status) == said
