"""What stands in the checkpoints of a dataflow's tasks, through a Spark of this process's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scribengin.errors import ConfigInvalid
from scribengin.operations.state import TaskState
from scribengin.spark import runtime
from scribengin.spark.stateful.stored import StateRow, StateStore, StoredState

_NAME = "scribengin state"
StoreOfTask = tuple[str, StateStore]
"""The task, and a store of it."""


def stored_state(tasks: Sequence[TaskState]) -> list[StoreOfTask]:
    """All stores of these tasks. Raises as `StoredState`."""
    with runtime.brief_session(_NAME) as session:
        return [(one.task, store) for one in tasks for store in StoredState(one.directory, session).stores()]


def stored_rows(
    tasks: Sequence[TaskState], operator: str, store: str | None, key: Mapping[str, str], rows_max: int
) -> list[tuple[str, StateRow]]:
    """The first rows of that operator, of each task that has done a batch. Raises as `StoredState`, and ConfigInvalid
    where none has, where there is no such operator, or `store` does not say which of several stores is meant."""
    found: list[tuple[str, StateRow]] = []
    with runtime.brief_session(_NAME) as session:
        states = [(one.task, StoredState(one.directory, session)) for one in tasks]
        kept = [(task, state, stores) for task, state in states if (stores := state.stores())]
        if not kept:
            raise ConfigInvalid("there is no state yet: no batch is done")
        for task, state, stores in kept:
            found += [(task, row) for row in state.rows(chosen_store(stores, operator, store), key, rows_max)]
    return found


def chosen_store(stores: Sequence[StateStore], operator: str, name: str | None) -> StateStore:
    """The store of that operator that is meant. Raises ConfigInvalid."""
    of_operator = [one for one in stores if one.operator == operator]
    if not of_operator:
        there = ", ".join(dict.fromkeys(one.operator for one in stores))
        raise ConfigInvalid(f"there is no operator '{operator}': those with state are {there}")
    meant = [one for one in of_operator if name in (None, one.name)]
    if len(meant) != 1:
        which = ", ".join(one.name for one in of_operator)
        raise ConfigInvalid(f"{operator} has the stores {which}: name one of them with --store")
    return meant[0]
