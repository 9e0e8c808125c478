"""A producer as programs use it: what it takes, and whom it tells at its end. No tower is there, and no store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from scribengin.dafka import DafkaConfig, DafkaProducer
from scribengin.dafka.wire import StoreAck
from scribengin.errors import DafkaError, RecordsUnacknowledged

ALONE = DafkaConfig.model_validate(
    {
        "beacon": {"sub_address": "tcp://127.0.0.1:9", "pub_address": "tcp://127.0.0.1:9"},
        "producer": {"terminate_unacked": True},
    }
)
STORE = "CC" * 16


@pytest.fixture
def producer() -> Iterator[DafkaProducer]:
    with DafkaProducer("flights", ALONE) as made:
        yield made


def acknowledge(producer: DafkaProducer, sequence: int) -> None:
    """As a store does that has all up to there."""
    producer.on_messages([StoreAck(producer.address, "flights", sequence)], STORE, 0.0)


@pytest.mark.parametrize("content", ["text", 5, None, ["a"]])
def test_what_is_no_bytes_is_refused_and_what_others_published_goes_on(producer: DafkaProducer, content: Any) -> None:
    before = producer.publish(b"before")
    with pytest.raises(DafkaError, match=f"a record of 'flights' is bytes, and not {type(content).__name__}: "):
        producer.publish_many([b"good", content])
    after = producer.publish(b"after")
    acknowledge(producer, 1)
    assert [before.result(60), after.result(60)] == [range(1), range(1, 2)]
    assert producer.failure is None


def test_bytes_that_change_later_are_published_as_they_were(producer: DafkaProducer) -> None:
    buffer = bytearray(b"one")
    producer.publish_many([buffer, memoryview(buffer)])
    buffer[:] = b"two"
    assert producer._state._kept.between(0, 2) == [b"one", b"one"]


def test_no_records_are_published_at_once(producer: DafkaProducer) -> None:
    assert producer.publish_many([]).result(60) == range(0)
    producer.publish(b"one")
    assert producer.publish_many([]).result(60) == range(1, 1)


def test_whoever_closes_it_once_more_meanwhile_tells_nobody_twice(producer: DafkaProducer) -> None:
    published = [producer.publish(b"one"), producer.publish(b"two")]
    closings: list[Future[None]] = []
    with ThreadPoolExecutor(1) as other:

        def close_there(_: object) -> None:
            closings.append(other.submit(producer.close))
            wait(closings)

        published[0].add_done_callback(close_there)
        producer.close()
    assert [closing.exception() for closing in closings] == [None]
    for future in published:
        with pytest.raises(RecordsUnacknowledged):
            future.result(60)
