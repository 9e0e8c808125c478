"""`scribengin config ...`: the config of a dataflow, which is how it is operated. Any ZooKeeper client that writes the
`config` node does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.cli.options import ForceOption, JsonOption, NameArgument, RegistryOption, SecretsOption, connected
from scribengin_tools.rendering.text import console, moment, note, print_json, print_line, table

if TYPE_CHECKING:
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.operations.editing import EditResult

app = typer.Typer(help="A dataflow's config: look at it, edit it, see who did, go back.", no_args_is_help=True)


@app.command()
def get(
    name: NameArgument,
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="Only this: dotted, as in round.records_max.", show_default=False),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", help="As it was. Default: the one in force.", show_default=False),
    ] = None,
    secrets: SecretsOption = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Show the config that is in force, as YAML. If a later edit is refused, it says so on stderr.

    What looks like a secret is shown as ******.
    """
    from scribengin.dataflow.registry.edit_log import config_of_version
    from scribengin.operations.editing import as_yaml, shown_json, value_at
    from scribengin.operations.names import view_of
    from scribengin_tools.rendering.dataflow import overview

    with connected(registry) as session:
        view = view_of(session, name)
        found = overview(view)
        config = view.config_in_force().value if version is None else config_of_version(view, version)
        refused = found.overview.config_error
    if key is not None:
        value = value_at(config, key, secrets=secrets)
        if as_json or isinstance(value, dict | list):
            print_json(value)
        else:
            print_line("" if value is None else str(value))
    elif as_json:
        print_json(shown_json(config, secrets=secrets))
    else:
        print(as_yaml(config, secrets=secrets), end="")
    if refused and version is None:
        note(f"the edit after it was refused: {refused}")


@app.command("set")
def set_values(
    name: NameArgument,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...", help="KEY is dotted, VALUE is YAML; without one, the default.", show_default=False
        ),
    ],
    force: ForceOption = False,
    registry: RegistryOption = None,
) -> None:
    """Change values of the config. All of them, or none.

    What would be refused is not written; another number of tasks is refused where `scale` refuses it. Without a master
    the edit waits for the next one.
    """
    from scribengin.operations.editing import edit_config, with_values
    from scribengin.operations.names import view_of
    from scribengin_tools.cli.options import overrides

    values = overrides(pairs, option="")
    with connected(registry) as session:
        view = view_of(session, name)
        tell(view, edit_config(view, lambda config: with_values(session, config, values), force=force))


@app.command()
def edit(name: NameArgument, force: ForceOption = False, registry: RegistryOption = None) -> None:
    """Edit the config in $VISUAL or $EDITOR (else vi).

    It is checked before it is written. If somebody else has edited it meanwhile, you are told what they did; their edit
    stays, and your text is kept in a file.
    """
    from scribengin.operations.names import view_of
    from scribengin_tools.cli.dataflow.editor import edit_text

    with connected(registry, screen=True) as session:  # the editor's
        view = view_of(session, name)
        tell(view, edit_text(view, force=force))


@app.command()
def history(name: NameArgument, as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """Show the versions of the config: who wrote them, what they changed, and what that did.

    Of an edit by another client than these commands the author is unknown. One that was overwritten before the master
    saw it is shown as written, if a command wrote it.
    """
    from scribengin.base.text.masking import masked
    from scribengin.dataflow.registry.edit_log import changes_of, edits
    from scribengin.operations.names import view_of

    unreadable: dict[str, str] = {}
    with connected(registry) as session:
        view = view_of(session, name)
        found, in_force = edits(view, unreadable), view.config_in_force().version
    for why in unreadable.values():
        note(f"left out: {why}")
    if as_json:
        print_json(masked([edit.model_dump(mode="json") for edit in found]))
        return
    rows = [
        (
            f"{edit.version}{' *' if edit.version == in_force else ''}",
            moment(edit.at_ms),
            edit.author or "unknown",
            edit.outcome,
            ", ".join(changes_of(edit, before)) or ("submitted" if edit.version == 0 else "-"),
            edit.error or "; ".join(edit.actions) or "-",
        )
        for before, edit in zip([None, *found], found, strict=False)
    ]
    console().print(table((">VERSION", "WHEN", "WHO", "", "CHANGED", "DID"), rows))
    note("* is in force")


@app.command()
def rollback(
    name: NameArgument,
    version: Annotated[
        int, typer.Argument(metavar="VERSION", help="As `config history` shows it.", show_default=False)
    ],
    force: ForceOption = False,
    registry: RegistryOption = None,
) -> None:
    """Make the config what it was at that version, as a new edit.

    Whether the dataflow runs, is paused or stops is left as it is.
    """
    from scribengin.operations.editing import edit_config, rolled_back
    from scribengin.operations.names import view_of

    with connected(registry) as session:
        view = view_of(session, name)
        view.status()
        tell(view, edit_config(view, rolled_back(view, version), force=force))


def tell(view: DataflowView, edited: EditResult) -> None:
    """Say what an edit changes, and what the master does about it. Raises ConfigInvalid if it refuses it."""
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.operations.editing import verdict
    from scribengin.operations.lifecycle import masters
    from scribengin_tools.cli.dataflow.submit import tell_secrets

    name = view.dataflow
    if edited.meanwhile:
        note(f"edited meanwhile, and kept: {edited.meanwhile}")
    if not edited.written:
        print(f"the config of '{name}' is like that already (version {edited.version})")
        return
    what = edited.plan.line if edited.plan.changes else "what is in force is written there again"
    print(f"version {edited.version} of the config of '{name}': {what}", flush=True)
    tell_secrets(view.config().value)
    state = view.status().state
    if state in FINAL_STATES:
        note(f"dataflow '{name}' is {state}: it counts from `scribengin start {name}` on")
        return
    seen = verdict(view, edited.version) if masters(view) else None
    if seen is None:
        note(f"no master has looked at it yet: see `scribengin config history {name}`")
    else:
        note(f"accepted: {'; '.join(seen.actions) or 'nothing has to be done'}")
