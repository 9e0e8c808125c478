"""What tests of deletions share: a dataflow, its nodes, and the steps of whoever deletes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import DataflowState
from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.memory.registry import MemoryRegistry

RESOURCE = "log:/logs/late"
NODES = paths.DataflowPaths("delays")
STREAM = NODES.source_stream("flights", "flights/0")
POSITION = paths.commit_log(STREAM)
CONFIG = load_config(
    {
        "name": "delays",
        "sources": {"flights": {"kind": "log", "logs": "flights/*"}},
        "sinks": {"late": {"kind": "log", "log": "late"}},
        "sql": "SELECT payload FROM flights",
    }
)


def put(registry: MemoryRegistry, state: DataflowState = "stopped", now_ms: int = 1) -> DataflowView:
    view = DataflowView(registry, "delays")
    view.submit(CONFIG, [RESOURCE], now_ms)
    view.set_status(view.status().model_copy(update={"state": state}))
    return view


class Steps:
    """Calls `meanwhile` before the `at`th change that a session makes, and counts all of them."""

    def __init__(self, session: MemoryRegistry, at: int, meanwhile: Callable[[], None]) -> None:
        self.made = 0
        self._session = session
        self._at = at
        self._meanwhile = meanwhile

    def count(self, patch: pytest.MonkeyPatch) -> None:
        """The session's changes are counted from now on, until that ends."""
        for name in ("delete", "commit", "set", "create"):
            patch.setattr(MemoryRegistry, name, self._counted(getattr(MemoryRegistry, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counting(session: MemoryRegistry, *args: Any, **options: Any) -> Any:
            if session is self._session:
                self.made += 1
                if self.made - 1 == self._at:
                    self._meanwhile()
            return change(session, *args, **options)

        return counting


def tree(registry: MemoryRegistry, path: str = paths.ROOT) -> list[str]:
    return [
        path,
        *(node for child in registry.children(path) for node in tree(registry, f"{path.rstrip('/')}/{child}")),
    ]
