"""The state of a dataflow, looked at: where each task has its checkpoint just now."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.checkpoints import checkpoint_root, checkpoints_of, named_checkpoints
from scribengin.errors import ConfigInvalid


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task's query has its checkpoint."""

    task: str
    directory: str


def state_of(view: DataflowView, task: str | None = None) -> list[TaskState]:
    """Of the tasks that have state by now, or of that one. Raises ConfigInvalid for a dataflow without state, a task
    that has none, and checkpoints on other machines; CheckpointMismatch for a damaged one; DataflowNotFound."""
    config = view.config_in_force().value
    if config.state is None:
        raise ConfigInvalid(f"'{view.dataflow}' keeps no state: its descriptor has no section `state`")
    named = dict(named_checkpoints(view))
    if task is not None and task not in named:
        with_state = ", ".join(sorted(named)) or "none of its tasks has by now"
        raise ConfigInvalid(f"'{view.dataflow}' has no task '{task}' with state: {with_state}")
    found = []
    for one in sorted(named) if task is None else [task]:
        checkpoint = checkpoints_of(view.dataflow, one, config.state).find(named[one])
        if checkpoint is None:
            raise ConfigInvalid(
                f"the state of {one} is not below {checkpoint_root(config.state)} of this machine: ask where the "
                f"workers of '{view.dataflow}' run, and with their SCRIBENGIN_HOME"
            )
        found.append(TaskState(one, checkpoint.query_directory))
    return found
