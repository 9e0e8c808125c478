"""`scribengin dafka keys`: a key pair for a role."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scribengin_tools.cli.dafka.options import configured
from scribengin_tools.rendering.text import note


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("keys")(keys)


def keys(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it. Must not be there.", show_default=False)
    ],
) -> None:
    """Make a key pair for roles, in a file that you alone can read, and print its public key.

    A role that has it says so in its configuration (`curve.key`). Others allow its public key.
    """
    configured(None)
    from scribengin.dafka.curve import make_key_file

    print(make_key_file(file))
    note(f"the pair is in {file}, for you alone; what is printed is its public key")
