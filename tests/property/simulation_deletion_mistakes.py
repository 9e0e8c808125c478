"""Mistakes of protocol about deletions, put in one at a time: what simulations find that delete in the end.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from scribengin.dataflow.registry import deletion
from scribengin.dataflow.registry.numbers import keep_numbers
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.rewind import Rewind
from scribengin.testing.simulation.people import deleting
from scribengin.testing.simulation.plan import Plan, drawn, passing
from scribengin_registry.errors import NodeMissing, NodeNotEmpty
from tests.property.simulation_mistakes import Mistake


def delete_without_the_mark(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether it is still the dataflow whose deletion has begun: another one may have its name by now."""

    def delete(view: DataflowView, _mark: str, found: Callable[[], list[str]], *, at_once: bool = False) -> None:
        for path in found():
            with suppress(NodeMissing, NodeNotEmpty):
                view.registry.delete(path)

    patch.setattr(deletion, "_delete", delete)


def forget_the_root_first(patch: pytest.MonkeyPatch) -> None:
    """Who is ended in between leaves positions and claims of a dataflow that nobody knows any more."""

    def delete_nodes(view: DataflowView, _mark: str) -> None:
        keep_numbers(view.registry, view.dataflow, view.numbers_reached())
        for node in deletion._there(view.registry, view.paths.root):
            with suppress(NodeMissing, NodeNotEmpty):
                view.registry.delete(node)
        for path in [*view.sources(), *view.claims()]:
            for node in deletion._there(view.registry, path):
                with suppress(NodeMissing):
                    view.registry.delete(node)

    patch.setattr(deleting, "delete_nodes", delete_nodes)


def leave_the_claims(patch: pytest.MonkeyPatch) -> None:
    """What a dataflow writes to stays its own."""
    patch.setattr(DataflowView, "claims", lambda _self: iter(()))


def leave_the_holds(patch: pytest.MonkeyPatch) -> None:
    """Logs keep records for a dataflow that is gone."""
    patch.setattr(deleting, "release_all_holds", lambda *_: None)


def forget_which_numbers_were_used(patch: pytest.MonkeyPatch) -> None:
    """The next dataflow of that name has workers that are called as those that may live still."""
    patch.setattr(deletion, "keep_numbers", lambda *_: None)


def keep_the_names_alone(patch: pytest.MonkeyPatch) -> None:
    """The next dataflow begins with generations, and so with epochs, that owners of this one have had."""

    def keep(registry: Any, dataflow: str, reached: Any) -> None:
        real(registry, dataflow, reached.model_copy(update={"generation": 1}))

    real = keep_numbers
    patch.setattr(deletion, "keep_numbers", keep)


def rewind_what_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """A rewind makes nodes of streams without looking whether their dataflow goes."""

    def make_room(self: Any, path: str) -> None:
        if self._view.registry.find(path) is None:
            self._view.registry.create(path, parents=True)

    patch.setattr(Rewind, "_make_room", make_room)
    patch.setattr(Rewind, "_status_unless_deleted", lambda _self: None)


def deleted(seed: int) -> Plan:
    """The plan of a seed in memory, which ends with a deletion."""
    return replace(drawn(seed, "memory", rewound=False, lagging=False), deleted=True)


def deleted_on_logs(seed: int) -> Plan:
    """The same on logs."""
    return replace(drawn(seed, "logs", rewound=False, lagging=False), deleted=True)


def deleted_with_those_that_are_gone(seed: int) -> Plan:
    """The same with streams that come and go: a rewind makes the nodes of those that have none."""
    return replace(passing(seed), deleted=True)


DELETION_MISTAKES: dict[Mistake, tuple[int, Callable[[int], Plan]]] = {
    delete_without_the_mark: (10, deleted),
    forget_the_root_first: (6, deleted),
    leave_the_claims: (0, deleted),
    leave_the_holds: (0, deleted_on_logs),
    forget_which_numbers_were_used: (1, deleted),
    keep_the_names_alone: (7, deleted),
    rewind_what_is_deleted: (24, deleted_with_those_that_are_gone),
}
"""Each with the seed that caught it last, and its plans."""
