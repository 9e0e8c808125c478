"""Edits that a new master finds before it has workers."""

from __future__ import annotations

import pytest

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import DataflowStatus, PlacementHead
from scribengin.master.state import events as ev
from scribengin.master.state.machine import MasterState
from tests.scenario.world import make_config, make_task


@pytest.mark.parametrize(("logs", "accepted"), [("elsewhere/*", False), ("i*/*", True)])
def test_other_logs_are_taken_where_tasks_go_on_with_what_they_read(logs: str, accepted: bool) -> None:
    master = of_config(make_config())
    edited = make_config(sources={"in": {"kind": "log", "logs": logs}})
    done = master.handle([ev.ConfigEdited(1, edited)], 0.0)
    assert any(isinstance(one, ev.AcceptConfig) for one in done) == accepted
    assert any(isinstance(one, ev.RefuseConfig) for one in done) != accepted
    assert accepted or "the dataflow reads in/0, which would not be meant any more" in str(master.config_error)


def test_what_sinks_keep_is_not_exchanged_by_an_edit_that_names_them_in_another_order() -> None:
    sinks = {name: {"kind": "log", "log": name} for name in ("a", "b")}
    counts = {"a": "SELECT count(*) FROM in GROUP BY key", "b": "SELECT count(*) FROM in GROUP BY channel"}
    master = of_config(make_config(sinks=sinks, sql=counts, state={}))
    turned = {"sinks": dict(reversed(sinks.items())), "sql": dict(reversed(counts.items()))}
    done = master.handle([ev.ConfigEdited(1, make_config(**turned, state={}, workers=2))], 0.0)
    [accepted] = [one.config for one in done if isinstance(one, ev.AcceptConfig)]
    assert (accepted.workers, list(accepted.sinks), list(accepted.statements())) == (2, ["a", "b"], ["a", "b"])
    assert list(master.config.statements()) == ["a", "b"]


def of_config(config: DataflowConfig) -> MasterState:
    """The master of a dataflow that has a task and no worker."""
    snapshot = ev.DataflowSnapshot(
        dataflow="flow",
        config=config,
        config_version=0,
        head=PlacementHead(),
        status=DataflowStatus(dataflow="flow", state="starting", config_version=0),
        tasks={"task-0": make_task(0)},
    )
    return MasterState(snapshot, master="master-2", standbys=0, now_s=0.0)
