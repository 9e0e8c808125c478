"""`scribengin list`, `status` and `history`: what the dataflows of a registry are doing."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin_tools.cli.options import JsonOption, NameArgument, RegistryOption, connected
from scribengin_tools.rendering.text import (
    age,
    console,
    error_text,
    lag_text,
    moment,
    note,
    print_json,
    state_text,
    table,
)

if TYPE_CHECKING:
    from scribengin.operations.chain.registry import ChainDescriptor
    from scribengin_registry.contract import Registry
    from scribengin_tools.rendering.dataflow import ShownDataflow


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("list")(list_dataflows)
    app.command("status")(status)
    app.command("history")(history)


def list_dataflows(as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """List the dataflows of the registry, and of which chain each is a part."""
    from scribengin.base.clock import SYSTEM_CLOCK
    from scribengin.operations.chain.registry import memberships
    from scribengin_tools.rendering.dataflow import overviews

    now_ms = SYSTEM_CLOCK.now_ms()
    unreadable: dict[str, str] = {}
    chains: dict[str, str] = {}
    with connected(registry) as session:
        found = overviews(session, unreadable)
        of_chain = {name: f"{chain}/{member.key}" for name, (chain, member) in memberships(session, chains).items()}
    unreadable |= {f"chain {name}": why for name, why in chains.items()}
    if as_json:
        told = [overview.to_json() for overview in found]
        told += [{"dataflow": name, "state": "unreadable", "error": why} for name, why in unreadable.items()]
        print_json([{**one, "chain": of_chain.get(one["dataflow"])} for one in told])
        return
    if not found and not unreadable:
        note("no dataflows; `scribengin submit FLOW` starts one")
        return
    rows = [
        (
            s.dataflow,
            state_text(s.state),
            s.tasks_total,
            len(s.workers),
            lag_text(s),
            f"{age(s.submitted_ms, now_ms)} ago",
            *((of_chain.get(s.dataflow, "-"),) if of_chain else ()),
        )
        for s in (shown.overview for shown in found)
    ]
    rows += [(name, state_text("unreadable")) for name in unreadable]
    columns = ("DATAFLOW", "STATE", ">TASKS", ">WORKERS", ">LAG", "SUBMITTED", *(("CHAIN",) if of_chain else ()))
    console().print(table(columns, rows))
    for why in unreadable.values():
        console().print(error_text(why))


def status(
    name: NameArgument,
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
    registry: RegistryOption = None,
) -> None:
    """Show what a dataflow and each of its tasks, or what the dataflows of a chain are doing.

    Counts are since a worker took the task over. LAG is how many records wait in the task's sources: `?`
    before anybody has looked, `~` before a number that is more than 10 s old or leaves something out. Of one on YARN it
    shows the application as well, and of one that has ended what logs keep for it.

    The exit code is 1 when the dataflow, or one of the chain, has failed.
    """
    from scribengin.operations.delete import held_for
    from scribengin.operations.names import chain_of, view_of
    from scribengin_tools.rendering.dataflow import overview
    from scribengin_tools.rendering.yarn import application_facts

    with connected(registry) as session:
        if chain := chain_of(session, name):
            _chain_status(session, chain, as_json=as_json, watch=watch)
            return
        view = view_of(session, name)
        if watch:
            _watch(view, as_json=as_json)
            return
        found = replace(overview(view), application=application_facts(view), held=held_for(view))
    _print(found, as_json=as_json)
    _fail_with(found.overview.state)


def history(name: NameArgument, as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """Show a dataflow's last events: failures, recoveries, rescales."""
    from scribengin.operations.names import view_of

    with connected(registry) as session:
        events = view_of(session, name).history().events
    if as_json:
        print_json([event.model_dump(mode="json") for event in events])
    elif events:
        console().print(table(("WHEN", "EVENT", ""), [(moment(e.at_ms), e.kind, e.message) for e in events]))
    else:
        note(f"nothing has happened to dataflow '{name}' yet")


def _chain_status(session: Registry, chain: ChainDescriptor, *, as_json: bool, watch: bool) -> None:
    from scribengin.base.clock import SYSTEM_CLOCK
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.rendering.chain import chain_overview

    if watch:
        raise ConfigInvalid(f"--watch goes with one dataflow, as in {chain.name}/{chain.members[0].key}")
    found = chain_overview(session, chain, SYSTEM_CLOCK.now_ms())
    if as_json:
        print_json(found.to_json())
    else:
        console().print(found.renderable())
    _fail_with(*(one.state for _, one in found.overviews if one is not None))


def _fail_with(*states: str) -> None:
    """Scripts ask how a dataflow is by the exit code."""
    if "failed" in states:
        raise typer.Exit(_WORK_FAILED)


def _print(found: ShownDataflow, *, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
    else:
        console().print(found.renderable())


def _watch(view: Any, *, as_json: bool) -> None:
    """Show the status again at every change, in place on a terminal, else one after the other."""
    from rich.live import Live

    from scribengin.operations.lifecycle import Change
    from scribengin_tools.rendering.dataflow import overview
    from scribengin_tools.rendering.text import print_json_line
    from scribengin_tools.rendering.yarn import application_facts
    from scribengin_tools.terminal import check_read

    out = console()
    with Live(console=out, auto_refresh=False, transient=False) as live, Change(view.registry) as changed:
        while True:
            changed.clear()
            found = replace(overview(view, changed), application=application_facts(view))
            if as_json:
                print_json_line(found.to_json())
                sys.stdout.flush()  # a pipe would keep it until there is more
            elif out.is_terminal:
                live.update(found.renderable(), refresh=True)
            else:
                out.print(found.renderable())
            while not changed.wait(_WATCH_S) and (as_json or not out.is_terminal):
                check_read(sys.stdout)


_WORK_FAILED = 1
_WATCH_S = 2.0
"""Ages on the screen grow also when nothing happens."""
