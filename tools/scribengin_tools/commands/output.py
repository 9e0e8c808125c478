"""`scribengin logs`: what the processes of a dataflow wrote to their output."""

from __future__ import annotations

from typing import Annotated

import typer

from scribengin_tools.commands.options import JsonOption, NameArgument, RegistryOption, connected
from scribengin_tools.render import note, print_json


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("logs")(logs)


def logs(
    name: NameArgument,
    worker: Annotated[
        str | None, typer.Option("--worker", "-w", help="Only of this worker or master.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines of each.")] = 50,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Show the output of a dataflow's masters and workers.

    Of those on this machine, also when they have ended.

    --json lists the processes: where their output is, and how they ended.
    """
    from scribengin.dataflow.view import DataflowView
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.process_output import container_facts, follow_output, outputs_of, print_output

    with connected(registry) as session:
        DataflowView(session, name).status()  # so that a wrong name is called one
        hosts = session.hosts
    found = [output for output in outputs_of(hosts, name) if worker is None or output.container.name == worker]
    if worker is not None and not found:
        known = ", ".join(dict.fromkeys(output.container.name for output in outputs_of(hosts, name))) or "none"
        raise ConfigInvalid(f"dataflow '{name}' has had no '{worker}' on this machine (there are: {known})")
    if as_json:
        print_json([container_facts(output) for output in found])
    elif not found:
        note(f"nothing of dataflow '{name}' has run on this machine below its home directory (SCRIBENGIN_HOME)")
    elif follow:
        follow_output(hosts, name, worker, lines)
    else:
        print_output(found, lines)
