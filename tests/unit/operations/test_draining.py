"""What a dataflow of a chain has left to read, of producers that have gone, too."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin.connectors.contract import SourceStreamDescriptor
from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.chain import draining
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from tests.unit.pages_looked_at import pages_looked_at

END = 5
NAMES = [f"P{number}" for number in range(6)]


def submitted(registry: Registry) -> DataflowView:
    config = load_config(
        {
            "name": "flow",
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM in",
        }
    )
    view = DataflowView(registry, "flow")
    view.submit(config, ["log:/logs/out"], now_ms=1)
    return view


def read_up_to(view: DataflowView, stream: str, at: int) -> None:
    log = CommitLog(dataflow="flow", task="", owner="", generation=0, epoch=0, round=0, position={"at": at})
    path = paths.commit_log(view.paths.source_stream("in", stream))
    view.registry.create(path, log.to_bytes(), parents=True)


def source(*_said: object) -> SimpleNamespace:
    """Each stream ends at END."""

    def plan(position: Position, _limits: object) -> object:
        return object() if position["at"] < END else None

    reader = SimpleNamespace(initial_position=lambda: {"at": 0}, plan=plan, close=lambda: None)
    streams = [SourceStreamDescriptor(source="in", name=name) for name in NAMES]
    return SimpleNamespace(streams=lambda: streams, open_reader=lambda _stream: reader, close=lambda: None)


def test_where_streams_that_are_gone_were_read_up_to_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_streams, "TOGETHER_MIN", 1)
    monkeypatch.setattr(draining, "open_source", source)
    with MemoryEnsemble().connect() as registry:
        view = submitted(registry)
        for number, name in enumerate(NAMES[:5]):  # the last one was never read
            read_up_to(view, name, at=number + 2)
        registry.create(view.paths.worker("worker-1"), parents=True)  # by whose node it knows the dataflow
        gone_streams.put_together(registry, "flow", "in", ["P0"])
        looked = pages_looked_at(registry, view.paths, monkeypatch)
        assert draining.left_to_read(view, ["in"]) == ("in:P0", "in:P1", "in:P2", "in:P5")
        assert looked == [view.paths.gone_page("in", 0)]
