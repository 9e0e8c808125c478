"""Which files of a staging directory are still wanted."""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import dataflow_names
from scribengin_registry.contract import Registry


def named_by_dataflows(registry: Registry, urls: Sequence[str]) -> set[str]:
    """Those of `urls` that stand in the configuration of a dataflow of this registry."""
    nodes = [registry.find(paths.DataflowPaths(name).config) for name in dataflow_names(registry)]
    texts = [node.data.decode(errors="replace") for node in nodes if node is not None]
    return {url for url in urls if any(url in text for text in texts)}
