"""A dataflow that was submitted, in a registry in memory: for tests of what is asked or said of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.memory.registry import MemoryEnsemble

CONFIG = DataflowConfig.parse(
    {
        "name": "flow",
        "sources": {"src": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM src",
    },
    source="the test",
)


@contextmanager
def submitted() -> Iterator[DataflowView]:
    """It has no master yet."""
    with MemoryEnsemble().connect() as registry:
        view = DataflowView(registry, CONFIG.name)
        view.submit(CONFIG, [], SYSTEM_CLOCK.now_ms())
        yield view
