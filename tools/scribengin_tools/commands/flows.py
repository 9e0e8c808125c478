"""`scribengin explain`, `submit` and `start`: dataflows on their way to running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.commands.options import (
    JsonOption,
    NameArgument,
    RegistryOption,
    SetOption,
    connected,
    overrides,
)
from scribengin_tools.render import console, note, print_json, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.dataflow.descriptors import DataflowStatus
    from scribengin.dataflow.view import DataflowView
    from scribengin.errors import ScribenginError

_BAD_INPUT = 2
FlowArgument = Annotated[
    str,
    typer.Argument(
        metavar="FLOW", help="A descriptor (YAML or JSON), or the directory of one of its name.", show_default=False
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Return when every task runs (exit code 1 if it fails instead).")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("explain")(explain)
    app.command("submit")(submit)
    app.command("start")(start)


def explain(
    flow: FlowArgument, settings: SetOption = None, as_json: JsonOption = False, registry: RegistryOption = None
) -> None:
    """Check a dataflow without running it.

    Shows its sources, streams, tasks and columns, and everything that is wrong with it: then the exit code is 2.
    Changes nothing.
    """
    from scribengin.dataflow.config import load_config

    config = load_config(flow, overrides(settings))
    with connected(registry) as session, console(stderr=True).status("checking; Spark takes some seconds ..."):
        from scribengin_tools.checking import check, shown

        found, errors = check(session, config)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        console().print(shown(found, config))
    _refuse(errors)
    note(f"no problems; `scribengin submit {flow}` starts it")


def submit(
    flow: FlowArgument, settings: SetOption = None, wait: WaitOption = False, registry: RegistryOption = None
) -> None:
    """Check a dataflow as `explain` does, and start it.

    What `explain` finds wrong is refused, with exit code 2; then nothing was created.
    """
    from scribengin.dataflow.config import load_config
    from scribengin.dataflow.view import DataflowView
    from scribengin.launcher.local import scribengin_home

    config = load_config(flow, overrides(settings))
    with connected(registry) as session:
        with console(stderr=True).status("checking; Spark takes some seconds ..."):
            from scribengin.master.submit import submit as start_dataflow
            from scribengin_tools.checking import check

            found, errors = check(session, config)
        _refuse(errors)
        start_dataflow(session, config, scribengin_home())
        tasks = f"{len(found.tasks)} {'task' if len(found.tasks) == 1 else 'tasks'}"
        print(f"submitted dataflow '{config.name}' ({tasks})", flush=True)
        _follow(DataflowView(session, config.name), wait=wait)


def start(name: NameArgument, wait: WaitOption = False, registry: RegistryOption = None) -> None:
    """Start a dataflow again that was stopped, was killed or has failed. It goes on where it was."""
    from scribengin.dataflow.view import DataflowView
    from scribengin.launcher.local import scribengin_home
    from scribengin_tools.starting import start_again

    with connected(registry) as session:
        view = DataflowView(session, name)
        start_again(view, scribengin_home())
        print(f"started dataflow '{name}'", flush=True)
        _follow(view, wait=wait)


def _refuse(errors: Sequence[ScribenginError]) -> None:
    """End with all that is wrong, if anything is."""
    for error in errors:
        report(error)
    if errors:
        raise typer.Exit(_BAD_INPUT)


def _follow(view: DataflowView, *, wait: bool) -> None:
    from scribengin.dataflow.descriptors import FINAL_STATES
    from scribengin_tools.ending import ended_badly, wait_for_state
    from scribengin_tools.starting import is_running

    name = view.dataflow
    if not wait:
        note(f"`scribengin status {name}` shows what becomes of it")
        return
    with console(stderr=True).status(f"waiting until '{name}' runs ...") as progress:
        status = wait_for_state(
            view,
            lambda s: is_running(s) or s.state in FINAL_STATES,
            lambda s: progress.update(f"waiting until '{name}' runs: {_progress(s)}"),
        )
    if status.state in ("failed", "killed"):
        raise ended_badly(status)
    print(f"dataflow '{name}' is {status.state}")


def _progress(status: DataflowStatus) -> str:
    workers = f"{len(status.workers)} workers, " if status.workers else ""
    return f"{status.state}, {workers}{len(status.tasks_unassigned)} tasks without one"
