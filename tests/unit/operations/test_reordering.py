"""Which dataflows keep another one's tasks from becoming more or fewer, and every edit that is refused for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import reordering
from scribengin.dataflow.registry.config_node import config_to_bytes
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy
from scribengin.master.state.events import ConfigEdited
from scribengin.master.watching import DataflowWatcher
from scribengin.operations.editing import edit_config, replace_config
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_tools.web.actions import WebActions


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        yield session


def put(registry: MemoryRegistry, name: str, source: dict[str, Any], sink: dict[str, Any], **more: Any) -> DataflowView:
    value = {"name": name, "sources": {"src": source}, "sinks": {"out": sink}, "sql": "SELECT payload FROM src", **more}
    view = DataflowView(registry, name)
    view.submit(DataflowConfig.parse(value, source="the test"), [], SYSTEM_CLOCK.now_ms())
    return view


def reads(logs: str, **more: Any) -> dict[str, Any]:
    return {"kind": "log", "logs": logs, **more}


def writes(log: str) -> dict[str, Any]:
    return {"kind": "log", "log": log}


WORDS = (
    "dataflow 'last' reads files /out, which 'next' writes, and nobody waits for it: it might see records of a "
    "stream out of order. Let both end, in their order, then `scribengin config set first tasks=1` and `start` "
    "them; or go ahead with `scribengin config set first tasks=1 --force`"
)


@pytest.fixture
def first(registry: MemoryRegistry) -> DataflowView:
    """The first of three, whose last reader nobody waits for."""
    first = put(registry, "first", reads("in/*"), writes("mid"), tasks=2)
    put(registry, "next", reads("mid/*"), {"kind": "hdfs", "path": "/out", "format": "raw"})
    put(registry, "last", {"kind": "hdfs", "path": "/out/part-*"}, writes("end"))
    return first


def one_task(config: DataflowConfig) -> DataflowConfig:
    return config.model_copy(update={"tasks": 1})


def by_hand(view: DataflowView, config: DataflowConfig) -> None:
    view.registry.set(view.paths.config, config_to_bytes(config))


def seen_by_a_master(view: DataflowView) -> ConfigEdited:
    edited = DataflowWatcher(view, lambda _: None).config()
    assert isinstance(edited, ConfigEdited)
    return edited


def test_who_is_waited_for_is_no_reason_and_who_is_not_is_one_however_far_behind(registry: MemoryRegistry) -> None:
    first = put(registry, "first", reads("in/*"), writes("mid"), tasks=2)
    put(registry, "next", reads("mid/*"), {"kind": "hdfs", "path": "/out", "format": "raw"})
    put(registry, "beside", reads("in/*", retention_hold=False), writes("elsewhere"))
    assert reordering(first, 1) is None
    put(registry, "last", {"kind": "hdfs", "path": "/out/part-*"}, writes("end"))
    assert reordering(first, 1) == WORDS
    assert reordering(first, 2) is None
    assert "`scribengin config set first tasks= --force`" in (reordering(first, None) or "")


def test_a_config_that_cannot_be_read_hides_no_other(registry: MemoryRegistry) -> None:
    first = put(registry, "first", reads("in/*"), writes("mid"))
    broken = put(registry, "broken", reads("mid/*"), writes("end"))
    registry.set(broken.paths.config_in_force, b"{")
    assert reordering(first, 1) is None
    put(registry, "free", reads("mid/*", retention_hold=False), writes("free"))
    assert "'free' reads log mid, which 'first' writes" in (reordering(first, 1) or "")


def test_an_edit_of_any_kind_is_refused_before_it_is_written(first: DataflowView) -> None:
    """As commands make it, and the text of a config that a person has changed."""
    with pytest.raises(DataflowBusy) as refused:
        edit_config(first, one_task)
    assert str(refused.value) == WORDS
    with pytest.raises(DataflowBusy):
        replace_config(first, first.config_to_edit(), one_task(first.config_to_edit().value))
    page = WebActions(first.registry)
    text = page.config("first")["text"].replace("tasks: 2", "tasks: 1")
    assert page.check("first", text, 0)["error"] == WORDS
    with pytest.raises(DataflowBusy):
        page.save("first", text, 0, "ada")
    with pytest.raises(DataflowBusy):
        page.scale("first", {"tasks": 1}, "ada")
    assert first.config().version == 0
    assert edit_config(first, lambda config: config.model_copy(update={"workers": 3})).written
    assert edit_config(first, one_task, force=True).written


def test_one_that_has_ended_is_edited(first: DataflowView) -> None:
    first.set_status(first.status().model_copy(update={"state": "stopped"}))
    assert edit_config(first, one_task).written


def test_a_master_is_told_of_a_hand_s_edit_and_takes_a_command_s_for_meant(first: DataflowView) -> None:
    by_hand(first, one_task(first.config().value))
    assert seen_by_a_master(first).reordering == WORDS
    first.registry.set(first.paths.config, config_to_bytes(first.config_in_force().value))
    edit_config(first, one_task, force=True)
    assert seen_by_a_master(first).reordering is None
