"""How a dataflow's nodes go: so that nobody starts what is half gone, and nobody else's nodes go with them.

1. A deletion begins with one transaction. It says `deleting`, raises the placement head, which replaces a master, and
   makes the deletion's mark: a node whose name no other deletion has. It is refused if the dataflow has changed.
2. Every further transaction holds the mark. Where two delete the same, and one is done, the other deletes nothing of a
   dataflow that was submitted then.
3. Its workers' nodes go first. One that lives still can change nothing then (rule 5 of commit_logs.py): else it would
   take positions that are gone for a beginning, and make their nodes anew.
4. Its claims go last, with the mark and all that it is known by, in one transaction: until then nobody else has its
   sinks. Cut short anywhere before, a deletion can be called again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from scribengin.base.failpoints import failpoint
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.dataflow.registry.numbers import keep_numbers
from scribengin.dataflow.registry.view import OPERATIONS_PER_TRANSACTION_MAX, DataflowView, SeenDataflow
from scribengin_registry.compare_and_set import LookAgain, win_race
from scribengin_registry.contract import ANY_VERSION, Check, Create, Delete, Operation, Registry, Set
from scribengin_registry.errors import NodeMissing, NodeNotEmpty, VersionConflict

_TRIES = 10
_CROWDED = (NodeMissing, NodeNotEmpty)
"""A worker or a master that was being started stood, and leaves again."""


class _Over(Exception):
    """Somebody else has ended this deletion, or taken it back."""


def mark_deleting(view: DataflowView, seen: SeenDataflow) -> str:
    """Have the dataflow be `deleting`, if nothing of it has changed since it was `seen`; returns the deletion's mark:
    that of whoever has begun it, if somebody has.

    Raises VersionConflict (it has changed), NodeMissing, DataflowNotFound.
    """

    def attempt() -> str:
        numbers = view.registry.find(paths.NUMBERS)
        now = view.seen()
        if now.status != seen.status:
            raise VersionConflict(f"{view.paths.status} was changed", path=view.paths.status)
        if now.deleting and (mark := _mark(view)) is not None:
            return mark
        # Versions begin at 0 again where it is submitted again. But each deletion keeps numbers, and so is seen there.
        held = [] if numbers is None else [Check(paths.NUMBERS, numbers.version)]
        try:
            return _marked(view, seen, held)
        except VersionConflict as error:
            if error.path == paths.NUMBERS:  # another dataflow may have been deleted
                raise LookAgain from None
            raise

    return win_race(attempt, races=())


def _marked(view: DataflowView, seen: SeenDataflow, held: Sequence[Operation]) -> str:
    nodes = view.paths
    mark = nodes.deletion(uuid.uuid4().hex)
    deleting = seen.status.value.model_copy(update={"state": "deleting"})
    operations: list[Operation] = [Set(nodes.status, deleting.to_bytes(), seen.status.version), Create(mark)]
    if seen.head is not None:
        raised = seen.head.value.model_copy(update={"epoch": seen.head.value.epoch + 1})
        operations.append(Set(nodes.placement, raised.to_bytes(), seen.head.version))
    with failpoint("deletion.begin"):
        view.registry.commit([*held, *operations])
    return mark


def is_marked(view: DataflowView, mark: str) -> bool:
    """Whether that deletion is still under way."""
    return view.registry.find(mark) is not None


def take_back(view: DataflowView, mark: str, status: DataflowStatus) -> None:
    """Have the dataflow be again what it was before it was marked, unless its nodes have begun to go."""
    nodes = view.paths
    with suppress(VersionConflict, NodeMissing), failpoint("deletion.back"):
        view.registry.commit([Check(nodes.workers, ANY_VERSION), Delete(mark), Set(nodes.status, status.to_bytes())])


def delete_nodes(view: DataflowView, mark: str | None = None) -> None:
    """Forget the dataflow: its nodes, positions, claims; what its sinks hold stays. Without a `mark` it is marked now,
    whatever it does. Raises DataflowNotFound."""
    marked = mark or win_race(lambda: mark_deleting(view, view.seen()), races=(VersionConflict, NodeMissing))
    registry, nodes = view.registry, view.paths
    with suppress(_Over):
        _delete(view, marked, partial(_there, registry, nodes.workers))
        keep_numbers(registry, view.dataflow, view.numbers_reached())
        for path in view.sources():
            _delete(view, marked, partial(_there, registry, path))
        for path in view.claims():
            _delete(view, marked, partial(_below, registry, path))
        for path in (nodes.placement, nodes.task_descriptors, nodes.master, nodes.edits, nodes.containers):
            _delete(view, marked, partial(_there, registry, path))
        _delete(view, marked, partial(_rest, view), at_once=True)


def _mark(view: DataflowView) -> str | None:
    below = (f"{view.paths.root}/{child}" for child in _children(view.registry, view.paths.root))
    return next((path for path in below if view.paths.is_deletion(path)), None)


def _delete(view: DataflowView, mark: str, found: Callable[[], list[str]], *, at_once: bool = False) -> None:
    """Delete what is found, though others come there meanwhile, and leave again. Raises _Over."""

    def attempt() -> None:
        if not is_marked(view, mark):
            raise _Over
        gone = found()
        size = max(len(gone), 1) if at_once else OPERATIONS_PER_TRANSACTION_MAX
        for start in range(0, len(gone), size):
            with failpoint("deletion.delete"):
                view.registry.commit([Check(mark, ANY_VERSION), *map(Delete, gone[start : start + size])])

    win_race(attempt, races=_CROWDED, tries_max=_TRIES)


def _there(registry: Registry, path: str) -> list[str]:
    return [] if registry.find(path) is None else [*_below(registry, path), path]


def _below(registry: Registry, path: str) -> list[str]:
    """What stands below a node, the deepest first."""
    children = [f"{path}/{child}" for child in _children(registry, path)]
    return [node for child in children for node in (*_below(registry, child), child)]


def _rest(view: DataflowView) -> list[str]:
    return [node for path in (*view.claims(), view.paths.root) for node in _there(view.registry, path)]


def _children(registry: Registry, path: str) -> list[str]:
    try:
        return registry.children(path)
    except NodeMissing:
        return []
