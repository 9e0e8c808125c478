"""`scribengin stop`, `kill`, `start` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.commands.options import NameArgument, RegistryOption, connected
from scribengin_tools.render import console, note

if TYPE_CHECKING:
    from scribengin.dataflow.descriptors import DataflowStatus


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("stop")(stop)
    app.command("kill")(kill)
    app.command("delete")(delete)


def stop(
    name: NameArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it has stopped, or at once.")] = True,
    registry: RegistryOption = None,
) -> None:
    """Stop a dataflow in order: drain, commit, leave.

    Every task finishes its round and commits it, then workers and masters leave.

    Exit code 1 if the dataflow failed instead. Ctrl-C stops waiting; the dataflow goes on stopping.
    """
    from scribengin.dataflow.descriptors import FINAL_STATES
    from scribengin.dataflow.view import DataflowView
    from scribengin_tools.ending import await_masters_gone, ended_badly, set_desired_state, wait_for_state

    with connected(registry) as session:
        view = DataflowView(session, name)
        before = view.status()
        set_desired_state(view, "stopped")
        if before.state in FINAL_STATES:
            print(f"dataflow '{name}' was {before.state} already")
            return
        if not wait:
            print(f"dataflow '{name}' is asked to stop; `scribengin status {name}` shows how far it is")
            return
        shown = console(stderr=True)
        with shown.status(f"stopping '{name}' ...") as progress:
            status = wait_for_state(
                view, lambda s: s.state in FINAL_STATES, lambda s: progress.update(f"stopping '{name}': {_progress(s)}")
            )
            await_masters_gone(view)
    if status.state == "failed":
        raise ended_badly(status)
    print(f"dataflow '{name}' is {status.state}")


def kill(name: NameArgument, registry: RegistryOption = None) -> None:
    """End every process of a dataflow on this machine, at once.

    Nothing is lost or written twice by that: what was not committed is rolled back and read again when it next runs.
    """
    from scribengin.launcher.local import scribengin_home
    from scribengin_tools.ending import kill_dataflow

    with connected(registry) as session:
        killed = kill_dataflow(session, name, scribengin_home())
    print(killed.line if killed.anything else f"dataflow '{name}' was {killed.state_before} already, nothing ran")


def delete(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also if what it has committed last cannot be completed: it is lost then.")
    ] = False,
    registry: RegistryOption = None,
) -> None:
    """Forget a dataflow that does not run.

    Its configuration, its positions and its claim on its sinks go; what its sinks hold stays. A dataflow of that
    name begins at the start of its sources again.
    """
    from scribengin.dataflow.descriptors import FINAL_STATES
    from scribengin.dataflow.settling import settle
    from scribengin.dataflow.view import DataflowView
    from scribengin.errors import DataflowBusy
    from scribengin_tools.ending import await_masters_gone

    with connected(registry) as session:
        view = DataflowView(session, name)
        state = view.status().state
        if state not in (*FINAL_STATES, "deleting"):
            raise DataflowBusy(f"dataflow '{name}' is {state}: stop it first (`scribengin stop {name}`, or kill)")
        if state != "deleting":
            await_masters_gone(view)
            if not force:
                settle(view)
        view.delete()
    print(f"dataflow '{name}' is deleted")
    note("what it wrote stays where it is")


def _progress(status: DataflowStatus) -> str:
    left = sum(task.state in ("released", "finished", "failed") for task in status.tasks)
    return f"{status.state}, {left} of {status.tasks_total} tasks have ended, {len(status.workers)} workers are here"
