"""`scribengin scale`, `rebalance`, `pause`, `resume`, `restart`, which edit the config, and `rewind`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.dataflow.config import tell
from scribengin_tools.cli.dataflow.submit import WaitOption, follow, refuse
from scribengin_tools.cli.options import (
    ForceOption,
    NameArgument,
    RegistryOption,
    SetOption,
    agree,
    connected,
    overrides,
)
from scribengin_tools.rendering.text import console, left_of_chain, note, working

if TYPE_CHECKING:
    from scribengin.dataflow.config import DataflowConfig


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("scale")(scale)
    app.command("rebalance")(rebalance)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("restart")(restart)
    app.command("rewind")(rewind)


def scale(
    name: NameArgument,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", min=0, help="How many workers.", show_default=False)
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option("--tasks", "-t", min=1, help="How many tasks the streams are grouped into.", show_default=False),
    ] = None,
    force: ForceOption = False,
    registry: RegistryOption = None,
) -> None:
    """Change how many workers a dataflow has, or how many tasks.

    Only what changes is touched: a task that moves finishes its round and commits it, then moves.

    Another number of tasks is refused while a dataflow reads the output from Kafka, from files or with
    `retention_hold: false`: nobody would wait until it has read what is there.
    """
    from scribengin.errors import ConfigInvalid

    wanted = {key: value for key, value in (("workers", workers), ("tasks", tasks)) if value is not None}
    if not wanted:
        raise ConfigInvalid("say how many: --workers N, --tasks M, or both")
    _edit(name, registry, lambda _: wanted, force=force)


def rebalance(name: NameArgument, registry: RegistryOption = None) -> None:
    """Spread a dataflow's tasks by the records that each reads, moving as few as it takes.

    They stay so until workers come or go. `scribengin history` shows which ones moved.
    """
    _edit(name, registry, lambda config: {"rebalance": config.rebalance + 1})


def pause(
    name: NameArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it is paused, or at once.")] = True,
    registry: RegistryOption = None,
) -> None:
    """Pause a dataflow or a chain: every task finishes its round, commits it and waits. Workers stay.

    `resume` lets it go on. Ctrl-C stops waiting; the dataflow goes on pausing.
    """
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.operations.chain.lifecycle import ask_chain_to_pause, pause_chain
    from scribengin.operations.editing import refuse_unless_led
    from scribengin.operations.lifecycle import ended_badly, set_desired_state, wait_for_state
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        chain = chain_of(session, name)
        if chain is not None and not wait:
            ask_chain_to_pause(session, chain)
            print(f"chain '{name}' is asked to pause; `scribengin status {name}` shows how far it is")
            return
        if chain is not None:
            with working(f"pausing chain '{name}'", left=left_of_chain(name, "pause", "pausing")) as progress:
                pause_chain(session, chain, progress)
            print(f"chain '{name}' is paused")
            return
        view = view_of(session, name)
        if refuse_unless_led(view).state == "paused" and not set_desired_state(view, "paused"):
            print(f"dataflow '{name}' was paused already")
            return
        set_desired_state(view, "paused")
        if not wait:
            print(f"dataflow '{name}' is asked to pause; `scribengin status {name}` shows how far it is")
            return
        left = f"'{name}' goes on pausing; `scribengin status {name}` shows how far it is"
        with working(f"pausing '{name}'", left=left) as progress:
            progress(f"pausing '{name}'")
            until = ("paused", *FINAL_STATES)
            status = wait_for_state(view, lambda s: s.state in until, lambda _: None, asked="paused")
    if status.state != "paused":
        raise ended_badly(status)
    print(f"dataflow '{name}' is paused")


def resume(name: NameArgument, wait: WaitOption = False, registry: RegistryOption = None) -> None:
    """Let a paused dataflow, or a paused chain, go on where it was."""
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.operations.chain.lifecycle import resume_chain
    from scribengin.operations.editing import refuse_unless_led
    from scribengin.operations.lifecycle import set_desired_state
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        if chain := chain_of(session, name):
            paused = resume_chain(session, chain)
            line = f"chain '{name}' goes on ({', '.join(paused)})" if paused else f"chain '{name}' is not paused"
            print(line, flush=True)
            for member in chain.members if wait else ():
                follow(DataflowView(session, member.dataflow), wait=True)
            return
        view = view_of(session, name)
        refuse_unless_led(view)
        goes_on = set_desired_state(view, "running")
        print(f"dataflow '{name}' goes on" if goes_on else f"dataflow '{name}' is not paused", flush=True)
        if goes_on or wait:
            follow(view, wait=wait)


def restart(
    name: NameArgument,
    flow: Annotated[
        str | None,
        typer.Argument(
            metavar="FLOW",
            help="Its descriptor as it is now, or its chain's file. Default: the config as it is, with the code where "
            "it was submitted.",
            show_default=False,
        ),
    ] = None,
    settings: SetOption = None,
    check_first: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the transformation first; that takes Spark some seconds.")
    ] = True,
    wait: WaitOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: ForceOption = False,
    registry: RegistryOption = None,
) -> None:
    """Stop a dataflow and start it again from its committed positions, with the code as it is on disk now.

    What is wrong with the code or the config is found before anything is stopped: then the exit code is 2, and the
    dataflow goes on as it was. One that has ended is only started. What others edit meanwhile stays, unless this would
    change the same. Without FLOW, it asks before it takes code from a directory that you have not submitted.
    """
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.editing import refuse_unmeant
    from scribengin.operations.lifecycle import start_again
    from scribengin.operations.names import view_of
    from scribengin.operations.restart import (
        foreign_origin,
        next_version,
        put_in_force,
        refuse_overtaken,
        stop_for_restart,
    )
    from scribengin.operations.submit.check import check

    with connected(registry) as session:
        view = view_of(session, name)
        base = view.config_to_edit()
        config = next_version(view, base.value, flow, overrides(settings))
        foreign = foreign_origin(view, config, scribengin_home()) if flow is None and not yes else None
        if foreign is not None:
            question = f"the registry says that the code of '{name}' is in {foreign}, which you did not submit: run it"
            agree(f"{question}?")
        if check_first:
            with working("checking") as progress:
                _, errors = check(session, config, exists=True, saying=progress)
            refuse(errors)
        with console(stderr=True).status(f"stopping '{name}' ..."):
            refuse_overtaken(view, base, config)
            if not force:
                refuse_unmeant(view, base.value, config)
            stop_for_restart(view)
        edited = put_in_force(view, base, config, scribengin_home())
        if edited.meanwhile:
            note(f"edited meanwhile, and kept: {edited.meanwhile}")
        note(f"version {edited.version} of the config: {edited.plan.line}")
        start_again(view, scribengin_home())
        print(f"restarted dataflow '{name}'", flush=True)
        follow(view, wait=wait)


def rewind(
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, a time, how long ago as in 15m, a DLSN as in 1/0/0, or offset:N.",
            show_default=False,
        ),
    ],
    source: Annotated[
        str | None, typer.Option("--source", "-s", help="Only this source. Default: all.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    registry: RegistryOption = None,
) -> None:
    """Have a dataflow that is paused or has ended read its sources from another place.

    Its sinks keep what they have: what is read again is written again. All streams are moved, or none. What a dataflow
    with state has kept from record to record is forgotten.
    """
    from scribengin.operations.names import view_of
    from scribengin.operations.rewind import Rewind, place_text, record, refuse_while_it_runs
    from scribengin.operations.rewind import rewind as move
    from scribengin_tools.logs.positions import start_at_of
    from scribengin_tools.rendering.rewinding import question, shown

    at = start_at_of(to)
    with connected(registry) as session:
        view = view_of(session, name)
        refuse_while_it_runs(view)
        if not yes:
            planned = Rewind(view, at, source)
            console(stderr=True).print(shown(planned.streams))
            agree(question(name, at, resets_state=planned.resets_state))
        refuse_while_it_runs(view)
        applied = move(view, at, source)
        moved = applied.streams
        record(view, moved, at)
        print(f"dataflow '{name}' is rewound to {place_text(at)} ({many(len(moved), 'stream')})")
        console(stderr=True).print(shown(moved))
        if (left := applied.state_left) is not None:
            note(
                f"the state of before could not be removed, and stays in {left.directory}: {left.why}; "
                "`scribengin registry check --repair` removes it once it can"
            )
        how = "resume" if view.status().state == "paused" else "start"
        note(f"`scribengin {how} {name}` has it read on from there")


def _edit(name: str, registry: str | None, wanted: Any, *, force: bool = False) -> None:
    """Edit a dataflow that has a master to do it."""
    from scribengin.operations.editing import edit_config, refuse_unless_led
    from scribengin.operations.names import view_of

    def change(config: DataflowConfig) -> DataflowConfig:
        return config.model_copy(update=wanted(config))

    with connected(registry) as session:
        view = view_of(session, name)
        refuse_unless_led(view)
        tell(view, edit_config(view, change, force=force))
