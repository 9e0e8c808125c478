"""Bringing every round of a dataflow that does not run to its end: before its positions and claims are forgotten."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.dataflow.opened import Resources
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.round.owner import OwnedTask
from scribengin.errors import LogNotFound


def settle(view: DataflowView, clock: Clock = SYSTEM_CLOCK) -> None:
    """Take every task over and give it back: what was committed is visible afterwards, and nothing else is staged.

    A worker that was killed between its commit and the completion leaves such a round, and only the commit logs know of
    it; so does one that was killed before a deciding sink had decided. Sources need not be there any more: their commit
    logs move along, and nothing is read. What waits to be merged is merged: the next dataflow that writes there knows
    nothing of it. A log that was deleted meanwhile has nothing to complete. Raises what opening and recovering the
    sinks raises.
    """
    head = view.placement_head()
    lease = head.value.next_lease
    view.commit_placement(Versioned(head.value.model_copy(update={"next_lease": lease + 1}), head.version), [])
    config = view.config_in_force().value
    environment = Environment(registry=view.registry, dataflow=view.dataflow, clock=clock)
    with Resources(config.model_copy(update={"sources": {}}), environment) as resources:
        for task in view.tasks().values():
            owned = OwnedTask(view.registry, view.dataflow, task, owner="settling", lease=lease, sinks=resources.sinks)
            try:
                owned.take_over(gone=(LogNotFound,))
                owned.release()
            finally:
                owned.disown()
        for sink in resources.sinks.values():
            sink.maintain(view.registry, idle=True)
