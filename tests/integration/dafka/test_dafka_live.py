"""Dafka's roles on real sockets, found through a real tower, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq

from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaRecord, DafkaTower
from scribengin.errors import ConfigInvalid, DafkaClosed, DafkaError, ProducerFull, RecordsUnacknowledged, StoresAhead
from scribengin.testing.waiting import wait_until
from tests.integration.dafka.dafka_roles import LISTENING, config_of, next_role_listens_at, read


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


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


class _AsACProgram:
    """Listens to a producer as a C consumer does: to records and heads of a topic, in frames of their own."""

    def __init__(self, producer: DafkaProducer) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        for prefix in (b"Mflights", b"Hflights"):
            self._socket.setsockopt(zmq.SUBSCRIBE, prefix)
        self._socket.connect(producer.endpoint)

    def heard(self, timeout_ms: int) -> list[list[bytes]]:
        """What has come, after waiting for something for so long."""
        found = []
        while self._socket.poll(timeout_ms):
            found.append(self._socket.recv_multipart())
            timeout_ms = 0
        return found

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def test_a_c_program_gets_each_record_alone_and_ours_go_on_in_order(config: DafkaConfig) -> None:
    with DafkaProducer("flights", config) as producer, DafkaConsumer(["flights"], config) as consumer:
        producer.publish_many(numbers(0, 100))
        contents = [record.content for record in read(consumer, 100)]
        wait_until(lambda: producer.sends_batches)
        with closing(_AsACProgram(producer)) as program:
            wait_until(lambda: not producer.sends_batches)
            producer.publish_many(numbers(100, 600))
            alone: list[list[bytes]] = []
            while not alone or alone[-1][-1] != b"599":
                alone += [frames for frames in program.heard(10_000) if frames[0].startswith(b"M")]
            assert [frames[1] for frames in alone] == numbers(100, 600)
        contents += [record.content for record in read(consumer, 500)]
        wait_until(lambda: producer.sends_batches)
        producer.publish_many(numbers(600, 1000))
        contents += [record.content for record in read(consumer, 400)]
        assert contents == numbers(0, 1000)
        assert producer.invalid_frames == consumer.invalid_frames == 0


@pytest.mark.parametrize("without", ["producer", "consumer"])
def test_roles_of_which_one_exchanges_no_batches_get_all_the_same(config: DafkaConfig, without: str) -> None:
    single = config.model_copy(update={"batches": False})
    of_producer, of_consumer = (single if without == role else config for role in ("producer", "consumer"))
    with DafkaProducer("flights", of_producer) as producer:
        producer.publish_many(numbers(0, 300))
        with DafkaConsumer(["flights"], of_consumer) as consumer:
            contents = [record.content for record in read(consumer, 300)]
            producer.publish_many(numbers(300, 600))
            assert [*contents, *(record.content for record in read(consumer, 300))] == numbers(0, 600)
            assert not producer.sends_batches


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


def test_roles_go_on_with_whom_they_know_while_no_tower_is_there() -> None:
    tower = DafkaTower(LISTENING)
    soon = config_of(tower, producer={"terminate_unacked": True})
    soon = soon.model_copy(update={"beacon": soon.beacon.model_copy(update={"timeout": 500})})
    with DafkaProducer("flights", soon) as producer, DafkaConsumer(["flights"], soon) as consumer:
        producer.publish(b"they have met")
        read(consumer, 1)
        wait_until(lambda: producer.peers.keys() == {consumer.address})
        tower.close()
        assert consumer.read(1, timeout_s=1.5) == []  # for longer than a peer may be silent
        producer.publish(b"and go on")
        assert [one.content for one in read(consumer, 1)] == [b"and go on"]
        assert (len(producer.peers), len(consumer.peers)) == (1, 1)


def test_a_producer_on_the_port_of_one_that_has_just_ended_is_heard_also_when_that_one_is_forgotten(
    config: DafkaConfig,
) -> None:
    with DafkaConsumer(["flights"], config) as consumer:
        with DafkaProducer("flights", config) as ended:
            ended.publish(b"1")
            assert [record.content for record in read(consumer, 1)] == [b"1"]
        with next_role_listens_at(ended.endpoint):
            producer = DafkaProducer("flights", config)
        with producer:
            wait_until(lambda: set(consumer.peers) == {producer.address})
            wait_until(lambda: ended.address not in consumer._discovery._seen_s)
            producer.publish(b"2")
            assert [(one.partition, one.content) for one in read(consumer, 1)] == [(producer.partition, b"2")]


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


def test_a_producer_that_is_told_of_stores_that_have_more_while_it_is_closed_has_left_then(
    config: DafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = DafkaProducer("flights", with_producer(config, terminate_unacked=False))
    producer.publish(b"1")
    flush = producer.flush

    def told_meanwhile(timeout_s: float | None) -> None:
        producer._state.ahead = 99
        flush(timeout_s)

    monkeypatch.setattr(producer, "flush", told_meanwhile)
    with pytest.raises(StoresAhead):
        producer.close()
    assert not producer._thread.is_alive()
    producer.close()


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


def test_who_waits_for_a_producer_that_has_ended_is_told_why(
    config: DafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DafkaProducer("flights", config) as producer:
        waiting = [producer.publish(b"1"), producer.publish_many([b"2", b"3"])]

        def fails(_: float) -> None:
            raise MemoryError("no memory")

        monkeypatch.setattr(producer, "on_tick", fails)
        for future in waiting:
            with pytest.raises(DafkaClosed, match="has ended: no memory"):
                future.result(60)
        with pytest.raises(DafkaClosed, match="has ended: no memory"):
            producer.publish(b"4")
