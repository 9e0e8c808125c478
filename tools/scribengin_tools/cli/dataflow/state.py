"""`scribengin state`: what a dataflow keeps from record to record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.cli.options import JsonOption, NameArgument, RegistryOption, connected, overrides
from scribengin_tools.rendering.text import console, note, print_json, print_json_line, table

if TYPE_CHECKING:
    from scribengin.operations.state import TaskState

_ROWS_MAX = 20
_READING = "reading; Spark takes some seconds ..."


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("state")(state)


def state(
    name: NameArgument,
    task: Annotated[str | None, typer.Option(help="Only of this task.", show_default=False)] = None,
    operator: Annotated[
        str | None,
        typer.Option(help="Show rows of this operator, by the name that `explain` gives it.", show_default=False),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Which of its stores, where it has several.", show_default=False)
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="COLUMN=VALUE",
            help="Only rows with this in their key, as in `--key carrier=AA`. May be given several times.",
            show_default=False,
        ),
    ] = None,
    rows_max: Annotated[
        int | None,
        typer.Option("-n", min=1, help=f"At most so many rows of each task. Default: {_ROWS_MAX}.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """List the stores in which a dataflow keeps state, or show what is kept for a key.

    It is read from the checkpoints, as of the last batch that is done, while the dataflow runs or not: on a machine
    that sees them. Spark takes some seconds.
    """
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.names import view_of
    from scribengin.operations.state import state_of

    if operator is None and (store is not None or key or rows_max is not None):
        raise ConfigInvalid("--store, --key and -n choose among the rows of one operator: name it with --operator")
    wanted = overrides(key, "--key ")
    with connected(registry) as session:
        tasks = state_of(view_of(session, name), task)
    if not tasks:
        if as_json and operator is None:  # of rows there is a line each, and none
            print_json([])
        note(f"'{name}' has no state yet: none of its batches is done")
        return
    if operator is None:
        _print_stores(name, tasks, as_json=as_json)
    else:
        _print_rows(tasks, operator, store, wanted, rows_max or _ROWS_MAX, as_json=as_json)


def _print_stores(name: str, tasks: Sequence[TaskState], *, as_json: bool) -> None:
    with console(stderr=True).status(_READING):
        from scribengin_tools.rendering.stored_state import stored_state

        found = stored_state(tasks)
    if as_json:
        print_json(
            [
                {"task": task, "operator": s.operator, "store": s.name, "partitions": s.partitions, "batch": s.batch}
                for task, s in found
            ]
        )
        return
    if not found:
        note(f"'{name}' keeps nothing yet: no batch is done, or none of its operators keeps state")
        return
    rows = [(task, s.operator, s.name, s.partitions, s.batch) for task, s in found]
    console().print(table(("TASK", "OPERATOR", "STORE", ">PARTITIONS", ">BATCH"), rows))


def _print_rows(
    tasks: Sequence[TaskState], operator: str, store: str | None, key: dict[str, str], rows_max: int, *, as_json: bool
) -> None:
    with console(stderr=True).status(_READING):
        from scribengin_tools.rendering.stored_state import stored_rows

        rows = stored_rows(tasks, operator, store, key, rows_max)
    if not as_json:
        console().print(table(("TASK", "KEY", "VALUE"), [(task, row.key, row.value) for task, row in rows]))
        return
    for task, row in rows:
        print_json_line({"task": task, "key": json.loads(row.key), "value": json.loads(row.value)})
