"""What outlives a dataflow: what logs keep for it, shown and given up on demand, and its unfinished rounds.

`finish_rounds` brings every round to its end, before positions and claims are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.text.counting import many
from scribengin.connectors import Environment
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.retention_holds import HeldLog, release_all_holds, retention_holds
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import DataflowBusy, LogNotFound

_LOGS_SHOWN = 3


def held_for(view: DataflowView) -> tuple[HeldLog, ...]:
    """What logs keep for a dataflow that has ended. Of one that runs that is no news: it is its lag."""
    return retention_holds(view.registry, view.config_in_force().value) if view.status().state in FINAL_STATES else ()


def held_text(held: Sequence[HeldLog], name: str) -> str:
    """The same in a line; nothing if there is nothing."""
    if not held:
        return ""
    names = ", ".join(one.log for one in held[:_LOGS_SHOWN])
    more = f" and {len(held) - _LOGS_SHOWN} more" if len(held) > _LOGS_SHOWN else ""
    kept = many(sum(one.records for one in held), "record")
    return f"{kept} of {names}{more}, until it has read them; `scribengin release-holds {name}` gives them up"


def release_holds(views: Sequence[DataflowView]) -> list[HeldLog]:
    """Have logs keep nothing more for these dataflows; returns what they had kept. Raises DataflowBusy, before anything
    is done, if one of them has not ended."""
    for view in views:
        state = view.status().state
        if state not in FINAL_STATES:
            raise DataflowBusy(
                f"dataflow '{view.dataflow}' is {state}, and is to read what is kept for it: `scribengin stop "
                f"{view.dataflow}` first"
            )
    held = [one for view in views for one in held_for(view)]
    for view in views:
        release_all_holds(view.registry, view.config_in_force().value)
    return held


def finish_rounds(view: DataflowView, clock: Clock = SYSTEM_CLOCK) -> None:
    """Take every task over and give it back: what was committed is visible afterwards, and nothing else is staged.

    A worker that was killed between its commit and the completion leaves such a round, and only the commit logs know of
    it; so does one that was killed before a transaction coordinator had decided. Sources need not be there
    any more: their commit logs move along, and nothing is read. What waits to be merged is merged: the next dataflow
    that writes there knows nothing of it. A log that was deleted meanwhile has nothing to complete. Raises what opening
    and recovering the sinks raises.
    """
    head = view.placement_head()
    generation = head.value.next_generation
    view.commit_placement(
        Versioned(head.value.model_copy(update={"next_generation": generation + 1}), head.version), []
    )
    config = view.config_in_force().value
    environment = Environment(registry=view.registry, dataflow=view.dataflow, nodes=STREAM_NODES, clock=clock)
    with OpenedDataflow(config.model_copy(update={"sources": {}}), environment) as resources:
        for task in view.tasks().values():
            owned = TaskOwner(
                view.registry, view.dataflow, task, owner="settling", generation=generation, sinks=resources.sinks
            )
            try:
                owned.take_over(gone=(LogNotFound,))
                owned.release()
            finally:
                owned.disown()
        for sink in resources.sinks.values():
            sink.maintain(view.registry, idle=True)
