"""`python -m scribengin_dev.soak`: as long as it is told to, nothing left behind, its table as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_dev.harness.directory import own_directory
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_dev.soak.chain import soak_place
from scribengin_dev.soak.run import Soak, ending_early

DEFAULT_SEED = 1
_S_PER_MIN = 60.0


def soak(
    minutes: Annotated[float, typer.Option(min=0.2, help="How long; a slow machine takes longer.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Which acts, and when: the same again with the same seed.")] = (
        DEFAULT_SEED
    ),
    per_s: Annotated[
        float, typer.Option("--records-per-s", min=1, help="Records a second into each of four logs.")
    ] = 100.0,
    directory: Annotated[Path | None, typer.Option("--dir", help="Where to make the soak's directory.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the directory, with logs, files and containers.")] = False,
) -> None:
    """A chain of dataflows under a steady load, while a schedule of kills, stalls, cuts, scalings and edits goes on.

    Ends by draining it and comparing what came out with what went in. Ctrl-C ends it early, with its table. Exit status
    1 if anything was lost or came twice, did not recover, or grows.
    """
    console = Console(stderr=True, highlight=False)
    with ending_cleanly("soak"), own_directory("soak", directory, keep, console) as base, soak_place(base) as place:
        begun = Soak(place, SYSTEM_CLOCK, seed, minutes * _S_PER_MIN, per_s, console.print)
        with ending_early(begun):
            measured = begun.run()
    print(measured.markdown())
    raise typer.Exit(1 if measured.problems else 0)


def main() -> None:
    """The program."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(soak)
    app()
