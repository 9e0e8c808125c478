"""What a consumer makes of the time and of its peers. Its thread never runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaPartition
from scribengin.dafka.wire import ConsumerHello, FindTime, Head, KnownOfTime, LiveRecord, Subscription, TimeFound
from scribengin.dafka.wire import topic_prefix as prefix_of
from scribengin.errors import ConfigInvalid, TimeUnknown

ALONE = DafkaConfig.model_validate(
    {
        "beacon": {"sub_address": "tcp://127.0.0.1:9", "pub_address": "tcp://127.0.0.1:9"},
        "consumer": {"high_watermark": 5},
    }
)
BUSY, QUIET, STORE, OTHER = "AA" * 16, "BB" * 16, "CC" * 16, "DD" * 16


class StillConsumer(DafkaConsumer):
    """A test calls what would run on its thread."""

    def start(self) -> None:
        """No thread."""


@pytest.fixture
def consumer() -> Iterator[StillConsumer]:
    made = StillConsumer(["flights"], ALONE, since_ms=5)
    for store in (STORE, OTHER):
        for kind in (FindTime, ConsumerHello):
            made.on_subscription(Subscription(True, prefix_of(kind, store, exact=False)))
    yield made
    made._release()


@pytest.mark.parametrize("topics", ["flights", [], [b"flights"], [None]])
def test_topics_that_are_no_list_of_names_are_refused_and_not_waited_for(topics: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"are a list of names, as in \['flights'\], and not"):
        DafkaConsumer(topics, ALONE)


def test_while_nobody_reads_no_partition_is_given_up(consumer: StillConsumer) -> None:
    consumer.on_messages([Head("flights", QUIET, "flights", 9)], "", 0.0)
    consumer.on_messages([LiveRecord("flights", BUSY, "flights", n, b"") for n in range(6)], "", 0.0)
    assert not consumer.is_listening()
    for at_s in range(1, 30):
        consumer.on_tick(float(at_s))
    assert len(consumer.read(100, 0.0)) == 6
    consumer.on_tick(30.0)
    assert consumer.read(100, 0.0) == []
    consumer.on_tick(39.0)
    with pytest.raises(TimeUnknown, match=f"producer {QUIET}: .* asked and not answered: {STORE}, {OTHER}"):
        consumer.read(100, 0.0)


def test_a_store_that_discovery_has_left_is_not_waited_for(consumer: StillConsumer) -> None:
    consumer.on_messages([Head("flights", QUIET, "flights", 9)], "", 0.0)
    consumer.on_peer_gone(OTHER)
    told = TimeFound(consumer.address, STORE, QUIET, "flights", 5, KnownOfTime.WHERE, 4)
    consumer.on_messages([told], "", 0.1)
    assert consumer._state.positions == {DafkaPartition("flights", QUIET): 4}
