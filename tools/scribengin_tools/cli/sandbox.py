"""`scribengin sandbox`: a registry and a place for logs on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin_tools.cli.options import REGISTRY_VARIABLE

if TYPE_CHECKING:
    from scribengin_tools.sandbox import Sandbox


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("sandbox")(sandbox)


def sandbox(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where the sandbox keeps its data. Default: sandbox below $SCRIBENGIN_HOME, or ~/.scribengin.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="The registry's port. 0: the one it had last time, else 2181, else any that is free.",
        ),
    ] = 0,
) -> None:
    """Run a registry and a place for logs here, until Ctrl-C.

    The registry is a real ZooKeeper. Prints how other terminals connect: its address, and where its credentials are,
    which only you can read. The data stays: the next sandbox in the same directory goes on with it. At its end it also
    ends the dataflows that still run in it, as `scribengin kill` does.
    """
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin_tools.cli.options import ended_by_signals
    from scribengin_tools.sandbox import Sandbox

    place = directory or scribengin_home() / "sandbox"
    print(f"starting ZooKeeper in {place} ...", flush=True)
    with Sandbox(place, port=port) as running:
        ended = ended_by_signals()
        _introduce(running)
        failure = running.wait(ended)
        _say("stopping ...")
        for line in running.kill_dataflows(scribengin_home()):
            _say(line)
    if failure is not None:
        raise failure
    _say("the sandbox is down; its data is kept")


def _say(line: str) -> None:
    """Print a line, to whoever still listens: Ctrl-C also ends a `tee` behind us, and the cleaning up must go on."""
    with contextlib.suppress(BrokenPipeError):
        print(line, flush=True)


def _introduce(running: Sandbox) -> None:
    from scribengin_registry.opening import AUTH_VARIABLE

    print(
        f"\nThe registry is at {running.hosts}, logs are below {running.store} (namespace {DEFAULT_NAMESPACE}).\n"
        f"In another terminal:\n\n    export {REGISTRY_VARIABLE}={running.hosts}\n"
        f"    export {AUTH_VARIABLE}={shlex.quote(running.auth)}\n\n"
        "Then `scribengin log create NAME`, `scribengin submit FLOW`, `scribengin --help`. Ctrl-C here ends it all.",
        flush=True,
    )
