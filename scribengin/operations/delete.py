"""Forgetting a dataflow, and what outlives it: what logs keep for it, given up on demand, and its unfinished rounds.

`finish_rounds` brings every round to its end, before positions and claims are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.deletion import delete_nodes, is_marked, mark_deleting, take_back
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, SeenDataflow, Versioned
from scribengin.dataflow.retention_holds import HeldLog, release_all_holds, retention_holds
from scribengin.dataflow.round.checkpoints import (
    StateLeft,
    named_checkpoints,
    remove_checkpoints,
    remove_within_reach,
)
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import DataflowBusy, DataflowNotFound, LogNotFound, ScribenginError, StaleOwner
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.operations.lifecycle import await_masters_gone, containers_here, forget_containers
from scribengin_registry.contract import Check
from scribengin_registry.errors import NodeMissing, VersionConflict


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


def refuse_running(view: DataflowView) -> SeenDataflow:
    """What the dataflow is just now. Raises DataflowBusy for one that has not ended, and so cannot be deleted."""
    seen = view.seen()
    name, state = view.dataflow, seen.status.value.state
    if state not in (*FINAL_STATES, "deleting"):
        raise DataflowBusy(f"dataflow '{name}' is {state}: stop it first (`scribengin stop {name}`, or kill)")
    return seen


def delete_dataflow(view: DataflowView, *, force: bool) -> StateLeft | None:
    """Forget a dataflow that does not run: positions, claims, what logs held back for it, its state, and what its
    containers left on this machine. With `force` state that cannot be removed stays there, and is returned.

    Nothing goes before it is `deleting`, and it only becomes that as it was when this began: what others have started
    or submitted meanwhile stays. Cut short anywhere behind that, it can be called again, and does all of it.

    Raises DataflowBusy, and one of OUT_OF_REACH."""
    seen, home = refuse_running(view), scribengin_home()
    mark = _marked(view, seen, force=force)
    left = _forget_elsewhere(view, seen, mark, force=force)
    containers = containers_here(view.registry.hosts, view.dataflow, home)  # while nobody can submit its name again
    delete_nodes(view, mark)
    _refuse_taken_back(view, seen)
    forget_containers(containers, home)
    return left


def _marked(view: DataflowView, seen: SeenDataflow, *, force: bool) -> str:
    try:
        if not seen.deleting:
            await_masters_gone(view)
            if not force:
                seen = finish_rounds(view, seen=seen)
        return mark_deleting(view, seen)
    except (VersionConflict, NodeMissing, StaleOwner):
        _refuse_changed(view, seen)
        raise


def _refuse_changed(view: DataflowView, seen: SeenDataflow) -> None:
    """Raise DataflowBusy if the dataflow is not as it was seen, DataflowNotFound if it is gone."""
    name, now = view.dataflow, view.seen()
    if now.status.value.submitted_ms != seen.status.value.submitted_ms:
        raise DataflowBusy(f"dataflow '{name}' was deleted by somebody else meanwhile, and submitted again: it stays")
    if now.deleting:
        raise DataflowBusy(f"somebody else deletes dataflow '{name}' just now: `scribengin delete {name}` ends that")
    if now != seen:
        raise DataflowBusy(
            f"dataflow '{name}' was changed by somebody else meanwhile, and is {now.status.value.state}: nothing was "
            f"deleted; look at it (`scribengin status {name}`), and delete it again if you still want that"
        )


def _refuse_taken_back(view: DataflowView, seen: SeenDataflow) -> None:
    """Raise DataflowBusy if the dataflow is there still: who has begun the deletion could not reach its state."""
    with suppress(DataflowNotFound):
        status = view.status()
        if status.submitted_ms == seen.status.value.submitted_ms:
            name = view.dataflow
            raise DataflowBusy(f"somebody else has taken the deletion of '{name}' back: it is {status.state}")


def _forget_elsewhere(view: DataflowView, seen: SeenDataflow, mark: str, *, force: bool) -> StateLeft | None:
    """What stands outside of its own nodes goes first, for those say what that is."""
    try:
        config = view.config_in_force().value
    except DataflowNotFound:  # an older version has come that far: it had done this before
        return None
    try:
        left = _remove_state(view, config, mark, force=force)
        if is_marked(view, mark):  # else somebody else has ended this, and the name may be another one's
            release_all_holds(view.registry, config)
    except ScribenginError:
        if not seen.deleting:
            take_back(view, mark, seen.status.value)
        raise
    return left


def _remove_state(view: DataflowView, config: DataflowConfig, mark: str, *, force: bool) -> StateLeft | None:
    if config.state is None:
        return None
    named = named_checkpoints(view)
    if not is_marked(view, mark):
        return None
    if force:
        return remove_within_reach(view.dataflow, config.state, named)
    remove_checkpoints(view.dataflow, config.state, named)
    return None


def finish_rounds(view: DataflowView, clock: Clock = SYSTEM_CLOCK, seen: SeenDataflow | None = None) -> SeenDataflow:
    """Take every task over and give it back: what was committed is visible afterwards, and nothing else is staged.

    A worker that was killed between its commit and the completion leaves such a round, and only the commit logs know of
    it; so does one that was killed before a transaction coordinator had decided. Sources need not be there
    any more: their commit logs move along, and nothing is read. What waits to be merged is merged: the next dataflow
    that writes there knows nothing of it. A log that was deleted meanwhile has nothing to complete.

    Begins only if the dataflow is as it was `seen`, and returns what it is then. Raises what opening and recovering the
    sinks raises; VersionConflict, StaleOwner (somebody has changed it, or has started it).
    """
    seen = seen or view.seen()
    head = seen.head or view.placement_head()
    generation = head.value.next_generation
    raised = head.value.model_copy(update={"next_generation": generation + 1})
    taken = view.commit_placement(Versioned(raised, head.version), [Check(view.paths.status, seen.status.version)])
    config = view.config_in_force().value
    environment = Environment(registry=view.registry, dataflow=view.dataflow, nodes=STREAM_NODES, clock=clock)
    with OpenedDataflow(config.model_copy(update={"sources": {}}), environment) as resources:
        for task in view.tasks().values():
            owned = TaskOwner(
                view.registry,
                view.dataflow,
                task,
                owner="settling",
                generation=generation,
                sinks=resources.sinks,
                member=view.paths.root,  # who has deleted it meanwhile finds no nodes made anew
            )
            try:
                owned.take_over(gone=(LogNotFound,))
                owned.release()
            finally:
                owned.disown()
        for sink in resources.sinks.values():
            sink.maintain(view.registry, idle=True)
    return SeenDataflow(seen.status, taken)
