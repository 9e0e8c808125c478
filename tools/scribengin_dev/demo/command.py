"""`python -m scribengin_dev.demo`: a few minutes, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.view import DataflowView
from scribengin_dev.demo.display import Display
from scribengin_dev.demo.flights import load_flights
from scribengin_dev.demo.report import average_delays, measured_table, print_chart, standstill_table
from scribengin_dev.demo.run import DELAYS, Demo, DemoResult, Kill
from scribengin_dev.harness.directory import own_directory
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_dev.harness.installation import embedded_place


def demo(
    kill: Annotated[Kill, typer.Option(help="Whom to kill half way, with SIGKILL.")] = "worker",
    records: Annotated[int | None, typer.Option(min=1000, help="Only the first flights of the year.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to make the demo's directory."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the directory, with logs, files and containers.")] = False,
    launcher: Annotated[
        Literal["local", "yarn", "skein"],
        typer.Option(
            help="Where masters and workers run: here, or on a YARN and HDFS that the demo starts, as its application "
            "or as one of skein."
        ),
    ] = "local",
) -> None:
    """Real flights through two chained dataflows, on an embedded registry and log store; somebody is killed half way.

    Ends with what was measured by reading the outputs back. Exit status 1 if anything was lost, duplicated or wrong.
    """
    console = Console()
    with (
        ending_cleanly("demo"),
        own_directory("demo", directory, keep, console) as base,
        Display(console, SYSTEM_CLOCK) as display,
    ):
        measured = _run(base, display, kill, records, launcher)
    raise typer.Exit(0 if measured.exact else 1)


def _run(base: Path, display: Display, kill: Kill, records: int | None, launcher: str) -> DemoResult:
    display.say("loading the flights of 2013")
    flights = load_flights(records)
    display.say("starting an embedded ZooKeeper and a log namespace")
    with embedded_place(base, launcher=launcher, say=display.say) as place:
        display.say(f"ZooKeeper at {place.registry.hosts}, logs in {place.store}")
        measured = Demo(place, flights, kill, display).run()
        session_timeout_s = DataflowView(place.registry, DELAYS).config().value.session_timeout_s
    _print(display.console, measured, session_timeout_s)
    return measured


def _print(console: Console, measured: DemoResult, session_timeout_s: float) -> None:
    console.print()
    print_chart(console, average_delays(measured.named))
    console.print()
    if measured.standstills:
        console.print(standstill_table(measured.standstills, session_timeout_s))
    console.print(measured_table(measured.outputs))
    if measured.exact:
        console.print("Nothing lost, nothing twice, every record as it should be.", style="bold green")
    else:
        console.print("The outputs are NOT what they should be: see the table.", style="bold red")


def main() -> None:
    """The program."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(demo)
    app()
