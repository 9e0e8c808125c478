"""Restarting a dataflow with the code and the config as they are now: what it will be, the stop, and the edit."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.config_diff import differences, merged
from scribengin.dataflow.edits import in_order_of, plan_edit
from scribengin.dataflow.registry.config_node import as_json
from scribengin.dataflow.registry.descriptors import FINAL_STATES, Origin
from scribengin.dataflow.registry.edit_log import (
    TRIES_MAX,
    edited_since,
    keeps_changing,
    write_edit,
)
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.errors import ConfigInvalid, EditConflict, PackageInvalid
from scribengin.operations.chain.config import is_chain, load_chain, with_topics
from scribengin.operations.chain.registry import get_chain, membership
from scribengin.operations.editing import EditResult, refuse_edit, refuse_invalid, with_values
from scribengin.operations.lifecycle import (
    author,
    await_masters_gone,
    ended_badly,
    has_master,
    refuse_without_master,
    set_desired_state,
    wait_for_state,
)
from scribengin.operations.submit.memory import with_room
from scribengin.operations.submit.origins import remember_origin, remembered_origin
from scribengin.operations.submit.shipping import shipped
from scribengin_registry.compare_and_set import LookAgain, win_race


def next_version(
    view: DataflowView, base: DataflowConfig, flow: str | None, values: Mapping[str, str]
) -> DataflowConfig:
    """What the dataflow is to be: as `flow` describes it now, or as its config `base` says, with the code where it was
    submitted from; and these `values`.

    Raises ConfigInvalid, PackageInvalid, DataflowBusy, DataflowNotFound. Nothing was done then.
    """
    before = view.config_in_force().value
    if flow is not None:
        config = with_room(view.registry, _described(view, flow, values))
        if "rebalance" not in values:  # no descriptor knows how often that was asked for
            config = config.model_copy(update={"rebalance": base.rebalance})
    else:
        config = with_values(view.registry, base, values)
        if config.transformation is not None and "package" not in values:
            config = config.model_copy(update={"package": _origin(view)})
    if flow is not None and config.launcher != "local":  # what was uploaded at the submit
        config = config.model_copy(update={"yarn": before.yarn})
    refuse_edit(view, config, running=False)
    if view.status().state == "deleting":
        refuse_invalid(view, config)
    return in_order_of(config, before)  # as the next master takes it: what is kept is compared with that


def foreign_origin(view: DataflowView, config: DataflowConfig, home: Path) -> str | None:
    """The directory that the code would be taken from because the registry says so, and not this user; None where
    there is none, or where it is the one that they submitted from."""
    origin = view.origin()
    if origin is None or config.transformation is None or config.package != origin.package:
        return None
    return origin.package if remembered_origin(home, view.registry.hosts, view.dataflow) != origin.package else None


def _described(view: DataflowView, flow: str, values: Mapping[str, str]) -> DataflowConfig:
    """The dataflow as the descriptor says. Of a chain's dataflow that is the chain's file, or a descriptor of its own:
    what such a one calls itself does not count, as in the chain's file. Raises ConfigInvalid."""
    found = membership(view.registry, view.dataflow)
    if found is None:
        config = load_config(flow, values)
        if config.name != view.dataflow:
            raise ConfigInvalid(f"{flow} describes dataflow '{config.name}', not '{view.dataflow}'")
        return config
    name, member = found
    if is_chain(flow):
        chain = load_chain(flow, {f"{member.key}.{key}": value for key, value in values.items()})
        if chain.name != name:
            raise ConfigInvalid(f"{flow} describes chain '{chain.name}', not '{name}'")
    else:
        config = load_config(flow, values).model_copy(update={"name": view.dataflow})
        submitted = get_chain(view.registry, name).parsed()
        chain = with_topics(submitted.model_copy(update={"dataflows": {member.key: config}}))
    if member.key not in chain.dataflows:
        raise ConfigInvalid(f"{flow} has no dataflow '{member.key}' (it has: {', '.join(chain.dataflows)})")
    return chain.dataflows[member.key]


def refuse_overtaken(view: DataflowView, base: Versioned[DataflowConfig], config: DataflowConfig) -> None:
    """Raise EditConflict if somebody has edited since `base` was read what this restart changes as well, or has told
    the dataflow to pause or stop: before anything is stopped."""
    found = view.config_to_edit()
    if found.version == base.version:
        return
    wanted = found.value.desired_state
    if wanted != base.value.desired_state and wanted != "running":
        raise _overtaken(view, base.version, "and nothing was stopped")
    _carried(view, base, found, config, "and nothing was stopped")


def stop_for_restart(view: DataflowView) -> None:
    """Have the dataflow drain and leave, if it runs.

    Raises DataflowBusy when there is no master to do it, DataflowError when it failed.
    """
    if view.status().state not in FINAL_STATES and (has_master(view) or view.has_workers()):
        refuse_without_master(view)
        set_desired_state(view, "stopped")
        status = wait_for_state(view, lambda s: s.state in FINAL_STATES, lambda _: None, asked="stopped")
        await_masters_gone(view)
        if status.state == "failed":
            raise ended_badly(status)


def put_in_force(view: DataflowView, base: Versioned[DataflowConfig], config: DataflowConfig, home: Path) -> EditResult:
    """Write the config, made from `base`, of a dataflow that has stopped, its package shipped. What others have edited
    since `base` was read stays.

    Raises EditConflict when they have edited the same, DataflowBusy (they keep editing), PackageInvalid.
    """
    before = view.config_in_force().value
    ready = shipped(config.model_copy(update={"desired_state": "running"}), home)

    def attempt() -> tuple[DataflowConfig, str, int]:
        found = view.config_to_edit()
        carried, meanwhile = _carried(view, base, found, ready, "and the dataflow has stopped")
        try:
            written = write_edit(view, carried, found.version, author=author(), at_ms=SYSTEM_CLOCK.now_ms())
        except EditConflict:
            raise LookAgain from None  # and see whether they have edited the same
        return carried, meanwhile, written

    carried, meanwhile, written = win_race(
        attempt, races=(), tries_max=TRIES_MAX, exhausted=lambda: keeps_changing(view)
    )
    if config.package is not None:
        view.set_origin(Origin(package=config.package, host=socket.gethostname()))
        remember_origin(home, view.registry.hosts, view.dataflow, config.package)
    return EditResult(written, plan_edit(before, carried, running=False), written=True, meanwhile=meanwhile)


def _carried(
    view: DataflowView,
    base: Versioned[DataflowConfig],
    found: Versioned[DataflowConfig],
    config: DataflowConfig,
    so_far: str,
) -> tuple[DataflowConfig, str]:
    """The config with what others have made of `base` until it was `found`, and what that was, for people. Whether the
    dataflow is to run is this restart's."""
    before, theirs = as_json(base.value), as_json(found.value)
    theirs["desired_state"] = before["desired_state"]
    both = merged(before, as_json(config), theirs)
    if both is None:
        raise _overtaken(view, base.version, so_far)
    carried = DataflowConfig.parse(both, source="the config with what was edited meanwhile")
    refuse_edit(view, carried, running=False)
    return carried, ", ".join(differences(before, theirs))


def _overtaken(view: DataflowView, version: int, so_far: str) -> EditConflict:
    return EditConflict(
        f"the config of dataflow '{view.dataflow}' was edited while this was being prepared: "
        f"{edited_since(view, version)}. Nothing of yours was written, {so_far}: look at it, then `scribengin restart` "
        "it again"
    )


def _origin(view: DataflowView) -> str:
    """The directory of the package that the dataflow was submitted with, which may have changed since."""
    origin = view.origin()
    if origin is None or not Path(origin.package).is_dir():
        where = "is not known" if origin is None else f"was {origin.package} on {origin.host}, which is not here"
        raise PackageInvalid(
            f"where the code of '{view.dataflow}' came from {where}: name its descriptor, as in "
            f"`scribengin restart {view.dataflow} FLOW`"
        )
    return origin.package
