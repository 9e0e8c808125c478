"""`scribengin verify`: whether every record came through, once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many, which
from scribengin_tools.cli.options import JsonOption, NameArgument, RegistryOption, connected
from scribengin_tools.rendering.text import console, note, print_json, table

if TYPE_CHECKING:
    from scribengin.operations.verify.tracking import Verdict

_WORK_FAILED = 1
_WITHIN_S = 60.0


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("verify")(verify)


def verify(
    name: NameArgument,
    count: Annotated[
        int | None,
        typer.Option(
            "--generate",
            min=1,
            metavar="N",
            help="First append N tracking records to each stream of its first sources (logs, topics).",
            show_default=False,
        ),
    ] = None,
    within_s: Annotated[
        float | None,
        typer.Option(
            "--within",
            min=0,
            metavar="S",
            help="Wait so many seconds for what is missing. Default: 0, or 60 with --generate.",
        ),
    ] = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Hold what came out of a dataflow or a chain against what went in, by its tracking records.

    Those are JSON with the keys generator, chunk and sequence, which the transformation must keep. Shows for each
    stream that they were written to how many are lost, duplicated and out of order; then the exit code is 1. What is
    still on its way counts as lost. What was committed to a sink of Dafka, and no store that answers has, is out of
    reach: it is lost unless a store that is down has it.
    """
    from scribengin.errors import ConfigInvalid
    from scribengin.operations.editing import refuse_unless_led
    from scribengin.operations.names import chain_of, view_of
    from scribengin.operations.verify.verify import ends_of, ends_of_dataflow, generate
    from scribengin.operations.verify.verify import verify as read_and_compare

    with connected(registry) as session:
        chain = chain_of(session, name)
        views = [view_of(session, f"{name}/{m.key}") for m in chain.members] if chain else [view_of(session, name)]
        ends = ends_of(session, chain) if chain else ends_of_dataflow(views[0].config_in_force().value)
        if count is not None:
            for view in views:
                refuse_unless_led(view)
            streams = generate(session, ends, count)
            note(f"written: {many(count, 'record')} to each of {many(streams, 'stream')}")
        within_s = within_s if within_s is not None else (_WITHIN_S if count is not None else 0.0)
        with console(stderr=True).status("reading ..."):
            found = read_and_compare(session, ends, within_s)
    if not (found.chunks or found.unreachable):
        raise ConfigInvalid(f"'{name}' has no tracking records: `scribengin verify {name} --generate N` writes some")
    _show(found, as_json=as_json)
    if not found.good:
        raise typer.Exit(_WORK_FAILED)


def _show(found: Verdict, *, as_json: bool) -> None:
    if as_json:
        print_json({"good": found.good, **found.model_dump(mode="json")})
        return
    columns = ["STREAM", "GENERATOR", ">SENT", ">ARRIVED", ">LOST", ">DUPLICATED", ">OUT OF ORDER", ">OUT OF REACH"]
    rows = [
        (c.stream, c.generator, c.sent, c.arrived, c.lost, c.duplicated, c.out_of_order, c.unreachable)
        for c in found.chunks
    ]
    shown = len(columns) if found.unreachable else len(columns) - 1
    console().print(table(columns[:shown], [row[:shown] for row in rows]))
    if left := found.unreachable:
        note(
            f"{many(left, 'record')} {which(left, 'was', 'were')} committed, and nobody who answers has "
            f"{which(left, 'it', 'them')}: start the stores that may, or {which(left, 'it is', 'they are')} lost"
        )
    if found.others:
        note(f"{found.others:,} other records were not looked at")
