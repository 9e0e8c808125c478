"""A dataflow's life, from outside: started again, asked to stop, killed where it cannot be asked, and waited for.

Here too: who gives a command, as the history of a config keeps it; a dataflow's containers, for whoever ends them or
reads their output; and a registry watch that can be waited for.
"""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import place_of
from scribengin.dataflow.registry.config_node import half_deleted
from scribengin.dataflow.registry.descriptors import (
    FINAL_STATES,
    STATUS_TASKS_MAX,
    DataflowState,
    DataflowStatus,
    HistoryEvent,
)
from scribengin.dataflow.registry.edit_log import until_written, write_edit
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import (
    ConfigInvalid,
    ContainerUnreachable,
    DataflowBusy,
    DataflowError,
    DataflowNotFound,
    DescriptorUnreadable,
    LauncherError,
    ScribenginError,
)
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local.launcher import LocalLauncher, scribengin_home
from scribengin.operations.submit.submit import launch_master
from scribengin_registry.contract import Registry, WatchEvent
from scribengin_registry.errors import NodeMissing

DesiredState = Literal["running", "paused", "stopped"]
_LOOK_S = 1.0
_LEAVING_MAX_S = 20.0
"""How long a master may take to leave; one that was killed stands for as long as its session lasts, besides."""
_ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Killed:
    """What was killed: `containers` are for people, `elsewhere` names workers of other machines that
    may still run, `other_registries` those for which a dataflow of that name runs here. `state_before` is None where
    nobody can read it; `unreadable` says which nodes nobody can."""

    dataflow: str
    state_before: DataflowState | None
    containers: str
    elsewhere: tuple[str, ...]
    other_registries: tuple[str, ...]
    unreadable: tuple[str, ...] = ()

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
        if self.state_before == "deleting":
            line += f"; its deletion was cut short: `scribengin delete {self.dataflow}` ends it"
        if self.unreadable:
            line += f"; what could not be read is left as it is: {'; '.join(self.unreadable)}"
        return line


def set_desired_state(view: DataflowView, wanted: DesiredState, by: str | None = None) -> bool:
    """Edit the dataflow's config, and return whether that changed it. Raises DataflowNotFound, and DataflowBusy when
    others keep editing it. `by` is who edits; default: who runs this process.

    An edit that the master has refused is replaced by the config in force: else this one would be refused with it.
    """

    def attempt() -> bool:
        found = view.config_to_edit()
        if found.value.desired_state == wanted:
            return False
        config = found.value.model_copy(update={"desired_state": wanted})
        write_edit(view, config, found.version, author=by or author(), at_ms=SYSTEM_CLOCK.now_ms())
        return True

    return until_written(view, attempt)


def kill_dataflow(registry: Registry, name: str, home: Path) -> Killed:
    """End every process of a dataflow on this machine, or its applications on YARN, now. What was not committed is
    redone when it runs again. Whatever stands in its nodes, or does not: where nobody can read its config, it is taken
    for one of this machine.

    Raises DataflowNotFound, LauncherError; ContainerUnreachable once all that could be done is done. Where nothing runs
    here, and neither its status nor its config can be read, DescriptorUnreadable: then nothing was done.
    """
    view, damage = DataflowView(registry, name), _Damage()
    status: DataflowStatus | None = None
    config: DataflowConfig | None = None
    with damage.told():
        status = view.status()
    with damage.told(ConfigInvalid), suppress(DataflowNotFound):  # its deletion was cut short just there
        config = view.config_in_force().value
    elsewhere = _workers_elsewhere(view) if config is None or config.launcher == "local" else ()
    with damage.told(DataflowBusy), suppress(ConfigInvalid, DataflowNotFound):
        set_desired_state(view, "stopped")  # or a master on another machine would start everything anew
    unsure: ContainerUnreachable | None = None
    try:
        containers = names_of(kill_containers(registry.hosts, name, home, config))
    except ContainerUnreachable as error:
        containers, unsure = str(error), error
    if damage.first is not None and status is None and config is None and not containers:
        raise damage.first
    others = running_for_other_registries(registry.hosts, name, home)
    killed = Killed(name, None if status is None else status.state, containers, elsewhere, tuple(others))
    if status is not None and killed.anything and (config is not None or containers):
        with damage.told():
            _write_down(view, killed, status.submitted_ms)
    killed = replace(killed, unreadable=damage.lines)
    if unsure is not None:
        raise unsure
    return killed


class _Damage:
    """What of a dataflow cannot be read, each thing once."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        self.first: ScribenginError | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return tuple(self._found)

    @contextmanager
    def told(self, *besides: type[ScribenginError]) -> Iterator[None]:
        """Around what is not done then: an unreadable node, and these."""
        try:
            yield
        except ScribenginError as error:
            if not isinstance(error, (DescriptorUnreadable, *besides)):
                raise
            self._found[str(error)] = None
            self.first = self.first or error


def _write_down(view: DataflowView, killed: Killed, submitted_ms: int) -> None:
    """Say that the dataflow was killed, unless it is being deleted: nobody may start what is half gone. Nor is it said
    of another one that has its name by now."""

    def change(found: DataflowStatus) -> DataflowStatus | None:
        if found.state == "deleting" or found.submitted_ms != submitted_ms:
            return None
        return found.model_copy(update={"state": "killed", "workers": (), "master": None, "tasks_unassigned": ()})

    with suppress(DataflowNotFound):  # somebody has deleted it
        if view.change_status(change):
            message = killed.containers or "nothing ran here"
            view.add_history([HistoryEvent(at_ms=SYSTEM_CLOCK.now_ms(), kind="killed", message=message)])


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


def _workers_elsewhere(view: DataflowView) -> tuple[str, ...]:
    found = []
    try:
        names = view.workers()
    except NodeMissing:  # its deletion has come that far
        return ()
    for name in names:
        try:
            host = view.worker(name).host
        except NodeMissing:
            continue
        except DescriptorUnreadable:
            host = "a machine that nobody can read"
        if host != socket.gethostname() and view.lives(name):
            found.append(f"{name} on {host}")
    return tuple(found)


def author() -> str:
    """Who edits: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def kill_containers(
    registry: str, dataflow: str, home: Path, config: DataflowConfig | None = None
) -> list[ContainerDescriptor]:
    """Kill everything that runs for a dataflow where its config says (default: on this machine), and return what that
    was. On YARN that is its applications.

    Masters go first, for they replace what dies; and one may have launched another container just before: so it is
    looked again until nothing is left. Raises ConfigInvalid, LauncherError; ContainerUnreachable once all were told
    to end.
    """
    killed: list[ContainerDescriptor] = []
    unsure: list[str] = []
    with LocalLauncher(home) if config is None else place_of(config, home) as place:
        for _round in range(_ROUNDS_MAX):
            running = place.containers(registry, dataflow)
            if not running and unsure:
                raise ContainerUnreachable("; ".join(unsure))
            if not running:
                return killed
            for container in sorted(running, key=lambda container: not container.name.startswith("master")):
                try:
                    place.kill(container)
                except ContainerUnreachable as error:
                    unsure.append(str(error))
                killed.append(container)
    raise LauncherError(f"processes of dataflow '{dataflow}' keep coming back: see `scribengin logs {dataflow}`")


def containers_here(registry: str, dataflow: str, home: Path) -> list[ContainerDescriptor]:
    """The containers that a dataflow has, or had, on this machine. Raises LauncherError."""
    with LocalLauncher(home) as launcher:
        return [one for one in launcher.all_containers(dataflow) if one.registry == registry]


def forget_containers(containers: Sequence[ContainerDescriptor], home: Path) -> None:
    """Delete what the containers of a deleted dataflow have left on this machine: their output, their scratch files.
    What still runs of them is ended, for it can commit nothing any more. Raises LauncherError."""
    with LocalLauncher(home) as launcher:
        for container in containers:
            launcher.forget(container)


def masters_running(registry: str, dataflow: str, home: Path, config: DataflowConfig) -> list[str]:
    """The master processes of a dataflow on this machine, or its applications on YARN that have not ended: each may
    still be on its way to its election, or to the next one. Raises ConfigInvalid, LauncherError."""
    with place_of(config, home) as place:
        found = place.containers(registry, dataflow)
    return [c.name for c in found if config.launcher != "local" or c.name.startswith("master")]


def running_for_other_registries(registry: str, dataflow: str, home: Path) -> list[str]:
    """The registries other than this one for which a dataflow of that name runs here: perhaps the same one, spelled
    differently."""
    with closing(LocalLauncher(home)) as launcher:
        others = {c.registry for c in launcher.all_containers(dataflow) if c.registry != registry}
        return sorted(other for other in others if launcher.containers(other, dataflow))


def names_of(containers: Sequence[ContainerDescriptor]) -> str:
    """For people."""
    return ", ".join(container.name for container in containers)


def is_running(status: DataflowStatus) -> bool:
    """Whether every task runs, as its worker says."""
    works = all(task.state in ("running", "isolating", "idle", "finished") for task in status.tasks)
    all_known = 0 < min(status.tasks_total, STATUS_TASKS_MAX) <= len(status.tasks)
    return status.state == "running" and works and all_known and not status.tasks_unassigned


def has_begun(status: DataflowStatus) -> bool:
    """Whether every task runs, and has committed a round or found nothing to read: until then, whether it can do what
    it is for is not known."""
    return is_running(status) and all(
        task.error is None and (task.rounds > 0 or task.state in ("idle", "finished")) for task in status.tasks
    )


def revive(registry: Registry, home: Path) -> list[str]:
    """Launch a master for each dataflow that is to run, has run on this machine, and has lost all its masters. Returns
    the names. What was stopped or killed, or has ended, stays so.

    Raises LauncherError, RegistryUnreachable; a dataflow whose nodes cannot be read is left alone.
    """
    revived = []
    with LocalLauncher(home) as launcher:
        mine = [
            name
            for name in launcher.dataflows()
            if any(container.registry == registry.hosts for container in launcher.all_containers(name))
        ]
    for name in sorted(set(mine) & set(dataflow_names(registry))):
        view = DataflowView(registry, name)
        with suppress(DataflowNotFound, DescriptorUnreadable, ConfigInvalid, DataflowBusy):  # busy: just being deleted
            state = view.status().state
            if state == "deleting" or state in FINAL_STATES or view.config_in_force().value.launcher != "local":
                continue
            if not has_master(view):
                launch_master(registry, name, home)
                revived.append(name)
    return revived


def start_again(view: DataflowView, home: Path, by: str | None = None) -> None:
    """Have a dataflow that has ended, or lost all its masters, run again. It goes on at its positions. `by` is who has
    it start; default: who runs this process.

    Raises DataflowNotFound, DataflowBusy (it runs), LauncherError. ConfigInvalid: another client has written more
    workers into its config than there is work for, and a master would take them for meant after this edit.
    """
    status = view.status()
    if status.state == "deleting":
        raise half_deleted(view.dataflow)
    if status.state in FINAL_STATES:
        await_masters_gone(view)
    elif masters(view):
        raise _needs_no_start(view, status.state)
    elif there := on_their_way(view):
        raise DataflowBusy(
            f"dataflow '{view.dataflow}' is {status.state} and has no master just now, but {there[0]} runs and stands "
            f"for election as soon as it can: wait, or `scribengin kill {view.dataflow}` first"
        )
    found = view.config_to_edit()
    if (why := view.hand_crowding(found.value, found.version)) is not None:
        raise ConfigInvalid(why)
    set_desired_state(view, "running", by)
    launch_master(view.registry, view.dataflow, home)


def _needs_no_start(view: DataflowView, state: DataflowState) -> DataflowBusy:
    """What to raise of a dataflow that has a master: it goes by the last edit, of which its status may not tell yet."""
    name, wanted = view.dataflow, view.config_to_edit().value.desired_state
    if state == "stopping" or wanted == "stopped":
        return DataflowBusy(f"dataflow '{name}' is stopping: wait until it has, then `scribengin start {name}`")
    if wanted == "paused":
        now = "paused" if state == "paused" else "pausing"
        return DataflowBusy(f"dataflow '{name}' is {now}: `scribengin resume {name}` lets it go on")
    return DataflowBusy(f"dataflow '{name}' is {state}: there is nothing to start")


class Change(threading.Event):
    """Handed to the registry as a watch; set once it has fired. Taken back where the block ends."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def __call__(self, _event: WatchEvent) -> None:
        self.set()

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *_error: object) -> None:
        self._registry.unwatch(self)
