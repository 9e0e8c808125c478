"""`scribengin monitor`: how one or many dataflows are, on one screen or once for a script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.cli.options import JsonOption, RegistryOption, connected
from scribengin_tools.rendering.text import console, note, print_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.monitoring.overview import DataflowOverview


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("monitor")(monitor)


def monitor(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Dataflows, or chains; default: all.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as plain text, and end.")] = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Watch dataflows: state, workers, records a second, lag, last commit, rounds, failures.

    A dataflow that has something to do and commits nothing is stalled, whatever its processes say. Those of a chain
    stand below it.

    Keys: + and - scale the workers of the one under the cursor, p pauses it or lets it go on, q ends. l opens the
    log; after Tab, of the worker of a task.
    """
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.monitor.actions import MonitorActions

    if as_json and not once:
        raise ConfigInvalid("--json goes with --once: `scribengin monitor --once --json`")
    if not (once or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise ConfigInvalid("the monitor needs a terminal; `scribengin monitor --once` prints what it shows")
    with connected(registry, screen=not once) as session:
        operator = MonitorActions(session, tuple(names or ()))
        found = operator.look()  # so that a wrong name is called one before there is a screen
        if not once:
            from scribengin_tools.monitor.app import MonitorApp

            app = MonitorApp(operator)
            app.run()
            if app.return_code:
                raise typer.Exit(app.return_code)
            return
    if as_json:
        print_json([overview.model_dump(mode="json") for overview in found])
    elif not found:
        note("no dataflows; `scribengin submit FLOW` starts one")
    else:
        _print(found, operator.clock.now_ms(), details=bool(names))


def _print(found: Sequence[DataflowOverview], now_ms: int, *, details: bool) -> None:
    from scribengin_tools.monitor.cells import (
        FLOW_COLUMNS,
        TASK_COLUMNS,
        ChainRow,
        detail_lines,
        in_order,
        row_cells,
        task_cells,
    )

    out, ordered = console(), in_order(found)
    out.print(table(tuple(FLOW_COLUMNS), [row_cells(one, now_ms) for one in ordered]))
    for overview in [one for one in ordered if details and not isinstance(one, ChainRow)]:
        out.print()
        for line in detail_lines(overview):
            out.print(line)
        out.print(table(tuple(TASK_COLUMNS), [task_cells(task, now_ms) for task in overview.tasks]))
