"""`python -m scribengin_dev.demo`: a few minutes, nothing left behind."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ConfigInvalid
from scribengin_dev.demo.display import Display
from scribengin_dev.demo.flights import load_flights
from scribengin_dev.demo.report import measured_table, print_chart, standstill_table
from scribengin_dev.demo.run import Demo
from scribengin_dev.demo.state_run import StateDemo
from scribengin_dev.demo.steps import DemoResult, Kill
from scribengin_dev.harness.directory import own_directory
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_dev.harness.installation import Installation, embedded_place
from scribengin_dev.harness.machine_place import machine_place


def demo(
    kill: Annotated[
        Kill | None,
        typer.Option(
            help="Whom to kill half way, with SIGKILL. Default: a worker, or a machine where there are some.",
            show_default=False,
        ),
    ] = None,
    records: Annotated[int | None, typer.Option(min=1000, help="Only the first flights of the year.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to make the demo's directory."),
    ] = None,
    state: Annotated[
        bool,
        typer.Option(
            "--state",
            help="Streaming aggregations and joins instead: the chain of dataflows/flights.yaml, with the weather.",
        ),
    ] = False,
    source: Annotated[
        Literal["log", "dafka"],
        typer.Option(
            help="Where flights come from: logs, or producers of Dafka, of which one is killed, and the store."
        ),
    ] = "log",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the directory, with logs, files and containers.")] = False,
    launcher: Annotated[
        Literal["local", "yarn", "skein"],
        typer.Option(
            help="Where masters and workers run: here, or on a YARN and HDFS that the demo starts, as its application "
            "or as one of skein."
        ),
    ] = "local",
    machines: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="With `--launcher yarn`: so many machines, which are namespaces of this host with an address and a "
            "folder each, and one more that leads them. Root only.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Literal["hdfs", "bk"],
        typer.Option(help="Where logs are kept with `--machines`: on HDFS, or on BookKeeper."),
    ] = "hdfs",
) -> None:
    """Real flights through chained dataflows, on an embedded registry and log store; somebody is killed half way.

    Ends with what was measured by reading the outputs back. Exit status 1 if anything was lost, duplicated or wrong.
    """
    console = Console()
    options = DemoOptions(
        kill or ("machine" if machines else "worker"), records, launcher, machines, store, state, source
    )
    with (
        ending_cleanly("demo"),
        own_directory("demo", directory, keep, console) as base,
        Display(console, SYSTEM_CLOCK) as display,
    ):
        measured = _run(base, display, options)
    raise typer.Exit(0 if measured.exact else 1)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says."""

    kill: Kill
    records: int | None
    launcher: str
    machines: int | None
    store: str
    state: bool
    source: str

    def check(self) -> None:
        """Raises ConfigInvalid."""
        if self.machines is not None and self.launcher != "yarn":
            raise ConfigInvalid("--machines goes with --launcher yarn: nothing else starts processes on others")
        if self.machines is None and self.kill == "machine":
            raise ConfigInvalid("--kill machine goes with --machines: there is only this one")
        if self.state and self.launcher != "local":
            raise ConfigInvalid("--state goes with --launcher local: its checkpoints are in the demo's directory")
        if self.source == "dafka" and self.launcher != "local":
            raise ConfigInvalid("--source dafka goes with --launcher local: its producers are on this machine")
        if self.source == "dafka" and self.state:
            raise ConfigInvalid("--source dafka and --state: choose one")

    @property
    def steps(self) -> type[Demo] | type[StateDemo]:
        """What it does."""
        if self.source == "dafka":
            from scribengin_dev.demo.dafka_run import DafkaDemo  # what it needs is not installed for the other demos

            return DafkaDemo
        return StateDemo if self.state else Demo


def _run(base: Path, display: Display, options: DemoOptions) -> DemoResult:
    options.check()
    display.say("loading the flights of 2013")
    flights = load_flights(options.records)
    with _place(base, display, options) as place:
        display.say(f"ZooKeeper at {place.registry.hosts}, logs in {place.store}")
        measured = options.steps(place, flights, options.kill, display).run()
    _print(display.console, measured)
    return measured


def _place(base: Path, display: Display, options: DemoOptions) -> AbstractContextManager[Installation]:
    if options.machines is not None:
        return machine_place(
            base, machines=options.machines, store=options.store, launcher=options.launcher, say=display.say
        )
    display.say("starting an embedded ZooKeeper and a log namespace")
    return embedded_place(base, launcher=options.launcher, say=display.say)


def _print(console: Console, measured: DemoResult) -> None:
    console.print()
    print_chart(console, measured.averages)
    console.print()
    if measured.standstills:
        console.print(standstill_table(measured.standstills, measured.session_timeout_s))
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
