"""`scribengin log bench`: how fast the log store is on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.text.counting import many
from scribengin_tools.cli.log.options import PANEL_INSPECTION
from scribengin_tools.cli.options import (
    JsonOption,
    NamespaceOption,
    RegistryOption,
    connected,
    opened_namespace,
)
from scribengin_tools.rendering.text import byte_count, console, print_json, table


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("bench", rich_help_panel=PANEL_INSPECTION)(bench)


def bench(
    records: Annotated[int, typer.Option("--records", min=1, metavar="N", help="How many records.")] = 200_000,
    size: Annotated[
        int, typer.Option("--size", min=0, max=1_000_000, metavar="BYTES", help="How large each payload is.")
    ] = 1024,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where to write. Default: where the logs of the namespace are.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Measure append and read rates, beside the disk's own.

    Of a log of its own; the disk writes and reads the same bytes.

    Durable before every acknowledgement; the log is deleted afterwards."""
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.logs.benchmark import measure, scratch_namespace

    if directory is not None and namespace != DEFAULT_NAMESPACE:
        raise ConfigInvalid("--dir writes outside of all namespaces: leave it out, or --namespace")
    with ExitStack() as stack:
        if directory is None:
            opened = stack.enter_context(opened_namespace(registry, namespace))
        else:
            opened = stack.enter_context(scratch_namespace(stack.enter_context(connected(registry)), directory))
        where = opened.descriptor.location
        measured = measure(opened, records, size)
    if as_json:
        print_json({"directory": where, **measured.to_json()})
        return
    out = console()
    out.print(
        f"{many(records, 'record')} of {size:,} B, {byte_count(measured.bytes)} in all, in {where}", soft_wrap=True
    )
    out.print()
    out.print(table(("", ">RECORDS/S", ">LOG", ">DISK", ">RATIO"), measured.rows()))
    out.print()
    out.print(
        "DISK: the same bytes in the same writes, each with its fsync; the same files\n"
        f"read from the page cache with their CRC-32C. One fsync takes {measured.fsync_p50_ms:.2f} ms (p50)."
    )
