"""Starting a dataflow again, and knowing when it runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from scribengin.dataflow.registry.descriptors import FINAL_STATES, STATUS_TASKS_MAX, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowBusy, DataflowNotFound, DescriptorUnreadable
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.operations.lifecycle import await_masters_gone, has_master, masters, on_their_way, set_desired_state
from scribengin.operations.submit.submit import launch_master
from scribengin_registry.contract import Registry


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
        with suppress(DataflowNotFound, DescriptorUnreadable, ConfigInvalid):
            state = view.status().state
            if state == "deleting" or state in FINAL_STATES or view.config_in_force().value.launcher != "local":
                continue
            if not has_master(view):
                launch_master(registry, name, home)
                revived.append(name)
    return revived


def start_again(view: DataflowView, home: Path) -> None:
    """Have a dataflow that has ended, or lost all its masters, run again. It goes on at its positions.

    Raises DataflowNotFound, DataflowBusy (it runs), LauncherError.
    """
    status = view.status()
    if status.state == "deleting":
        raise DataflowBusy(
            f"the deletion of '{view.dataflow}' was cut short: `scribengin delete {view.dataflow}` ends it"
        )
    if status.state in FINAL_STATES:
        await_masters_gone(view)
    elif masters(view):
        raise DataflowBusy(f"dataflow '{view.dataflow}' is {status.state}: there is nothing to start")
    elif there := on_their_way(view):
        raise DataflowBusy(
            f"dataflow '{view.dataflow}' is {status.state} and has no master just now, but {there[0]} runs and stands "
            f"for election as soon as it can: wait, or `scribengin kill {view.dataflow}` first"
        )
    set_desired_state(view, "running")
    launch_master(view.registry, view.dataflow, home)
