"""`scribengin stop`, `kill`, `start` and `delete`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_registry.errors import RegistryClosed, RegistryUnreachable, ScribenginError, SessionLost
from scribengin_tools.cli.options import NameArgument, NamesArgument, RegistryOption, connected
from scribengin_tools.rendering.text import left_of_chain, note, report, working

if TYPE_CHECKING:
    from scribengin.dataflow.registry.descriptors import DataflowStatus
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.operations.chain.registry import ChainDescriptor
    from scribengin.operations.names import Meant
    from scribengin_registry.contract import Registry

_REGISTRY_AWAY = (RegistryUnreachable, SessionLost, RegistryClosed)
"""Nothing can be done to the next one either."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("stop")(stop)
    app.command("kill")(kill)
    app.command("release-holds")(release_holds)
    app.command("delete")(delete)


def stop(
    names: NamesArgument,
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
    """Stop dataflows or chains in order: drain, commit, leave.

    Every task finishes its round and commits it, then workers and masters leave. A chain stops from its sources down:
    each dataflow reads on until everything that those before it wrote is committed. If one cannot, because it has no
    workers or its source is paused, that is said, and it and those behind it run on. What a sink of files has not
    merged yet is merged before the last master leaves.

    Of several, all are looked at before the first is asked. Dataflows stop side by side, then chains one after the
    other.

    Exit code 1 if a dataflow failed instead. Ctrl-C stops waiting: a dataflow goes on stopping; of a chain, those that
    had not been asked run on, and `stop` goes on from there.
    """
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.chain.lifecycle import refuse_incomplete
    from scribengin.operations.lifecycle import refuse_without_master, set_desired_state
    from scribengin.operations.names import all_meant

    with connected(registry) as session:
        meant = all_meant(session, names)
        chains = [one.chain for one in meant if one.chain is not None]
        views = [one.views[0] for one in meant if one.chain is None]
        if timeout_s is not None and views:
            raise ConfigInvalid("--timeout goes with a chain: what has not drained by then still has to")
        if not wait and chains:
            raise ConfigInvalid(
                "--no-wait goes with one dataflow: a chain stops one after the other, as this command asks"
            )
        for chain in chains:
            refuse_incomplete(session, chain)
        asked = [view for view in views if view.status().state not in FINAL_STATES]
        for view in asked:
            refuse_without_master(view)
        for view in views:
            if view not in asked:
                print(f"dataflow '{view.dataflow}' was {view.status().state} already")
        for number, view in enumerate(asked):
            try:
                set_desired_state(view, "stopped")
            except BaseException:  # Ctrl-C, too
                unsure = [one.dataflow for one in asked[number:]] + [chain.name for chain in chains]
                if number:
                    note(f"{_going_on(asked[:number])}; not known to be asked: {', '.join(unsure)}")
                raise
        if not wait:
            for view in asked:
                name = view.dataflow
                print(f"dataflow '{name}' is asked to stop; `scribengin status {name}` shows how far it is")
            return
        stops = [partial(_await_stopped, view) for view in asked]
        stops += [partial(_stop_chain, session, chain, timeout_s=timeout_s) for chain in chains]
        _all_of(stops, lambda done: _left_of_stop(asked[done:], chains[max(0, done - len(asked)) :]))


def kill(names: NamesArgument, registry: RegistryOption = None) -> None:
    """End every process of dataflows or chains on this machine, or their applications on YARN, at once.

    Nothing is lost or written twice by that: what was not committed is rolled back and read again when it next runs.
    """
    from scribengin.operations.names import all_meant

    with connected(registry) as session:
        asked = [(one, view) for one in all_meant(session, names) for view in one.views]
        _all_of([partial(_kill, session, one, view) for one, view in asked], partial(_left_of_kill, asked))


def release_holds(name: NameArgument, registry: RegistryOption = None) -> None:
    """Have logs keep nothing for a dataflow or a chain that has ended.

    What a dataflow has not committed, the logs that it reads keep: from retention, too, until it is deleted. `status`
    shows how much. After this it goes when its time has come; what is purged before the dataflow starts again is gone
    for it, and it then says so.
    """
    from scribengin.operations.chain.lifecycle import release_chain_holds
    from scribengin.operations.delete import release_holds as give_up
    from scribengin.operations.names import chain_of, view_of

    missing: list[str] = []
    with connected(registry) as session:
        chain = chain_of(session, name)
        if chain is None:
            held = give_up([view_of(session, name)])
        else:
            held, missing = release_chain_holds(session, chain)
    for why in missing:
        note(why)
    records = many(sum(one.records for one in held), "record")
    kept = f"{records} of {many(len(held), 'log')}" if held else "none"
    print(f"logs keep nothing for '{name}' any more (before: {kept})")


def delete(
    names: NamesArgument,
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
    """Forget dataflows or chains that do not run.

    Their configuration, their positions and their claims on sinks go, and their processes' logs on this machine; what
    their sinks hold stays. A dataflow of that name begins at the start of its sources again.

    Of several, none is deleted while one of them runs, or is not there.
    """
    from scribengin.operations.chain import lifecycle as chains
    from scribengin.operations.delete import refuse_running
    from scribengin.operations.names import all_meant

    with connected(registry) as session:
        meant = all_meant(session, names)
        for one in meant:
            if one.chain is not None:
                chains.refuse_running(session, one.chain)
            else:
                refuse_running(one.views[0])
        for number, one in enumerate(meant):
            try:
                _delete(session, one, force=force)
            except BaseException:
                if rest := [other.name for other in meant[number + 1 :]]:
                    note(f"not deleted either: {', '.join(rest)}")
                raise
    note("what it wrote stays where it is" if len(meant) == 1 else "what they wrote stays where it is")


def _delete(session: Registry, meant: Meant, *, force: bool) -> None:
    from scribengin.operations.chain.lifecycle import delete_chain
    from scribengin.operations.delete import delete_dataflow

    if meant.chain is not None:
        left = delete_chain(session, meant.chain, force=force)
    else:
        stays = delete_dataflow(meant.views[0], force=force)
        left = [] if stays is None else [stays]
    print(f"{'dataflow' if meant.chain is None else 'chain'} '{meant.name}' is deleted", flush=True)
    for state in left:
        note(
            f"state stays in {state.directory}, and could not be removed: {state.why}; remove it by hand once it can be"
        )


def _kill(session: Registry, meant: Meant, view: DataflowView) -> None:
    """Kill one dataflow of what is meant: whatever stands in its way keeps no other of a chain alive."""
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.lifecycle import kill_dataflow

    killed = kill_dataflow(session, view.dataflow, scribengin_home())
    nothing = f"dataflow '{meant.name}' was {killed.state_before} already, nothing ran"
    print(killed.line if killed.anything or meant.chain is not None else nothing, flush=True)


def _await_stopped(view: DataflowView) -> None:
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.operations.lifecycle import await_masters_gone, ended_badly, wait_for_state

    name = view.dataflow
    with working(f"stopping '{name}'") as progress:
        status = wait_for_state(
            view,
            lambda s: s.state in FINAL_STATES,
            lambda s: progress(f"stopping '{name}': {_progress(s)}"),
            asked="stopped",
        )
        await_masters_gone(view)
    if status.state == "failed":
        raise ended_badly(status)
    print(f"dataflow '{name}' is {status.state}", flush=True)


def _stop_chain(session: Registry, chain: ChainDescriptor, *, timeout_s: float | None) -> None:
    from scribengin.operations.chain.lifecycle import stop_chain

    with working(f"stopping chain '{chain.name}'") as progress:
        stop_chain(session, chain, progress, timeout_s=timeout_s)
    print(f"chain '{chain.name}' is stopped", flush=True)


def _going_on(asked: Sequence[DataflowView]) -> str:
    if len(asked) == 1:
        name = asked[0].dataflow
        return f"'{name}' goes on stopping; `scribengin status {name}` shows how far it is"
    return f"{', '.join(one.dataflow for one in asked)} go on stopping; `scribengin list` shows how far they are"


def _left_of_stop(asked: Sequence[DataflowView], chains: Sequence[ChainDescriptor]) -> str:
    """What becomes of these when nobody waits any more. Without dataflows, the first chain was being stopped."""
    if asked:
        told, later = _going_on(asked), chains
    else:
        told, later = left_of_chain(chains[0].name, "stop", "stopping"), chains[1:]
    return f"{told}; not asked yet: {', '.join(chain.name for chain in later)}" if later else told


def _left_of_kill(asked: Sequence[tuple[Meant, DataflowView]], done: int) -> str:
    names = dict.fromkeys(one.name for one, _ in asked[done:])
    return f"not killed, or only in part: {', '.join(names)}"


def _all_of(acts: Sequence[Callable[[], None]], left: Callable[[int], str]) -> None:
    """Do all of it, also where something stands in the way of one. Raises what did, the others' being told: one that
    ends the command with 1, if there is one, and not with 2. Whoever has it end early, as by Ctrl-C, is told what had
    failed by then, and what is `left` after so many: the first of those may have been begun."""
    failures: list[ScribenginError] = []
    done = 0
    try:
        while done < len(acts):
            try:
                acts[done]()
            except ScribenginError as error:
                failures.append(error)
                if isinstance(error, _REGISTRY_AWAY):
                    break
            done += 1
    except BaseException:
        _tell(failures, left(done))
        raise
    failures.sort(key=lambda failure: failure.exit_code, reverse=True)
    _tell(failures[:-1], left(done) if done < len(acts) else "")
    if failures:
        raise failures[-1]


def _tell(failures: Sequence[ScribenginError], left: str) -> None:
    for failure in failures:
        report(failure)
    if left:
        note(left)


def _progress(status: DataflowStatus) -> str:
    left = sum(task.state in ("released", "finished", "failed") for task in status.tasks)
    ended = f"{left} of {many(status.tasks_total, 'task')} ended"
    return f"{status.state}, {ended}, {many(len(status.workers), 'worker')} here"
