"""`scribengin dafka perf`: how fast records come from a producer to a consumer on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.dafka.options import configured
from scribengin_tools.cli.options import JsonOption
from scribengin_tools.rendering.text import console, print_json, table

_BYTES_MAX = 1_000_000_000


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("perf")(perf)


def perf(
    records: Annotated[
        int, typer.Option("--records", min=1, max=1_000_000, metavar="N", help="How many records.")
    ] = 200_000,
    size: Annotated[
        int, typer.Option("--size", min=0, max=1_000_000, metavar="BYTES", help="How large each is.")
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """Measure a producer and a consumer that find each other through a tower, all of them in this process.

    Live, and then a second consumer that fetches all of it from the producer's memory. No store is asked.
    """
    from scribengin.errors import ConfigInvalid

    configured(None)
    if records * size > _BYTES_MAX:
        raise ConfigInvalid(f"1 GB of memory does not hold {many(records, 'record')} of {size} bytes: ask for fewer")
    from scribengin_tools.cli.dafka.speed import measure

    speeds = measure(records, size)
    if as_json:
        print_json({"records": records, "size": size, **{name: one.to_json() for name, one in speeds.items()}})
        return
    rows = [(name, f"{one.records_s:,.0f}", f"{one.megabytes_s:,.1f}") for name, one in speeds.items()]
    console().print(table(("", ">RECORDS/S", ">MB/S"), rows))
