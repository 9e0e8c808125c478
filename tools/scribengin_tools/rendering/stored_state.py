"""What stands in the checkpoints of a dataflow's tasks, through a Spark of this process's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from scribengin.errors import ConfigInvalid
from scribengin.operations.state import TaskState
from scribengin.spark import runtime
from scribengin.spark.stateful.stored import StateRow, StateStore, StoredState

StoreOfTask = tuple[str, StateStore]
"""The task, and a store of it."""


def stored_state(tasks: Sequence[TaskState]) -> list[StoreOfTask]:
    """All stores of these tasks. Raises as `StoredState`."""
    with _spark() as stored:
        return [(one.task, store) for one in tasks for store in stored(one.directory).stores()]


def stored_rows(
    tasks: Sequence[TaskState], operator: str, store: str | None, key: Mapping[str, str], rows_max: int
) -> list[tuple[str, StateRow]]:
    """The first rows of that operator, of each task. Raises as `StoredState`, and ConfigInvalid where there is no such
    operator, or `store` does not say which of several stores is meant."""
    found = []
    with _spark() as stored:
        for one in tasks:
            state = stored(one.directory)
            chosen = chosen_store(state.stores(), operator, store)
            found += [(one.task, row) for row in state.rows(chosen, key, rows_max)]
    return found


def chosen_store(stores: Sequence[StateStore], operator: str, name: str | None) -> StateStore:
    """The store of that operator that is meant. Raises ConfigInvalid."""
    if not stores:
        raise ConfigInvalid("there is no state yet: no batch is done")
    of_operator = [one for one in stores if one.operator == operator]
    if not of_operator:
        there = ", ".join(dict.fromkeys(one.operator for one in stores))
        raise ConfigInvalid(f"there is no operator '{operator}': those with state are {there}")
    meant = [one for one in of_operator if name in (None, one.name)]
    if len(meant) != 1:
        which = ", ".join(one.name for one in of_operator)
        raise ConfigInvalid(f"{operator} has the stores {which}: name one of them with --store")
    return meant[0]


@contextmanager
def _spark() -> Iterator[Callable[[str], StoredState]]:
    logging.disable()  # PySpark logs every error with the JVM's whole stack; we say it in a line
    try:
        session = runtime.start("scribengin state", master="local[1]", brief=True)
        yield lambda directory: StoredState(directory, session)
    finally:
        runtime.stop()
        logging.disable(logging.NOTSET)
