"""Forgetting a dataflow, and what outlives it: what logs keep for it, given up on demand, and its unfinished rounds.

`finish_rounds` brings every round to its end, before positions and claims are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.retention_holds import HeldLog, release_all_holds, retention_holds
from scribengin.dataflow.round.checkpoints import (
    StateLeft,
    named_checkpoints,
    remove_checkpoints,
    remove_within_reach,
)
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import DataflowBusy, LogNotFound
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.operations.lifecycle import await_masters_gone, forget_containers


def held_for(view: DataflowView) -> tuple[HeldLog, ...]:
    """What logs keep for a dataflow that has ended. Of one that runs that is no news: it is its lag."""
    return retention_holds(view.registry, view.config_in_force().value) if view.status().state in FINAL_STATES else ()


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


def refuse_running(view: DataflowView) -> None:
    """Raise DataflowBusy for a dataflow that has not ended, and so cannot be deleted."""
    name, state = view.dataflow, view.status().state
    if state not in (*FINAL_STATES, "deleting"):
        raise DataflowBusy(f"dataflow '{name}' is {state}: stop it first (`scribengin stop {name}`, or kill)")


def delete_dataflow(view: DataflowView, *, force: bool) -> StateLeft | None:
    """Forget a dataflow that does not run: positions, claims, what logs held back for it, its state, and what its
    containers left on this machine. With `force` state that cannot be removed stays there, and is returned.

    Raises DataflowBusy, and one of OUT_OF_REACH."""
    refuse_running(view)
    name, left = view.dataflow, None
    if view.status().state != "deleting":
        await_masters_gone(view)
        if not force:
            finish_rounds(view)
        config = view.config_in_force().value
        release_all_holds(view.registry, config)
        if config.state is not None:
            named = named_checkpoints(view)
            if force:
                left = remove_within_reach(name, config.state, named)
            else:
                remove_checkpoints(name, config.state, named)
    view.delete()
    forget_containers(view.registry.hosts, name, scribengin_home())
    return left


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
