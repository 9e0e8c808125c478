"""`scribengin list`, `status` and `history`: what the dataflows of a registry are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin_tools.commands.options import JsonOption, NameArgument, RegistryOption, connected
from scribengin_tools.render import age, console, moment, note, print_json, state_text, table

if TYPE_CHECKING:
    from scribengin_tools.overview import Overview


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("list")(list_dataflows)
    app.command("status")(status)
    app.command("history")(history)


def list_dataflows(as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """List the dataflows of the registry."""
    from scribengin.clock import SYSTEM_CLOCK
    from scribengin_tools.overview import all_statuses

    with connected(registry) as session:
        found = all_statuses(session)
    if as_json:
        print_json([status.model_dump(mode="json") for status in found])
        return
    if not found:
        note("no dataflows; `scribengin submit FLOW` starts one")
        return
    now_ms = SYSTEM_CLOCK.now_ms()
    rows = [
        (
            s.dataflow,
            state_text(s.state),
            s.tasks_total,
            len(s.workers),
            sum(task.lag_records for task in s.tasks),
            f"{age(s.submitted_ms, now_ms)} ago",
        )
        for s in found
    ]
    console().print(table(("DATAFLOW", "STATE", ">TASKS", ">WORKERS", ">LAG", "SUBMITTED"), rows))


def status(
    name: NameArgument,
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
    registry: RegistryOption = None,
) -> None:
    """Show what a dataflow and each of its tasks are doing.

    Counts are since a worker took the task over. LAG is how many records wait in the task's sources.
    """
    from scribengin.dataflow.view import DataflowView
    from scribengin_tools.overview import overview

    with connected(registry) as session:
        view = DataflowView(session, name)
        if watch:
            _watch(view, as_json=as_json)
            return
        found = overview(view)
    _print(found, as_json=as_json)


def history(name: NameArgument, as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """Show a dataflow's last events: failures, recoveries, rescales."""
    from scribengin.dataflow.view import DataflowView

    with connected(registry) as session:
        events = DataflowView(session, name).history().events
    if as_json:
        print_json([event.model_dump(mode="json") for event in events])
    elif events:
        console().print(table(("WHEN", "EVENT", ""), [(moment(e.at_ms), e.kind, e.message) for e in events]))
    else:
        note(f"nothing has happened to dataflow '{name}' yet")


def _print(found: Overview, *, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
    else:
        console().print(found.renderable())


def _watch(view: Any, *, as_json: bool) -> None:
    """Show the status again at every change, in place on a terminal, else one after the other."""
    from rich.live import Live

    from scribengin_tools.overview import overview
    from scribengin_tools.render import print_json_line
    from scribengin_tools.watching import Change

    out = console()
    with Live(console=out, auto_refresh=False, transient=False) as live:
        while True:
            changed = Change()
            found = overview(view, changed)
            if as_json:
                print_json_line(found.to_json())
            elif out.is_terminal:
                live.update(found.renderable(), refresh=True)
            else:
                out.print(found.renderable())
            changed.wait(_WATCH_S if out.is_terminal and not as_json else None)


_WATCH_S = 2.0
"""Ages on the screen grow also when nothing happens."""
