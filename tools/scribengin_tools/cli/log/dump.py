"""`scribengin log dump`: records to a file or another program."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.text.counting import many
from scribengin_tools.cli.log.options import (
    PANEL_RECORDS,
    ChannelsOption,
    FromOption,
    LogArgument,
    RecordsOption,
    ToPlaceOption,
)
from scribengin_tools.cli.options import NamespaceOption, RegistryOption, opened_namespace
from scribengin_tools.rendering.text import note


class Format(StrEnum):
    """How records are written."""

    JSONL = "jsonl"
    TEXT = "text"
    HEX = "hex"
    ARROW = "arrow"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("dump", rich_help_panel=PANEL_RECORDS)(dump)


def dump(
    log: LogArgument,
    start: FromOption = "earliest",
    end: ToPlaceOption = None,
    txid_from: Annotated[
        int | None,
        typer.Option("--txid-from", metavar="N", help="Only transaction ids from N on.", show_default=False),
    ] = None,
    txid_to: Annotated[
        int | None,
        typer.Option("--txid-to", metavar="N", help="Only transaction ids up to N, N too.", show_default=False),
    ] = None,
    channels: ChannelsOption = None,
    count: RecordsOption = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="jsonl: all about each record, a line of JSON each. text: payloads, a line each. hex: bytes and text, "
            "to look at. arrow: an Arrow IPC stream.",
        ),
    ] = Format.JSONL,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A file to write. Default: stdout.", show_default=False),
    ] = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Write out the records that a log holds now, or a part."""
    from scribengin_tools.logs.dump import LogPart, part_of, write_records
    from scribengin_tools.logs.positions import checked_number, place_of

    for option, txid in (("--txid-from", txid_from), ("--txid-to", txid_to)):
        if txid is not None:
            checked_number(txid, f"{option} {txid}")
    part = LogPart(start, None if end is None else place_of(end, "--to"), txid_from, txid_to, channels or (), count)
    with opened_namespace(registry, namespace) as opened:
        written = write_records(part_of(opened, log, part), form.value, output)
    if output is not None:
        note(f"wrote {many(written, 'record')} of {log} to {output}")
