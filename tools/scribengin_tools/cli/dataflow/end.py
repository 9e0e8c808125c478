"""`scribengin stop`, `kill`, `start` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.options import NameArgument, RegistryOption, connected
from scribengin_tools.rendering.text import left_of_chain, note, working

if TYPE_CHECKING:
    from scribengin.dataflow.registry.descriptors import DataflowStatus
    from scribengin.operations.chain.registry import ChainDescriptor
    from scribengin_registry.contract import Registry


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("stop")(stop)
    app.command("kill")(kill)
    app.command("release-holds")(release_holds)
    app.command("delete")(delete)


def stop(
    name: NameArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it has stopped, or at once.")] = True,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="Of a chain: how long its dataflows may read on. Default: as long as it takes.",
            show_default=False,
        ),
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Stop a dataflow or a chain in order: drain, commit, leave.

    Every task finishes its round and commits it, then workers and masters leave. A chain stops from its sources down:
    each dataflow reads on until everything that those before it wrote is committed. If one cannot, because it has no
    workers or its source is paused, that is said, and it and those behind it run on. What a sink of files has not
    merged yet is merged before the last master leaves.

    Exit code 1 if a dataflow failed instead. Ctrl-C stops waiting: a dataflow goes on stopping; of a chain, those that
    had not been asked run on, and `stop` goes on from there.
    """
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.lifecycle import (
        await_masters_gone,
        ended_badly,
        refuse_without_master,
        set_desired_state,
        wait_for_state,
    )
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        if chain := chain_of(session, name):
            _stop_chain(session, chain, wait=wait, timeout_s=timeout_s)
            return
        if timeout_s is not None:
            raise ConfigInvalid("--timeout goes with a chain: what has not drained by then still has to")
        view = view_of(session, name)
        before = view.status()
        if before.state in FINAL_STATES:
            print(f"dataflow '{name}' was {before.state} already")
            return
        refuse_without_master(view)
        set_desired_state(view, "stopped")
        if not wait:
            print(f"dataflow '{name}' is asked to stop; `scribengin status {name}` shows how far it is")
            return
        left = f"'{name}' goes on stopping; `scribengin status {name}` shows how far it is"
        with working(f"stopping '{name}'", left=left) as progress:
            status = wait_for_state(
                view,
                lambda s: s.state in FINAL_STATES,
                lambda s: progress(f"stopping '{name}': {_progress(s)}"),
                asked="stopped",
            )
            await_masters_gone(view)
    if status.state == "failed":
        raise ended_badly(status)
    print(f"dataflow '{name}' is {status.state}")


def kill(name: NameArgument, registry: RegistryOption = None) -> None:
    """End every process of a dataflow or a chain on this machine, or its applications on YARN, at once.

    Nothing is lost or written twice by that: what was not committed is rolled back and read again when it next runs.
    """
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.chain.lifecycle import kill_chain
    from scribengin.operations.lifecycle import kill_dataflow
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        if chain := chain_of(session, name):
            for one in kill_chain(session, chain, scribengin_home()):
                print(one.line)
            return
        killed = kill_dataflow(session, view_of(session, name).dataflow, scribengin_home())
    print(killed.line if killed.anything else f"dataflow '{name}' was {killed.state_before} already, nothing ran")


def release_holds(name: NameArgument, registry: RegistryOption = None) -> None:
    """Have logs keep nothing for a dataflow or a chain that has ended.

    What a dataflow has not committed, the logs that it reads keep: from retention, too, until it is deleted. `status`
    shows how much. After this it goes when its time has come; what is purged before the dataflow starts again is gone
    for it, and it then says so.
    """
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.operations.delete import release_holds as give_up
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        chain = chain_of(session, name)
        if chain is None:
            views = [view_of(session, name)]
        else:
            views = [DataflowView(session, member.dataflow) for member in chain.members]
        held = give_up(views)
    records = many(sum(one.records for one in held), "record")
    kept = f"{records} of {many(len(held), 'log')}" if held else "none"
    print(f"logs keep nothing for '{name}' any more (before: {kept})")


def delete(
    name: NameArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also if what it has committed last cannot be completed: it is lost then. State that is out of reach "
            "stays where it is.",
        ),
    ] = False,
    registry: RegistryOption = None,
) -> None:
    """Forget a dataflow or a chain that does not run.

    Its configuration, its positions and its claim on its sinks go, and its processes' logs on this machine; what its
    sinks hold stays. A dataflow of that name begins at the start of its sources again.
    """
    from scribengin.operations.chain.lifecycle import delete_chain
    from scribengin.operations.delete import delete_dataflow
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        chain = chain_of(session, name)
        if chain is not None:
            left = delete_chain(session, chain, force=force)
        else:
            stays = delete_dataflow(view_of(session, name), force=force)
            left = [] if stays is None else [stays]
    print(f"{'dataflow' if chain is None else 'chain'} '{name}' is deleted")
    note("what it wrote stays where it is")
    for state in left:
        note(
            f"state stays in {state.directory}, and could not be removed: {state.why}; remove it by hand once it can be"
        )


def _stop_chain(session: Registry, chain: ChainDescriptor, *, wait: bool, timeout_s: float | None) -> None:
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.chain.lifecycle import stop_chain

    if not wait:
        raise ConfigInvalid("--no-wait goes with one dataflow: a chain stops one after the other, as this command asks")
    with working(f"stopping chain '{chain.name}'", left=left_of_chain(chain.name, "stop", "stopping")) as progress:
        stop_chain(session, chain, progress, timeout_s=timeout_s)
    print(f"chain '{chain.name}' is stopped")


def _progress(status: DataflowStatus) -> str:
    left = sum(task.state in ("released", "finished", "failed") for task in status.tasks)
    ended = f"{left} of {many(status.tasks_total, 'task')} ended"
    return f"{status.state}, {ended}, {many(len(status.workers), 'worker')} here"
