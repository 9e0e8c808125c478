"""Which dataflows keep another one's tasks from being scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy
from scribengin.operations.reordering import refuse_reordering
from scribengin.testing.memory_registry import MemoryEnsemble, MemoryRegistry


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


def test_who_is_waited_for_is_no_reason_and_who_is_not_is_one_however_far_behind(registry: MemoryRegistry) -> None:
    first = put(registry, "first", reads("in/*"), writes("mid"), tasks=2)
    put(registry, "next", reads("mid/*"), {"kind": "hdfs", "path": "/out", "format": "raw"})
    put(registry, "beside", reads("in/*", hold_back=False), writes("elsewhere"))
    refuse_reordering(first, 1)
    put(registry, "last", {"kind": "hdfs", "path": "/out/part-*"}, writes("end"))
    with pytest.raises(DataflowBusy) as refused:
        refuse_reordering(first, 1)
    assert str(refused.value) == (
        "dataflow 'last' reads files /out, which 'next' writes, and nobody waits for it: it might see records of a "
        "stream out of order. Let both end, in their order, then `scribengin config set first tasks=1` and `start` "
        "them; or go ahead with --force"
    )
    refuse_reordering(first, 2)


def test_a_config_that_cannot_be_read_hides_no_other(registry: MemoryRegistry) -> None:
    first = put(registry, "first", reads("in/*"), writes("mid"))
    broken = put(registry, "broken", reads("mid/*"), writes("end"))
    registry.set(broken.paths.config_in_force, b"{")
    refuse_reordering(first, 1)
    put(registry, "free", reads("mid/*", hold_back=False), writes("free"))
    with pytest.raises(DataflowBusy, match="'free' reads log mid, which 'first' writes"):
        refuse_reordering(first, 1)
