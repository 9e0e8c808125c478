"""Starting a dataflow again, and knowing when it runs."""

from __future__ import annotations

from pathlib import Path

from scribengin.dataflow.descriptors import FINAL_STATES, STATUS_TASKS_MAX, DataflowStatus
from scribengin.dataflow.view import DataflowView
from scribengin.errors import DataflowBusy
from scribengin.master.submit import launch_master
from scribengin_tools.ending import await_masters_gone, masters, on_their_way, set_desired_state


def is_running(status: DataflowStatus) -> bool:
    """Whether every task runs, as its worker says."""
    works = all(task.state in ("running", "idle", "finished") for task in status.tasks)
    all_known = 0 < min(status.tasks_total, STATUS_TASKS_MAX) <= len(status.tasks)
    return status.state == "running" and works and all_known and not status.tasks_unassigned


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
