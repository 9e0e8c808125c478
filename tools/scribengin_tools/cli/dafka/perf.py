"""`scribengin dafka perf`: how fast records come from a producer to consumers and stores, and from stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.dafka.options import ConfigOption, PubOption, SubOption, configured, towers
from scribengin_tools.cli.options import JsonOption
from scribengin_tools.rendering.text import console, print_json, table

if TYPE_CHECKING:
    from scribengin_tools.cli.dafka.speed import DafkaFigures

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
    rate: Annotated[
        int,
        typer.Option("--rate", min=1, max=100_000, metavar="N", help="At so many a second a record's way is timed."),
    ] = 1_000,
    stored: Annotated[
        bool, typer.Option("--stored", help="Measure the stores of a network that runs, instead.")
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    sub: SubOption = None,
    pub: PubOption = None,
) -> None:
    """Measure a producer and a consumer that find each other through a tower, all of them in this process.

    Live, and then a second consumer that fetches all of it from the producer's memory. No store is asked.

    With --stored, the stores at --config, --sub and --pub: publishing until they have acknowledged all, and reading it
    from them once the producer has gone. What is published stays there, in a topic of its own, which is printed.

    Either way, how long a record is on its way to a consumer: p50 and p99, over 3 seconds at --rate.
    """
    from scribengin.errors import ConfigInvalid

    if not stored and (config or sub or pub):
        raise ConfigInvalid("--config, --sub and --pub go with --stored: without it nothing of a network is used")
    parsed = configured(
        config,
        beacon=towers(sub, pub),
        producer={"terminate_unacked": True},
        consumer={"offset_reset": "earliest"},
    )
    from scribengin_tools.cli.dafka.speed import DafkaPace, measure, measure_stores

    pace = DafkaPace(rate)
    refuse_too_many(records + pace.records, size)
    figures = measure_stores(parsed, records, size, pace) if stored else measure(records, size, pace)
    if as_json:
        speeds = {name: one.to_json() for name, one in figures.speeds.items()}
        print_json(
            {"records": records, "size": size, "topic": figures.topic, **speeds, "latency": figures.latency.to_json()}
        )
    else:
        _show(figures, stored=stored)


def refuse_too_many(records: int, size: int) -> None:
    """Raises ConfigInvalid if so many records do not fit into memory: none of them leaves a producer's before its end,
    those at --rate among them."""
    from scribengin.errors import ConfigInvalid

    if records * size > _BYTES_MAX:
        raise ConfigInvalid(
            f"1 GB of memory does not hold {many(records, 'record')} of {size} bytes, those at --rate among them: ask "
            "for fewer, smaller ones, or a lower rate"
        )


def _show(figures: DafkaFigures, *, stored: bool) -> None:
    rows = [(name, f"{one.records_s:,.0f}", f"{one.megabytes_s:,.1f}") for name, one in figures.speeds.items()]
    console().print(table(("", ">RECORDS/S", ">MB/S"), rows))
    per_s, p50_ms, p99_ms = figures.latency
    print(f"on its way at {per_s:,}/s: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")
    if stored:
        print(f"topic {figures.topic}")
