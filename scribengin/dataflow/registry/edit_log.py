"""The history of a dataflow's config: one node for each version that a command wrote, or a master saw.

The node stands beside the `config` node and not in it, so a ZooKeeper client that writes the config alone is as good
an editor as any command; it only says nothing of who it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, MutableMapping
from typing import TypeVar

from scribengin.base.failpoints import failpoint
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.config_diff import differences
from scribengin.dataflow.registry.config_node import as_json, config_to_bytes, refuse_too_large
from scribengin.dataflow.registry.descriptors import ConfigEdit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, DataflowBusy, DescriptorUnreadable, EditConflict
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Create, Delete, Operation, Set
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict

_T = TypeVar("_T")
EDITS_KEPT_MAX = 100
TRIES_MAX = 10
"""So often in a row others may edit the config before a command gives up: they are people, or their scripts."""


def write_edit(view: DataflowView, config: DataflowConfig, version: int, *, author: str, at_ms: int) -> int:
    """Replace the config that was read at `version`, and say who did; returns the new version. A `config` node that is
    gone is made again.

    Raises EditConflict, which says what somebody else did meanwhile, and ConfigInvalid (it is too large); then nothing
    was written.
    """
    there = view.counted_config()
    if there.version != version:
        raise conflict(view, version)
    number = there.numbers.base if there.node is None else version + 1
    refuse_too_large(config)
    edit = ConfigEdit(version=number, at_ms=at_ms, author=author, config=as_json(config))
    if view.registry.find(view.paths.edits) is None:  # of a dataflow that was submitted by an older version
        with contextlib.suppress(NodeExists), failpoint("edits.create"):
            view.registry.create(view.paths.edits)
    path = view.paths.edit(edit.version)
    data, before = config_to_bytes(config), view.registry.find(path)
    changes: list[Operation] = [
        Create(view.paths.config, data) if there.node is None else Set(view.paths.config, data, there.node.version),
        Create(path, edit.to_bytes())
        if before is None  # else it is of a node that was deleted before a master had accepted anything of it
        else Set(path, edit.to_bytes(), before.version),
    ]
    try:
        with failpoint("edits.write"):
            view.registry.commit(changes)
    except (VersionConflict, NodeExists):
        raise conflict(view, version) from None
    except OutcomeUnknown:
        view.registry.sync()
        node = view.registry.find(path)
        if node is None or ConfigEdit.from_bytes(node.data, path=path).at_ms != at_ms:
            raise
    return edit.version


def until_written(view: DataflowView, attempt: Callable[[], _T]) -> _T:
    """What `attempt` returns, which reads the config and writes it: made again while others edit it (EditConflict,
    LookAgain). Raises DataflowBusy if they keep to it."""
    return win_race(attempt, races=(EditConflict,), tries_max=TRIES_MAX, exhausted=lambda: keeps_changing(view))


def keeps_changing(view: DataflowView) -> DataflowBusy:
    """What to raise when others edit the config as fast."""
    return DataflowBusy(f"the config of dataflow '{view.dataflow}' keeps changing under this command: try again")


def conflict(view: DataflowView, version: int) -> EditConflict:
    """The error of whoever has edited version `version` of the config when it was no longer the last one."""
    return EditConflict(
        f"the config of dataflow '{view.dataflow}' was edited since version {version} was read: "
        f"{edited_since(view, version)}. Nothing of yours was written: look at the config as it is now, and edit that"
    )


def edited_since(view: DataflowView, version: int, upto: int | None = None) -> str:
    """What was edited after that version (and not after `upto`), for people."""
    from_then = [edit for edit in edits(view) if version < edit.version and (upto is None or edit.version <= upto)]
    told = "; ".join(described(edit, edit_before(view, edit.version)) for edit in from_then)
    return told or "its author is unknown, and no master has looked at the edit yet"


def described(edit: ConfigEdit, before: ConfigEdit | None = None) -> str:
    """An edit in a line: who, when it was, what."""
    what = ", ".join(changes_of(edit, before)) or "nothing that can be told"
    return f"version {edit.version} by {edit.author or 'unknown'}: {what}"


def changes_of(edit: ConfigEdit, before: ConfigEdit | None) -> tuple[str, ...]:
    """What an edit changes; it is told from the version before where no master has told it yet."""
    if not edit.changes and before is not None and before.config is not None and edit.config is not None:
        return tuple(differences(before.config, edit.config))
    return edit.changes


def edits(view: DataflowView, unreadable: MutableMapping[str, str] | None = None) -> list[ConfigEdit]:
    """Every version that is kept and can be read, oldest first. Why another one cannot be read goes to `unreadable`, by
    the name of its node. Raises DataflowNotFound."""
    view.status()  # so that a wrong name is called one
    try:
        names = sorted(view.registry.children(view.paths.edits))
    except NodeMissing:
        return []
    found: list[ConfigEdit] = []
    for name in names:
        path = f"{view.paths.edits}/{name}"
        node = view.registry.find(path)
        if node is None:
            continue
        try:
            found.append(ConfigEdit.from_bytes(node.data, path=path))
        except DescriptorUnreadable as error:
            if unreadable is not None:
                unreadable[name] = str(error)
    return found


def edit_before(view: DataflowView, version: int) -> ConfigEdit | None:
    """The version before `version` that is kept."""
    earlier = [edit for edit in edits(view) if edit.version < version]
    return earlier[-1] if earlier else None


def config_of_version(view: DataflowView, version: int) -> DataflowConfig:
    """The config as it was at that version. Raises ConfigInvalid: it is not kept, or was none."""
    found = view.edit(version)
    if found is None:
        known = ", ".join(str(edit.version) for edit in edits(view)) or "none"
        raise ConfigInvalid(f"version {version} of the config of '{view.dataflow}' is not kept (there are: {known})")
    if found.config is None:
        raise ConfigInvalid(f"version {version} of the config of '{view.dataflow}' was no config: {found.error}")
    return DataflowConfig.parse(found.config, source=f"version {version}")


def outcome_operations(view: DataflowView, seen: ConfigEdit) -> list[Operation]:
    """What writes down how a master judged a version, and forgets the oldest ones. For `commit_placement`.

    Who wrote it, and when, is kept if the writer said so; `seen.at_ms` is when the master saw it.
    """
    path = view.paths.edit(seen.version)
    node = view.registry.find(path)
    if node is not None:
        told = seen
        with contextlib.suppress(DescriptorUnreadable):  # somebody has damaged it: it is written anew
            written = ConfigEdit.from_bytes(node.data, path=path)
            told = seen.model_copy(update={"author": written.author, "at_ms": written.at_ms})
        return [Set(path, told.to_bytes(), node.version), *_too_old(view, seen.version)]
    root = view.registry.find(view.paths.edits)
    made: list[Operation] = [Create(view.paths.edits)] if root is None else []
    return [*made, Create(path, seen.to_bytes()), *_too_old(view, seen.version)]


def _too_old(view: DataflowView, version: int) -> list[Operation]:
    try:
        names = sorted(view.registry.children(view.paths.edits))
    except NodeMissing:
        return []
    kept = view.paths.edit(version).rpartition("/")[2]
    others = [name for name in names if name != kept]
    return [Delete(f"{view.paths.edits}/{name}") for name in others[: max(0, len(others) + 1 - EDITS_KEPT_MAX)]]
