"""Dafka's roles on real sockets, found through a real tower, on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaRecord, DafkaTower
from scribengin.errors import ConfigInvalid, DafkaClosed, DafkaError, ProducerFull, RecordsUnacknowledged
from tests.integration.dafka.dafka_roles import LISTENING, config_of, read


@pytest.fixture
def config() -> Iterator[DafkaConfig]:
    """Of roles that find each other through one tower of the test's own."""
    with DafkaTower(LISTENING) as tower:
        yield config_of(tower, producer={"terminate_unacked": True})


def with_producer(config: DafkaConfig, **changes: object) -> DafkaConfig:
    return config.model_copy(update={"producer": config.producer.model_copy(update=changes)})


def test_a_consumer_gets_what_was_published_before_and_after_it_came(config: DafkaConfig) -> None:
    with DafkaProducer("flights", config) as producer:
        producer.publish_many([b"%d" % n for n in range(300)])
        with DafkaConsumer(["flights"], config) as consumer:
            records = read(consumer, 300)
            producer.publish_many([b"%d" % n for n in range(300, 1000)])
            records += read(consumer, 700)
            assert records == [DafkaRecord(producer.partition, n, b"%d" % n) for n in range(1000)]
            assert consumer.positions == {producer.partition: 1000}


def test_a_consumer_goes_on_where_its_reader_has_stored_that_it_stood(config: DafkaConfig) -> None:
    with DafkaProducer("flights", config) as producer:
        producer.publish_many([b"%d" % n for n in range(100)])
        with DafkaConsumer(["flights"], config) as consumer:
            read(consumer, 40)
            stored = consumer.positions
        with DafkaConsumer(["flights"], config, positions=stored) as consumer:
            assert [record.sequence for record in read(consumer, 60)] == list(range(40, 100))


def test_a_reader_that_is_slow_holds_its_consumer_back_and_loses_nothing(config: DafkaConfig) -> None:
    slow = config.model_copy(update={"consumer": config.consumer.model_copy(update={"high_watermark": 50})})
    with DafkaProducer("flights", config) as producer, DafkaConsumer(["flights"], slow) as consumer:
        for first in range(0, 5000, 100):
            producer.publish_many([b"%d" % n for n in range(first, first + 100)])
        assert [record.content for record in read(consumer, 5000)] == [b"%d" % n for n in range(5000)]


def test_topics_that_begin_alike_are_told_apart(config: DafkaConfig) -> None:
    with (
        DafkaProducer("hello", config) as hello,
        DafkaProducer("hello2", config) as hello2,
        DafkaConsumer(["hello"], config) as exact,
        DafkaConsumer(["hello", "hello2"], config) as both,
    ):
        hello2.publish(b"2")
        hello.publish(b"1")
        assert {record.content for record in read(both, 2)} == {b"1", b"2"}
        assert [record.partition.subject for record in read(exact, 1)] == ["hello"]
        assert exact.read(10, timeout_s=0.0) == []


def test_roles_find_each_other_through_any_of_several_towers(config: DafkaConfig) -> None:
    gone = {"sub_address": "tcp://127.0.0.1:1", "pub_address": "tcp://127.0.0.1:1"}
    beacon = config.beacon.model_copy(
        update={name: (gone[name], *getattr(config.beacon, name)) for name in ("sub_address", "pub_address")}
    )
    two = config.model_copy(update={"beacon": beacon})
    with DafkaProducer("flights", two) as producer, DafkaConsumer(["flights"], two) as consumer:
        producer.publish(b"1")
        assert [record.content for record in read(consumer, 1)] == [b"1"]


def test_a_producer_that_nobody_acknowledges_says_so_when_it_is_closed(config: DafkaConfig) -> None:
    producer = DafkaProducer("flights", with_producer(config, terminate_unacked=False))
    future = producer.publish_many([b"1", b"2"])
    with pytest.raises(RecordsUnacknowledged, match="2 records of 'flights' are not acknowledged by a store"):
        producer.close(timeout_s=0.1)
    with pytest.raises(RecordsUnacknowledged):
        future.result(0)
    producer.close()
    with pytest.raises(DafkaClosed):
        producer.publish(b"3")


def test_a_full_producer_raises_where_that_is_wanted(config: DafkaConfig) -> None:
    with DafkaProducer("flights", with_producer(config, high_watermark=3, when_full="raise")) as producer:
        producer.publish_many([b"1", b"2"])
        with pytest.raises(ProducerFull):
            producer.publish_many([b"3", b"4"])
        with pytest.raises(ProducerFull):
            producer.publish_many([b"x"] * 4)
        assert producer.unacknowledged == 2


def test_a_closed_consumer_is_refused() -> None:
    consumer = DafkaConsumer(["flights"])
    consumer.close()
    consumer.close()
    with pytest.raises(DafkaClosed, match="was closed"):
        consumer.read()


def test_a_tower_is_for_this_machine_unless_more_is_said() -> None:
    open_to_all = {"sub_address": "tcp://*:*", "pub_address": "tcp://*:*"}
    with pytest.raises(ConfigInvalid, match="insecure: true"):
        DafkaConfig.parse({"tower": open_to_all}, source="the test")
    with DafkaTower(DafkaConfig.model_validate({"tower": open_to_all, "insecure": True})) as tower:
        taken = {"sub_address": tower.sub_address, "pub_address": tower.pub_address}
        with pytest.raises(DafkaError, match="cannot listen"):
            DafkaTower(DafkaConfig.model_validate({"tower": taken, "insecure": True}))
