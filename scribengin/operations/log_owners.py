"""Which dataflow writes a log. Its lock decides who may; this says so before anybody waits for it."""

from __future__ import annotations

from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import owner_of_resource
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowNotFound, LogBusy
from scribengin_registry.contract import Registry


def refuse_log_of_dataflow(registry: Registry, namespace: str, log: str) -> None:
    """Raise LogBusy for a log of a sink whose dataflow has not ended: it would be fenced, or not let go."""
    sink, _, stream = log.strip("/").rpartition("/")
    node = registry.find(paths.sink_resource(f"log:{namespace}/{sink}")) if sink and stream.isdecimal() else None
    owner = owner_of_resource(node) if node is not None else ""
    if not owner:
        return
    try:
        state = DataflowView(registry, owner).status().state
    except DataflowNotFound:
        return
    if state not in FINAL_STATES:
        raise LogBusy(
            f"log '{log}' is written by dataflow '{owner}', which is {state}: write to another log, or "
            f"`scribengin stop {owner}` first"
        )
