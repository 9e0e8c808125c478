"""What the page's watcher keeps of a dataflow over its looks."""

from __future__ import annotations

from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from scribengin_tools.web.model.watcher import Watcher
from tests.integration.watched import config


def looked(watcher: Watcher, name: str, state: str) -> None:
    """It has looked, and the dataflow was so."""

    def is_so() -> bool:
        watcher.look_soon()
        flows = watcher.snapshot.flows
        return name in flows and flows[name][1]["state"] == state

    wait_until(is_so, timeout_s=60, what=f"'{name}' to be {state}")


def test_a_look_at_which_a_dataflow_cannot_be_read_loses_no_time_line(memory_registry: MemoryRegistry) -> None:
    view = DataflowView(memory_registry, "flow")
    view.submit(config("flow"), [], now_ms=1)
    status = memory_registry.get(view.paths.status).data
    with Watcher(memory_registry) as watcher:
        looked(watcher, "flow", "starting")
        before = watcher.rows("flow")
        memory_registry.set(view.paths.status, b"{")
        looked(watcher, "flow", "unreadable")
        memory_registry.set(view.paths.status, status)
        looked(watcher, "flow", "starting")
        assert watcher.rows("flow")[: len(before)] == before
        memory_registry.delete(view.paths.root, recursive=True)
        watcher.look_soon()
        wait_until(lambda: "flow" not in watcher.snapshot.flows, timeout_s=60, what="it to go")
        assert watcher.rows("flow") == []
