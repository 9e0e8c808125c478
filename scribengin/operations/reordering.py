"""Whether another number of tasks would let a reader see records out of order."""

from __future__ import annotations

from contextlib import suppress

from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowBusy, DataflowNotFound, DescriptorUnreadable
from scribengin.operations.chain.graph import unawaited


def refuse_reordering(view: DataflowView, tasks: int) -> None:
    """Raise DataflowBusy when a dataflow of this registry reads what this one writes, or what comes of that, and nobody
    would wait until it has read the earlier records. Of a config that cannot be read nothing is known."""
    flows = {}
    for name in {*dataflow_names(view.registry), view.dataflow}:
        with suppress(DataflowNotFound, DescriptorUnreadable, ConfigInvalid):
            flows[name] = DataflowView(view.registry, name).config_in_force().value
    if view.dataflow not in flows or flows[view.dataflow].tasks == tasks:
        return
    edge = unawaited(flows, view.dataflow)
    if edge is not None:
        raise DataflowBusy(
            f"dataflow '{edge.reader}' reads {edge.place}, which '{edge.writer}' writes, and nobody waits for it: "
            f"it might see records of a stream out of order. Let both end, in their order, then "
            f"`scribengin config set {view.dataflow} tasks={tasks}` and `start` them; or go ahead with --force"
        )
