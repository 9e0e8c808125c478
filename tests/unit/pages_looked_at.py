"""How often the pages of streams that are gone are read: each is long."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin_registry.contract import Node, Registry


def pages_looked_at(registry: Registry, nodes: DataflowPaths, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    get, looked = type(registry).get, list[str]()

    def counted(one: Registry, path: str, *watch: Any) -> Node:
        if path.startswith(nodes.all_gone_streams):
            looked.append(path)
        return get(one, path, *watch)

    monkeypatch.setattr(type(registry), "get", counted)
    return looked
