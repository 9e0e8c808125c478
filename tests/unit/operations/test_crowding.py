"""More workers on one machine than its dataflow has work for: refused, wherever they are asked for, unless meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.config_node import config_to_bytes
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, SourceMissing
from scribengin.log import LogNamespace
from scribengin.master.state.events import ConfigEdited
from scribengin.master.watching import DataflowWatcher
from scribengin.operations.editing import edit_config, replace_config
from scribengin.operations.lifecycle import start_again
from scribengin.operations.submit.explain import explain
from scribengin.spark.transform.spec import CheckedPlan
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_tools.web.actions import WebActions

WORDS = (
    "workers: 5,000 on one machine, and 'flow' has 2 tasks: who has none does nothing, and takes memory; say "
    "16 at most, or `scribengin config set flow workers=5000 --force`"
)
WORDS_OF_SUBMIT = WORDS.partition("; say")[0] + (
    "; submit it with 16 at most, and then `scribengin config set flow workers=5000 --force`"
)


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        yield session


def config(**more: Any) -> DataflowConfig:
    value = {
        "name": "flow",
        "sources": {"src": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM src",
        **more,
    }
    return DataflowConfig.parse(value, source="the test")


def submitted_as(registry: MemoryRegistry, name: str, **more: Any) -> DataflowView:
    """One that has no task yet."""
    view = DataflowView(registry, name)
    view.submit(config(name=name, sinks={"out": {"kind": "log", "log": f"out-{name}"}}, **more), [], 0)
    return view


def submitted(registry: MemoryRegistry, tasks: int = 2, **more: Any) -> DataflowView:
    view = DataflowView(registry, "flow")
    view.submit(config(**more), [], SYSTEM_CLOCK.now_ms())
    view.set_status(view.status().model_copy(update={"tasks_total": tasks}))
    return view


def workers(count: int, **more: Any) -> Callable[[DataflowConfig], DataflowConfig]:
    return lambda config: config.model_copy(update={"workers": count, **more})


def test_an_edit_of_any_kind_is_refused_before_it_is_written(registry: MemoryRegistry) -> None:
    flow = submitted(registry)
    with pytest.raises(ConfigInvalid) as refused:
        edit_config(flow, workers(5000))
    assert str(refused.value) == WORDS
    with pytest.raises(ConfigInvalid):
        replace_config(flow, flow.config_to_edit(), workers(5000)(flow.config_to_edit().value))
    page = WebActions(registry)
    text = page.config("flow")["text"].replace("workers: 1", "workers: 5000")
    assert page.check("flow", text, 0)["error"] == WORDS
    assert flow.config().version == 0
    assert edit_config(flow, workers(5000), force=True).written


def by_hand(view: DataflowView, count: int, **more: Any) -> None:
    config = workers(count, **more)(view.config_in_force().value)
    view.registry.set(view.paths.config, config_to_bytes(config))


def seen_by_a_master(view: DataflowView) -> str | None:
    edited = DataflowWatcher(view, lambda _: None).config()
    assert isinstance(edited, ConfigEdited)
    return edited.crowding


def test_a_master_is_told_of_a_hand_s_edit_and_takes_a_command_s_for_meant(registry: MemoryRegistry) -> None:
    flow = submitted(registry, tasks=20)
    by_hand(flow, 41)
    assert "'flow' has 20 tasks" in (seen_by_a_master(flow) or "")
    for count, more in ((40, {}), (100, {"tasks": 50})):
        by_hand(flow, count, **more)
        assert seen_by_a_master(flow) is None
    edit_config(flow, workers(5000), force=True)
    assert seen_by_a_master(flow) is None


def test_a_hand_may_leave_as_many_as_there_were(registry: MemoryRegistry) -> None:
    flow = submitted(registry, workers=100)
    by_hand(flow, 100, stalled_after_s=5.0)
    assert seen_by_a_master(flow) is None


def test_start_does_not_make_a_hand_s_edit_its_own(registry: MemoryRegistry, tmp_path: Path) -> None:
    """It writes the config again, so a master would take all of it for what a command has asked about."""
    flow = submitted(registry, desired_state="stopped")
    flow.set_status(flow.status().model_copy(update={"state": "stopped"}))
    by_hand(flow, 5000)
    with pytest.raises(ConfigInvalid) as refused:
        start_again(flow, tmp_path)
    assert str(refused.value) == WORDS
    assert flow.config().value.desired_state == "stopped"
    assert flow.config().version == 1


def test_each_task_may_have_a_worker_and_one_in_reserve(registry: MemoryRegistry) -> None:
    flow = submitted(registry, tasks=20)
    assert edit_config(flow, workers(40)).written
    with pytest.raises(ConfigInvalid, match=r"'flow' has 20 tasks.* say 40 at most"):
        edit_config(flow, workers(41))
    assert edit_config(flow, workers(100, tasks=50)).written


def test_a_few_are_taken_where_no_task_is_known(registry: MemoryRegistry) -> None:
    flow = submitted(registry, tasks=0)
    assert edit_config(flow, workers(16)).written
    with pytest.raises(ConfigInvalid, match="'flow' has 0 tasks"):
        edit_config(flow, workers(17))
    wanted = submitted_as(registry, "wanted", tasks=30)
    assert edit_config(wanted, workers(60)).written, "the config says how many there are to be"
    with pytest.raises(ConfigInvalid, match="'wanted' has 30 tasks"):
        edit_config(wanted, workers(61))


def test_what_is_there_may_stay_and_become_less(registry: MemoryRegistry) -> None:
    flow = submitted(registry, workers=100)
    assert edit_config(flow, lambda config: config.model_copy(update={"stalled_after_s": 5.0})).written
    assert edit_config(flow, workers(50)).written


def test_a_cluster_has_a_queue_of_its_own(registry: MemoryRegistry) -> None:
    assert edit_config(submitted(registry, launcher="yarn"), workers(5000)).written


@pytest.mark.parametrize("streams", [0, 2])
def test_it_is_not_submitted_either(registry: MemoryRegistry, streams: int) -> None:
    disk = MemoryDisk("crowd")
    LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE)
    with LogNamespace.open("/logs", registry=registry) as logs:
        for stream in range(streams):
            logs.create(f"in/{stream}")
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)

    def problems(*, exists: bool = False, **more: Any) -> list[str]:
        wanted = config(**more)
        _, errors = explain(
            registry, wanted, environment, lambda _: CheckedPlan({}, {}, ()), exists=exists, expected=(SourceMissing,)
        )
        return [str(error) for error in errors if not isinstance(error, SourceMissing)]

    assert problems(workers=5000) == [WORDS_OF_SUBMIT.replace("2 tasks", f"{streams} tasks")]
    assert problems(workers=16) == []
    assert problems(workers=5000, exists=True) == [], "it was meant when it was said"
    assert bool(problems(workers=60, tasks=30)) == bool(streams), "there are no more tasks than streams"
