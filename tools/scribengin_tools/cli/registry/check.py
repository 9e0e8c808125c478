"""`scribengin registry check`: what belongs to nobody."""

from __future__ import annotations

from typing import Annotated

import typer

from scribengin_tools.cli.options import JsonOption, RegistryOption, connected
from scribengin_tools.rendering.text import note, print_json, print_line


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("check")(check)


def check(
    repair: Annotated[bool, typer.Option("--repair", help="Remove it, but for what people have to decide.")] = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Find what belongs to nobody: in the registry, in the log stores, and in the home of this machine.

    A crash may leave positions, claims and holds of dataflows that are not there, and containers of deleted ones.
    Or directories that no log names, and drafts of indexes. Or commit logs of Spark jobs that have ended, and staged
    files of file sinks: those that no commit names, and those in a directory that a config names and nobody claims.

    What is younger than an hour may be in the making, and is left alone. What may hold records, or is the only word
    about some, is only told: with what to do.

    Exit code 1 if something is left.
    """
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.registry.leftovers import leftovers

    left, told = 0, []
    with connected(registry) as session:
        for found in leftovers(session, scribengin_home()):
            removed = repair and found.remove is not None
            if removed and found.remove is not None:
                found.remove()
            left += not removed
            told.append({"kind": found.kind, "what": found.what, "removed": removed, "next_step": found.next_step})
            if not as_json:
                print_line(f"removed: {found.line}" if removed else found.line, flush=True)
    if as_json:
        print_json(told)
    elif not told:
        note("there is nothing that belongs to nobody")
    elif left and not repair:
        note("`scribengin registry check --repair` removes it, but for what says what to do")
    if left:
        raise typer.Exit(1)
