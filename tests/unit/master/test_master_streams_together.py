"""A master puts streams that are gone together beside what matters: whether that goes well changes nothing else."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.connectors.contract import SourceStreamDescriptor
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.master.ended_streams import EndedStreams, Grouping
from scribengin.master.jobs import find_streams
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from tests.unit.pages_looked_at import pages_looked_at

NODES = DataflowPaths("flow")


@pytest.fixture(autouse=True)
def one_is_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_streams, "TOGETHER_MIN", 1)


def dataflow(registry: Registry, *, endless: bool = False) -> OpenedDataflow:
    """A dataflow of two sources, `a` and `b`, in each of which one stream was read that is gone."""
    registry.create(NODES.worker("worker-1"), parents=True)
    for source in ("a", "b"):
        commit(registry, source, "P0")
    resources = SimpleNamespace(
        config=SimpleNamespace(
            name="flow",
            tasks=None,
            state=None,
            desired_state="running",
            sources=dict.fromkeys("ab", SimpleNamespace(endless=endless)),
        ),
        sources=dict.fromkeys("ab", SimpleNamespace(streams_leave=True, goes_on=lambda *_: False)),
        source_streams=lambda: {"a": [], "b": []},
        sinks={},
        sink_streams=lambda _count: {},
    )
    return cast(OpenedDataflow, resources)


def commit(registry: Registry, source: str, stream: str) -> None:
    log = CommitLog(dataflow="flow", task="", owner="", generation=0, epoch=0, round=0, position={"sequence": 7})
    registry.create(paths.commit_log(NODES.source_stream(source, stream)), log.to_bytes(), parents=True)


def with_nodes(registry: Registry, source: str) -> list[str]:
    return registry.children(paths.source_streams("flow", source))


def test_a_page_that_is_damaged_keeps_the_master_from_nothing_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "scribengin")
    with MemoryEnsemble().connect() as registry:
        resources = dataflow(registry)
        page = NODES.gone_page("a", 0)
        registry.create(page, b"damaged", parents=True)
        look = find_streams(registry, lambda: Grouping({}, anew=False), lambda _event: None)
        for _ in range(2):
            look(resources, "streams")
        assert (with_nodes(registry, "a"), with_nodes(registry, "b")) == (["P0"], [])
        assert caplog.text.count(page) == 1
        registry.delete(page)
        look(resources, "streams")
        assert with_nodes(registry, "a") == []
        commit(registry, "a", "P1")
        registry.set(page, b"damaged")
        look(resources, "streams")
        assert caplog.text.count(page) == 2, "it was mended, and is damaged again"


def test_a_lost_reply_keeps_the_master_from_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def lost(_stop: str) -> None:
        raise OutcomeUnknown("the connection broke")

    with MemoryEnsemble().connect() as registry:
        resources = dataflow(registry)
        look = find_streams(registry, lambda: Grouping({}, anew=False), lambda _event: None)
        with at_failpoint("streams.put_together:after", lost):
            look(resources, "streams")
        look(resources, "streams")
        assert (with_nodes(registry, "a"), with_nodes(registry, "b")) == ([], [])
    assert "the connection broke" in caplog.text


def test_where_tasks_have_ended_is_read_from_each_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"P{number}" for number in range(5)]
    streams = [SourceStreamDescriptor(source="a", name=name) for name in names]
    tasks = {f"task-{one.name}": TaskDescriptor(name=f"task-{one.name}", sources=(one,), sinks=()) for one in streams}
    with MemoryEnsemble().connect() as registry:
        resources = dataflow(registry, endless=True)
        for name in names[1:]:
            commit(registry, "a", name)
        gone_streams.put_together(registry, "flow", "a", ())
        looked = pages_looked_at(registry, NODES, monkeypatch)
        ended = EndedStreams(registry)
        for _ in range(2):
            assert ended.going_on(resources, Grouping(tasks, anew=False, finished=frozenset(tasks))) == ()
        assert looked == [NODES.gone_page("a", 0)]
        assert DataflowView(registry, "flow").streams_read("a") == names
