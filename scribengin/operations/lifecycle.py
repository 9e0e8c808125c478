"""Ending dataflows: asking one to stop, killing one that cannot be asked, and waiting for what becomes of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowState, DataflowStatus, HistoryEvent
from scribengin.dataflow.registry.edit_log import write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import (
    ConfigInvalid,
    ContainerUnreachable,
    DataflowBusy,
    DataflowError,
    DataflowNotFound,
    EditConflict,
)
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.operations.author import author
from scribengin.operations.containers import (
    kill_containers,
    masters_running,
    names_of,
    running_for_other_registries,
)
from scribengin.operations.watching import Change
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing

DesiredState = Literal["running", "paused", "stopped"]
_CHANGES_TRIED_MAX = 10
_LOOK_S = 1.0
_LEAVING_MAX_S = 20.0
"""How long a master may take to leave; one that was killed stands for as long as its session lasts, besides."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What was killed: `containers` are for people, `elsewhere` names workers of other machines that
    may still run, `other_registries` those for which a dataflow of that name runs here."""

    dataflow: str
    state_before: DataflowState
    containers: str
    elsewhere: tuple[str, ...]
    other_registries: tuple[str, ...]

    @property
    def anything(self) -> bool:
        """Whether there was anything to kill."""
        return bool(self.containers) or self.state_before not in FINAL_STATES

    @property
    def line(self) -> str:
        """The whole, for people."""
        line = f"killed dataflow '{self.dataflow}' ({self.containers or 'nothing of it ran on this machine'})"
        if self.elsewhere:
            line += f"; workers on other machines may still run: {', '.join(self.elsewhere)}: kill it there, too"
        if self.other_registries and not self.containers:
            line += (
                f"; a dataflow of that name runs here for the registry {', '.join(self.other_registries)}: "
                "if that is the same one, give it in those words"
            )
        return line


def set_desired_state(view: DataflowView, wanted: DesiredState, by: str | None = None) -> bool:
    """Edit the dataflow's config, and return whether that changed it. Raises DataflowNotFound, and DataflowBusy when
    others keep editing it. `by` is who edits; default: who runs this process.

    An edit that the master has refused is replaced by the config in force: else this one would be refused with it.
    """
    for _attempt in range(_CHANGES_TRIED_MAX):
        found = view.config_to_edit()
        if found.value.desired_state == wanted:
            return False
        config = found.value.model_copy(update={"desired_state": wanted})
        try:
            write_edit(view, config, found.version, author=by or author(), at_ms=SYSTEM_CLOCK.now_ms())
        except EditConflict:
            continue
        return True
    raise DataflowBusy(f"the config of dataflow '{view.dataflow}' keeps changing under this command: try again")


def kill_dataflow(registry: Registry, name: str, home: Path) -> Killed:
    """End every process of a dataflow on this machine, or its applications on YARN, now. What was not committed is
    redone when it runs again.

    Raises DataflowNotFound, LauncherError; ContainerUnreachable once all that could be done is done.
    """
    view = DataflowView(registry, name)
    status = view.status()
    config = _config(view)
    elsewhere = _workers_elsewhere(view) if config is None or config.launcher == "local" else ()
    with contextlib.suppress(ConfigInvalid, DataflowNotFound):  # killing must be possible whatever stands there, or not
        set_desired_state(view, "stopped")  # or a master on another machine would start everything anew
    unsure: ContainerUnreachable | None = None
    try:
        containers = names_of(kill_containers(registry.hosts, name, home, config))
    except ContainerUnreachable as error:
        containers, unsure = str(error), error
    others = running_for_other_registries(registry.hosts, name, home)
    killed = Killed(name, status.state, containers, elsewhere, tuple(others))
    if killed.anything:
        view.set_status(
            view.status().model_copy(update={"state": "killed", "workers": (), "master": None, "tasks_unassigned": ()})
        )
        event = HistoryEvent(at_ms=SYSTEM_CLOCK.now_ms(), kind="killed", message=containers or "nothing ran here")
        view.add_history([event])
    if unsure is not None:
        raise unsure
    return killed


def wait_for_state(
    view: DataflowView,
    until: Callable[[DataflowStatus], bool],
    seen: Callable[[DataflowStatus], None],
    *,
    asked: DesiredState | None = None,
) -> DataflowStatus:
    """Return the first status that satisfies `until`; `seen` hears of each before. Raises DataflowNotFound, and
    DataflowBusy when no master is left to bring the dataflow there, or its config asks for something else than what
    was `asked` for: then it never comes there."""
    orphaned_since_s: float | None = None
    patience_s = 3 * view.config_in_force().value.session_timeout_s
    with Change(view.registry) as changed:
        while True:
            changed.clear()
            status = view.status(changed)
            if until(status):
                return status
            seen(status)
            _refuse_asked_otherwise(view, asked)
            now_s = SYSTEM_CLOCK.monotonic_s()
            if masters(view):
                orphaned_since_s = None
            elif orphaned_since_s is None:
                orphaned_since_s = now_s
            elif now_s - orphaned_since_s > patience_s:
                if on_their_way(view):
                    orphaned_since_s = None
                    continue
                raise DataflowBusy(
                    f"dataflow '{view.dataflow}' is {status.state} and has no master any more: see `scribengin logs "
                    f"{view.dataflow}`; `scribengin kill {view.dataflow}` ends what is left of it"
                )
            changed.wait(_LOOK_S)


def _refuse_asked_otherwise(view: DataflowView, asked: DesiredState | None) -> None:
    desired = view.config_to_edit().value.desired_state
    if asked not in (None, desired):
        name = view.dataflow
        raise DataflowBusy(
            f"dataflow '{name}' is asked to be {desired}, and no longer to be {asked}: `scribengin config history "
            f"{name}` shows who did that"
        )


def ended_badly(status: DataflowStatus) -> DataflowError:
    """The error of whoever waited for something better: what the dataflow says of itself, then what became of it."""
    name = status.dataflow
    line = f"dataflow '{name}' is {status.state}: see `scribengin history {name}`, `scribengin logs {name}`"
    return DataflowError(f"{status.error}\n{line}" if status.error else line)


def masters(view: DataflowView) -> int:
    """How many processes stand for election as master, the leader included."""
    try:
        return len(view.registry.children(view.paths.master))
    except NodeMissing:
        return 0


def on_their_way(view: DataflowView) -> list[str]:
    """The masters that run, whether or not they stand for election: one may be starting still, be about to have a new
    session, or wait for room on YARN. Raises DataflowNotFound, ConfigInvalid, LauncherError."""
    return masters_running(view.registry.hosts, view.dataflow, scribengin_home(), view.config_in_force().value)


def has_master(view: DataflowView) -> bool:
    """Whether a master leads the dataflow, or is on its way to. Raises as `on_their_way`."""
    return bool(masters(view) or on_their_way(view))


def refuse_without_master(view: DataflowView) -> None:
    """Raise DataflowBusy if no master leads the dataflow, or is on its way to."""
    name = view.dataflow
    if has_master(view):
        return
    raise DataflowBusy(
        f"dataflow '{name}' has no master any more: see `scribengin logs {name}`; `scribengin start {name}` launches "
        f"one, `scribengin kill {name}` ends what is left of it"
    )


def await_masters_gone(view: DataflowView) -> None:
    """Return once the masters of a dataflow that has ended have left. Raises DataflowBusy when they do not."""
    session_s = view.config_in_force().value.session_timeout_s
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _LEAVING_MAX_S + session_s
    with Change(view.registry) as changed:
        while masters(view):
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise DataflowBusy(
                    f"dataflow '{view.dataflow}' has ended, but a master of it stays: `scribengin kill {view.dataflow}`"
                )
            changed.clear()
            view.registry.children(view.paths.master, changed)
            changed.wait(_LOOK_S)


def _config(view: DataflowView) -> DataflowConfig | None:
    """What its masters go by, unless its deletion was cut short just there."""
    try:
        return view.config_in_force().value
    except DataflowNotFound:
        return None


def _workers_elsewhere(view: DataflowView) -> tuple[str, ...]:
    found = []
    for name in view.workers():
        try:
            worker = view.worker(name)
        except NodeMissing:
            continue
        if worker.host != socket.gethostname() and view.lease(name):
            found.append(f"{name} on {worker.host}")
    return tuple(found)
