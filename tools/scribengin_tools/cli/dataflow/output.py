"""`scribengin logs`: what the processes of a dataflow wrote to their output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.cli.options import JsonOption, NameArgument, RegistryOption, connected
from scribengin_tools.rendering.text import note, print_json

if TYPE_CHECKING:
    from scribengin.dataflow.config import DataflowConfig
    from scribengin.dataflow.registry.view import DataflowView


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

    Of those on this machine since it was submitted, or of its last application on YARN; also when they have ended.

    --json lists the processes: where their output is, and how they ended.
    """
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.names import view_of
    from scribengin_tools.output.local import container_facts, follow_output, outputs_of, print_output

    if as_json and follow:
        raise ConfigInvalid("--json lists the processes, --follow prints what they write: say one of the two")
    with connected(registry) as session:
        view = view_of(session, name)
        since_ms = view.status().submitted_ms
        config = view.config_in_force().value
        if config.launcher != "local":
            _of_yarn(view, config, worker, follow=follow, lines=lines, as_json=as_json)
            return
        hosts, name = session.hosts, view.dataflow
    all_of_it = outputs_of(hosts, name, since_ms)
    found = [output for output in all_of_it if worker is None or output.container.name == worker]
    if worker is not None and not found:
        known = ", ".join(dict.fromkeys(output.container.name for output in all_of_it)) or "none"
        raise ConfigInvalid(f"dataflow '{name}' has had no '{worker}' on this machine (there are: {known})")
    if as_json:
        print_json([container_facts(output) for output in found])
    elif not found:
        note(f"nothing of dataflow '{name}' has run on this machine below its home directory (SCRIBENGIN_HOME)")
    elif follow:
        follow_output(hosts, name, since_ms, worker, lines)
    else:
        print_output(found, lines)


def _of_yarn(
    view: DataflowView, config: DataflowConfig, worker: str | None, *, follow: bool, lines: int, as_json: bool
) -> None:
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.output.yarn import ContainerOutput, application_output, follow_containers, print_containers

    def find() -> list[ContainerOutput]:
        return [c for c in application_output(view, config).containers if worker in (None, c.name, c.id)]

    found, all_of_it = find(), application_output(view, config) if worker is not None else None
    if all_of_it is not None and not found:
        known = ", ".join(c.name for c in all_of_it.containers) or "none"
        raise ConfigInvalid(f"the last application of '{view.dataflow}' has had no '{worker}' (there are: {known})")
    if as_json:
        print_json([container.facts() for container in found])
    elif follow:
        follow_containers(find, lines)
    elif found:
        print_containers(found, lines)
    else:
        note(
            f"YARN has no logs of dataflow '{view.dataflow}': it collects them some seconds after an application's "
            "end, if the cluster is told to (yarn.log-aggregation-enable)"
        )
