"""Kafka topics as a source: the places that a dataflow can be rewound to. On a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import StartAt
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.errors import ConfigInvalid
from scribengin_dev.servers.kafka import KafkaServer
from tests.contract.connectors.kafka_ranges import ALL, payloads, reader
from tests.servers.kafka_side import KafkaSide

TOPIC = "rewound"


@pytest.fixture(scope="module")
def side(kafka: KafkaServer) -> Iterator[KafkaSide]:
    """A topic of six records, a millisecond apart."""
    side = KafkaSide(kafka.bootstrap)
    side.create(TOPIC, retention_ms="-1")
    for n in range(6):
        side.send_record(TOPIC, b"%d" % n, timestamp_ms=1_700_000_000_000 + n)
    yield side
    side.close()


@pytest.fixture
def source(kafka: KafkaServer, side: KafkaSide) -> Iterator[KafkaSource]:
    config = KafkaSourceConfig.parse({"kind": "kafka", "bootstrap": kafka.bootstrap, "topics": TOPIC}, source="a test")
    opened = KafkaSource("in", config, "flow", SYSTEM_CLOCK, lambda: True)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("at", "first"),
    [
        (StartAt("earliest"), 0),
        (StartAt("latest"), 6),
        (StartAt("offset", 4), 4),
        (StartAt("time", 1_700_000_000_002), 2),
        (StartAt("time", 1_800_000_000_000), 6),
    ],
    ids=str,
)
def test_a_partition_can_be_read_on_from_any_place_in_it(source: KafkaSource, at: StartAt, first: int) -> None:
    (stream,) = source.streams()
    position = source.position_at(stream, at)
    assert position["offset"] == first
    plan = reader(source).plan(position, ALL)
    assert ([] if plan is None else payloads(plan)) == [b"%d" % n for n in range(first, 6)]


@pytest.mark.parametrize(
    ("at", "named"),
    [(StartAt("offset", 7), "offsets 0 to 6 are there, and 7 is none of them"), (StartAt("dlsn", "1/0/0"), "no DLSN")],
    ids=str,
)
def test_a_place_that_there_is_not_is_refused(source: KafkaSource, at: StartAt, named: str) -> None:
    (stream,) = source.streams()
    with pytest.raises(ConfigInvalid, match=named):
        source.position_at(stream, at)
