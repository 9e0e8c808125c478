"""An edit of what a source reads, which a new master finds before it has workers."""

from __future__ import annotations

import pytest

from scribengin.dataflow.registry.descriptors import DataflowStatus, PlacementHead
from scribengin.master.state import events as ev
from scribengin.master.state.machine import MasterState
from tests.scenario.world import make_config, make_task


@pytest.mark.parametrize(("logs", "accepted"), [("elsewhere/*", False), ("i*/*", True)])
def test_it_is_taken_where_tasks_go_on_with_what_they_read(logs: str, accepted: bool) -> None:
    snapshot = ev.DataflowSnapshot(
        dataflow="flow",
        config=make_config(),
        config_version=0,
        head=PlacementHead(),
        status=DataflowStatus(dataflow="flow", state="starting", config_version=0),
        tasks={"task-0": make_task(0)},
    )
    master = MasterState(snapshot, master="master-2", standbys=0, now_s=0.0)
    edited = make_config(sources={"in": {"kind": "log", "logs": logs}})
    done = master.handle([ev.ConfigEdited(1, edited)], 0.0)
    assert any(isinstance(one, ev.AcceptConfig) for one in done) == accepted
    assert any(isinstance(one, ev.RefuseConfig) for one in done) != accepted
    assert accepted or "the dataflow reads in/0, which would not be meant any more" in str(master.config_error)
