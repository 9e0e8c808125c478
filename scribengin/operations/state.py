"""The state of a dataflow, looked at: where each task has its checkpoint just now."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.dataflow.config import StateConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.checkpoints import checkpoint_root, checkpoints_of, named_checkpoints
from scribengin.errors import ConfigInvalid
from scribengin.spark.stateful.query_log import QueryDirectory


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task's query has its checkpoint."""

    task: str
    directory: QueryDirectory


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
        here = _found(view.dataflow, config.state, one, named[one])
        if here is None:
            raise ConfigInvalid(
                f"the state of {one} is not below {_place(config.state)}: ask where the workers of '{view.dataflow}' "
                "run, and with their SCRIBENGIN_HOME and HADOOP_CONF_DIR"
            )
        found.append(here)
    return found


def state_here(view: DataflowView) -> list[TaskState]:
    """Of the tasks whose checkpoint is on this machine. Raises CheckpointMismatch for a damaged one;
    DataflowNotFound."""
    config = view.config_in_force().value
    if config.state is None:
        return []
    named = sorted(named_checkpoints(view))
    found = [_found(view.dataflow, config.state, task, checkpoint) for task, checkpoint in named]
    return [one for one in found if one is not None]


def _place(config: StateConfig) -> str:
    root = checkpoint_root(config)
    return root if "://" in root else f"{root} of this machine"


def _found(dataflow: str, config: StateConfig, task: str, named: str) -> TaskState | None:
    checkpoint = checkpoints_of(dataflow, task, config).find(named)
    return None if checkpoint is None else TaskState(task, checkpoint.query)
