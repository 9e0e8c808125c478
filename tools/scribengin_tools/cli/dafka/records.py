"""`scribengin dafka write` and `read`: lines to a topic, and from topics."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.dafka.options import ConfigOption, PubOption, SubOption, configured, refuse_misnamed, towers
from scribengin_tools.cli.options import JsonOption
from scribengin_tools.rendering.text import note, print_json_line

if TYPE_CHECKING:
    from scribengin.dafka import DafkaConsumer, DafkaProducer, DafkaRecord
    from scribengin.dafka.config import DafkaProducerConfig

app = typer.Typer(help="Producers, consumers, stores and towers of Dafka, without a broker.", no_args_is_help=True)
_RECORDS_AT_ONCE = 1000
_LOOK_S = 1.0
"""Who waits for records looks so often whether anybody reads them."""


@app.command("write")
def write(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, as in flights.", show_default=False)],
    min_acks: Annotated[
        int | None,
        typer.Option(
            "--min-acks", min=1, metavar="N", help="Wait until N stores have all. Default: 1.", show_default=False
        ),
    ] = None,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait-s",
            min=0,
            help="How long to wait for them while they take nothing. Default: until they do.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    sub: SubOption = None,
    pub: PubOption = None,
) -> None:
    """Publish the lines of stdin, a record each, as one producer.

    Ends when stores have acknowledged all of them. What is not acknowledged is in its memory only.
    """
    refuse_misnamed([topic])
    parsed = configured(config, beacon=towers(sub, pub), producer={"min_acks": min_acks})
    from scribengin.dafka import DafkaProducer
    from scribengin.errors import RecordsUnacknowledged

    if sys.stdin.isatty():
        note("write lines, and end with Ctrl-D")
    said = parsed.producer
    producer = DafkaProducer(topic, parsed)
    stores = _Stores(producer, said.min_acks, wait_s, parsed.beacon.timeout / 1000)
    try:
        published = _publish_lines(producer, said, stores)
        if not said.terminate_unacked:
            stores.await_room(said.high_watermark)
        producer.close()
    except BaseException:
        if left := producer.unacknowledged:
            note(f"{many(left, 'record')} of {topic} not acknowledged: they may be lost")
        with suppress(RecordsUnacknowledged):
            producer.close(0)
        raise
    note(f"published {many(published, 'record')} to {topic}, as producer {producer.partition.address}")


class _Stores:
    """What is waited for. Says so once, when they have taken nothing for `silent_s`."""

    def __init__(self, producer: DafkaProducer, min_acks: int, wait_s: float | None, silent_s: float) -> None:
        self._producer = producer
        self._min_acks = min_acks
        self._wait_s = wait_s
        self._silent_s = silent_s
        self._is_told = False

    def await_room(self, records: int) -> None:
        """Until so many more may be published: all that may be kept, once they have all. Raises RecordsUnacknowledged
        when they have taken nothing for `wait_s`."""
        left, silent_s = self._producer.unacknowledged, 0.0
        while not self._producer.wait_for_room(records, step_s := self._next_wait_s(silent_s)):
            before, left = left, self._producer.unacknowledged
            silent_s = silent_s + step_s if left == before else 0.0
            if self._wait_s is not None and silent_s >= self._wait_s:
                return self._producer.flush(0)
            if silent_s >= self._silent_s and not self._is_told:
                self._is_told = True
                self._tell(left)
        return None

    def _next_wait_s(self, silent_s: float) -> float:
        return self._silent_s if self._wait_s is None else min(self._silent_s, self._wait_s - silent_s)

    def _tell(self, left: int) -> None:
        wanted = self._min_acks
        stores = "does `scribengin dafka store` run, and does it say why"
        if wanted > 1:
            stores = f"do {wanted} different stores run, as min_acks wants, and do they say why"
        note(f"{many(left, 'record')} not acknowledged so far; it goes on trying: {stores}?")


def _publish_lines(producer: DafkaProducer, said: DafkaProducerConfig, stores: _Stores) -> int:
    """How many were published: each time what could be read at once, as far as it may be kept."""
    from scribengin_tools.logs.lines import batches_of_stream

    published, records_max = 0, said.high_watermark
    for batch in batches_of_stream(sys.stdin.buffer):
        contents = batch.column("payload").to_pylist()
        for first in range(0, len(contents), records_max):
            together = contents[first : first + records_max]
            if said.when_full == "wait":
                stores.await_room(len(together))
            producer.publish_many(together)
        published += len(contents)
    return published


@app.command("read")
def read(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="The topics, as in flights.", show_default=False)
    ],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest, latest, a time as in 2026-01-31T12:00, or how long ago as in 15m. Default: latest.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="PRODUCER=SEQUENCE",
            help="Where to begin in what this producer has published. Repeatable.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=1, metavar="N", help="End after N records.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    sub: SubOption = None,
    pub: PubOption = None,
) -> None:
    """Print records as they come, a line each.

    Until Ctrl-C, or N records. Each producer's come in order, without a gap. --json prints a line of JSON each, which
    says its producer and its sequence.
    """
    refuse_misnamed(topics)
    since_ms = _since(start)
    edge = start if since_ms is None else None
    parsed = configured(config, beacon=towers(sub, pub), consumer={"offset_reset": edge})
    from scribengin.dafka import DafkaConsumer, DafkaPartition

    positions = {
        DafkaPartition(topic, producer): sequence for topic in topics for producer, sequence in _places(at).items()
    }
    with DafkaConsumer(topics, parsed, positions=positions, since_ms=since_ms) as consumer:
        if not _print_next(consumer, count, as_json=as_json):
            raise typer.Exit(1)


def _print_next(consumer: DafkaConsumer, count: int | None, *, as_json: bool) -> bool:
    """So many records, or for ever. Whether it could begin with each producer: where nobody can tell of one, it says
    so, and goes on with all others."""
    from scribengin.errors import TimeUnknown
    from scribengin_tools.terminal import check_read

    left, all_began = count, True
    while left != 0:
        try:
            records = consumer.read(_RECORDS_AT_ONCE if left is None else min(left, _RECORDS_AT_ONCE), _LOOK_S)
        except TimeUnknown as unknown:
            all_began = False
            note(f"{unknown}; it goes on with all others")
            continue
        if not records:
            check_read(sys.stdout)
            continue
        _print(records, as_json=as_json)
        left = None if left is None else left - len(records)
    return all_began


def _since(start: str | None) -> int | None:
    """The time that is said, in ms since the epoch. None: it is an edge, or nothing. Raises ConfigInvalid."""
    if start in (None, "earliest", "latest"):
        return None
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.logs.positions import time_ms_of

    since_ms = time_ms_of(start.strip())
    if since_ms is None or since_ms < 0:
        raise ConfigInvalid(
            f"--from {start}: expected earliest, latest, a time as in 2026-01-31T12:00, or how long ago as in 30s, "
            "15m, 2h, 1d"
        )
    return since_ms


def _places(at: list[str] | None) -> dict[str, int]:
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.cli.options import overrides

    found = {}
    for producer, sequence in overrides(at, "--at ").items():
        if not (sequence.isascii() and sequence.isdecimal() and int(sequence) < 1 << 63):
            raise ConfigInvalid(f"--at {producer}={sequence}: a sequence is a whole number from 0 on")
        found[producer] = int(sequence)
    return found


def _print(records: list[DafkaRecord], *, as_json: bool) -> None:
    from scribengin_tools.logs.lines import bytes_json, print_payloads

    if not as_json:
        print_payloads(record.content for record in records)
        return
    for (topic, producer), sequence, content in records:
        said = {"topic": topic, "producer": producer, "sequence": sequence}
        print_json_line(said | bytes_json("content", content))
    sys.stdout.flush()
