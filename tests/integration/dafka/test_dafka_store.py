"""Dafka's stores over the log store: what is acknowledged is durable, comes from there, and survives the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka import (
    AsyncDafkaConsumer,
    AsyncDafkaProducer,
    DafkaConfig,
    DafkaConsumer,
    DafkaPartition,
    DafkaProducer,
    DafkaStore,
    DafkaTower,
)
from scribengin.dafka.state import ProducerState, SinceLimits
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.writer import StoreWriter
from scribengin.dafka.wire import Fetch, FindTime
from scribengin.errors import DafkaClosed, OwnershipAcquireFailed, RecordsGone, RecordsUnacknowledged, TimeUnknown
from scribengin.log import LogNamespace
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from tests.integration.dafka.dafka_roles import LISTENING, asks_again_soon, config_of, next_role_listens_at, read

__all__ = ["asks_again_soon"]


@pytest.fixture
def tower() -> Iterator[DafkaTower]:
    with DafkaTower(LISTENING) as tower:
        yield tower


@pytest.fixture
def logs(memory_registry: MemoryRegistry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=memory_registry)
    with LogNamespace.open("/logs", registry=memory_registry) as namespace:
        yield namespace


def contents(first: int, end: int) -> list[bytes]:
    return [b"record %d" % n for n in range(first, end)]


def test_what_is_acknowledged_is_in_the_log_and_comes_from_there_once_its_producer_is_gone(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaStore(logs, config) as store:
        with DafkaProducer("flights/a b", config) as producer:
            assert producer.publish_many(contents(0, 500)).result(60) == range(500)
            assert producer.unacknowledged == 0
        name = f"dafka/flights%2Fa%20b/{producer.partition.address}"
        assert logs.names() == [name]
        last = logs.last_record(name)
        assert last is not None
        assert (last.txid, last.payload) == (499, b"record 499")
        with DafkaConsumer(["flights/a b"], config) as consumer:
            records = read(consumer, 500)
            assert [(one.sequence, one.content) for one in records] == list(enumerate(contents(0, 500)))
        store.check()


def test_a_consumer_begins_at_a_time_told_by_a_store_or_by_the_producer_itself(
    tower: DafkaTower, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of all of them is the test's."""
    begun_ms = 1_769_860_800_000
    now_ms = [begun_ms]
    monkeypatch.setattr(type(SYSTEM_CLOCK), "now_ms", lambda _: now_ms[0])
    config = config_of(tower, producer={"terminate_unacked": True})

    def first_since(at_ms: int) -> int:
        with DafkaConsumer(["flights"], config, since_ms=begun_ms + at_ms) as consumer:
            return read(consumer, 1)[0].sequence

    async def first_since_of_the_twin(at_ms: int) -> int:
        async with AsyncDafkaConsumer(["flights"], config, since_ms=begun_ms + at_ms) as consumer:
            return (await consumer.read(1, 60.0))[0].sequence

    with DafkaProducer("flights", config) as producer:
        for first in (0, 300):
            published = producer.publish_many(contents(first, first + 300))
            now_ms[0] += 1_000
        assert [first_since(at_ms) for at_ms in (0, 1)] == [0, 300]  # no store yet: it is in memory
        now_ms[0] = begun_ms
        with DafkaStore(logs, config):
            assert published.result(60) == range(300, 600)
            now_ms[0] += 1_000
            assert producer.publish_many(contents(600, 900)).result(60) == range(600, 900)
            producer.close()
            assert first_since(0) == 0
            assert first_since(500) == asyncio.run(first_since_of_the_twin(1_000)) == 600


def test_where_only_a_program_of_c_has_the_records_a_consumer_says_that_nobody_can_tell(
    tower: DafkaTower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that does not subscribe to questions for times is to others what a C program is."""
    config = config_of(tower, producer={"terminate_unacked": True})
    monkeypatch.setattr("scribengin.dafka.state.consumer.SinceLimits", partial(SinceLimits, patience_s=0.5))
    asked: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("scribengin.dafka.producer.FindTime", Fetch)
        producer = DafkaProducer("flights", config)
    real = ProducerState.message
    monkeypatch.setattr(ProducerState, "message", lambda self, m, peer: asked.append(m) or real(self, m, peer))
    with producer, DafkaConsumer(["flights"], config) as earliest:
        producer.publish_many(contents(0, 10))
        read(earliest, 10)
        with DafkaConsumer(["flights"], config, since_ms=5) as consumer:
            with pytest.raises(TimeUnknown, match=rf"'flights', producer {producer.partition.address}: nobody"):
                consumer.read(1, 60.0)
            assert consumer.read(1, 0.0) == []
    assert not any(isinstance(one, FindTime) for one in asked)


def test_a_store_that_comes_late_takes_all_and_one_that_comes_again_goes_on(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaProducer("flights", config) as producer:
        first = producer.publish_many(contents(0, 3000))
        with DafkaStore(logs, config):
            assert first.result(60) == range(3000)
        second = producer.publish_many(contents(3000, 4000))
        with DafkaStore(logs, config) as store:
            assert second.result(60) == range(3000, 4000)
            stored = {partition: tuple(found) for partition, found in store.stored.items()}
            assert stored == {producer.partition: (0, 4000)}
            with DafkaConsumer(["flights"], config) as consumer:
                assert [one.content for one in read(consumer, 4000)] == contents(0, 4000)


def test_a_record_is_released_once_two_different_stores_have_it(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower, producer={"min_acks": 2})
    with DafkaProducer("flights", config) as producer:
        with DafkaStore(logs, config, prefix="one"):
            published = producer.publish_many(contents(0, 100))
            wait_until(lambda: logs.names("one/") != [])
            with DafkaStore(logs, config, prefix="two") as other:
                assert published.result(60) == range(100)
                assert other.stored[producer.partition].next == 100
            assert not producer.publish(b"with one store").done()
        with DafkaStore(logs, config, prefix="one"), DafkaStore(logs, config, prefix="two"):
            producer.flush(60)


def test_a_store_that_is_started_again_is_no_second_one(tower: DafkaTower, logs: LogNamespace) -> None:
    """For `beacon.timeout` the producer does not know that the first of its lives has gone: here for an hour."""
    config = config_of(tower, producer={"min_acks": 2, "terminate_unacked": True})
    beacon = config.beacon.model_copy(update={"timeout": 3_600_000})
    with DafkaProducer("flights", config.model_copy(update={"beacon": beacon})) as producer:
        published = producer.publish_many(contents(0, 100))
        lives = []
        for _ in range(2):
            with DafkaStore(logs, config) as store:
                lives.append(store.address)
                wait_until(lambda one=store: one.address in producer._state._acked_by)  # type: ignore[misc]
        assert len(set(lives)) == 2
        assert producer._state._acked_by == dict.fromkeys(lives, 100)
        assert producer.unacknowledged == 100
        assert not published.done()
        with DafkaStore(logs, config), DafkaStore(logs, config, prefix="two"):
            assert published.result(60) == range(100)


def test_a_store_on_the_port_of_another_that_has_ended_does_not_count_as_that_one_before_it_is_told_of(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    """The producer's socket to the one that has ended connects to it by itself, and for an hour nobody else does."""
    config = config_of(tower, producer={"min_acks": 2, "terminate_unacked": True})
    beacon = config.beacon.model_copy(update={"timeout": 3_600_000})
    with DafkaProducer("flights", config.model_copy(update={"beacon": beacon})) as producer:
        with DafkaStore(logs, config, prefix="ended") as ended:
            wait_until(lambda: ended.address in producer.peers)
        with DafkaStore(logs, config) as store:
            published = producer.publish_many(contents(0, 100))
            wait_until(lambda: store.address in producer._state._acked_by)
        assert producer._state._acked_by == {store.address: 100}
        with DafkaTower(LISTENING) as elsewhere:
            heard = {"sub_address": elsewhere.sub_address, "pub_address": tower.pub_address}
            untold = DafkaConfig.model_validate({"beacon": {**heard, "interval": 100}})
            with next_role_listens_at(ended._writer.endpoint):
                again = StoreWriter(StoredPartitions(logs, "dafka", None, take_over=False, batches=True), untold)
            with again:
                wait_until(lambda: producer._state._acked_by.get(ended.address) == 100)
                assert again.address not in producer.peers
                assert not published.done()


def test_a_store_takes_what_it_has_missed_of_a_dead_producer_from_another(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaStore(logs, config, prefix="one"):
        with DafkaProducer("flights", config) as producer:
            producer.publish_many(contents(0, 200)).result(60)
        with DafkaStore(logs, config, prefix="two") as late:
            wait_until(lambda: late.stored.get(producer.partition, (0, 0))[1] == 200)
    assert logs.count(f"two/flights/{producer.partition.address}") == 200


@pytest.mark.parametrize("topic", [".", "..", "%_", "рейсы пассажирских самолётов", "2013年紐約出發的所有航班記錄"])
def test_a_topic_of_any_letters_is_stored_and_found_again(tower: DafkaTower, logs: LogNamespace, topic: str) -> None:
    config = config_of(tower)
    with DafkaStore(logs, config), DafkaProducer(topic, config) as producer:
        assert producer.publish_many(contents(0, 3)).result(60) == range(3)
    with DafkaStore(logs, config) as again, DafkaConsumer([topic], config) as consumer:
        assert again.stored == {producer.partition: (0, 3)}
        assert [one.content for one in read(consumer, 3)] == contents(0, 3)


def test_a_store_that_comes_after_one_that_has_lost_its_disk_says_what_it_misses(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower, producer={"terminate_unacked": True})
    with DafkaProducer("flights", config) as producer:
        with DafkaStore(logs, config, prefix="lost"):
            producer.publish_many(contents(0, 3)).result(60)
        with DafkaStore(logs, config, prefix="new") as new:
            later = producer.publish(b"record 3")
            wait_until(lambda: new.stuck == {producer.partition: 0}, timeout_s=60)
            with DafkaStore(logs, config, prefix="lost"):  # it was not lost
                assert later.result(60) == range(3, 4)
                wait_until(lambda: new.stored == {producer.partition: (0, 4)}, timeout_s=60)
            assert new.stuck == {}


@pytest.mark.usefixtures("asks_again_soon")
def test_who_reads_from_the_earliest_begins_behind_what_was_truncated(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower)
    with DafkaStore(logs, config):
        with DafkaProducer("flights", config) as producer:
            producer.publish_many(contents(0, 100)).result(60)
        name = f"dafka/flights/{producer.partition.address}"
        with logs.open_reader(name) as reader:
            forty = reader.read(41)[-1].dlsn
        logs.truncate(name, forty)
        for _ in range(2):  # the store that finds it truncated, and one that has found it so
            with DafkaConsumer(["flights"], config) as consumer:
                assert [one.content for one in read(consumer, 60)] == contents(40, 100)
    with DafkaStore(logs, config) as again:
        assert again.stored == {DafkaPartition("flights", producer.partition.address): (40, 100)}


@pytest.mark.usefixtures("asks_again_soon")
def test_who_reads_what_is_truncated_to_its_end_is_told_and_goes_on_behind_it(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaStore(logs, config), DafkaProducer("flights", config) as producer:
        producer.publish_many(contents(0, 100)).result(60)
        name = f"dafka/flights/{producer.partition.address}"
        logs.truncate(name, logs.end_dlsn(name))
        with (
            DafkaConsumer(["flights"], config, positions={producer.partition: 50}) as late,
            DafkaConsumer(["flights"], config) as consumer,
        ):
            with pytest.raises(RecordsGone, match="from 50 to 99"):
                late.read(timeout_s=60)
            producer.publish_many(contents(100, 110)).result(60)
            assert [one.content for one in read(consumer, 10)] == contents(100, 110)


def test_a_log_that_somebody_else_writes_is_refused_until_he_ends_and_all_others_are_stored(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaProducer("flights", config) as held, DafkaProducer("flights", config) as other:
        name = f"dafka/flights/{held.partition.address}"
        logs.create(name)
        with DafkaStore(logs, config) as store:
            with logs.open_writer(name):
                waiting = held.publish_many(contents(0, 10))
                assert other.publish_many(contents(0, 10)).result(60) == range(10)
                wait_until(lambda: held.partition in store.failing)
                assert isinstance(store.failing[held.partition], OwnershipAcquireFailed)
                assert other.publish_many(contents(10, 20)).result(60) == range(10, 20)
                assert store.log_failures >= 1
                store.check()
                assert not waiting.done()
            assert waiting.result(60) == range(10)
            wait_until(lambda: store.failing == {})
            assert logs.count(name) == 10


def test_a_log_that_somebody_takes_is_taken_back_once_he_ends_without_a_gap(
    tower: DafkaTower, logs: LogNamespace
) -> None:
    config = config_of(tower)
    with DafkaProducer("flights", config) as taken, DafkaProducer("flights", config) as other:
        name = f"dafka/flights/{taken.partition.address}"
        with DafkaStore(logs, config) as store:
            assert taken.publish_many(contents(0, 10)).result(60) == range(10)
            with logs.open_writer(name, steal=True):
                waiting = [taken.publish_many(contents(n, n + 5)) for n in range(10, 50, 5)]
                wait_until(lambda: taken.partition in store.failing)
                assert other.publish_many(contents(0, 10)).result(60) == range(10)
            assert waiting[-1].result(60) == range(45, 50)
        with logs.open_reader(name) as reader:
            found = [record for _ in range(50) for record in reader.read(50)]
        assert [(one.txid, one.payload) for one in found] == list(enumerate(contents(0, 50)))


def test_a_store_whose_namespace_is_gone_ends_and_says_so(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower, producer={"terminate_unacked": True})
    with DafkaStore(logs, config) as store, DafkaProducer("flights", config) as producer:
        logs.close()
        producer.publish(b"1")
        wait_until(lambda: ended(store))
        with pytest.raises(DafkaClosed, match=r"the store \w+ has ended: .* is closed"):
            store.check()


def ended(store: DafkaStore) -> bool:
    try:
        store.check()
    except DafkaClosed:
        return True
    return False


def test_programs_of_asyncio_publish_and_read(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower)

    async def many() -> list[bytes]:
        async with (
            AsyncDafkaConsumer(["flights"], config) as consumer,
            AsyncDafkaProducer("flights", config) as producer,
        ):
            ranges = await asyncio.gather(*(producer.publish(b"%d" % n) for n in range(20)))
            assert sorted(one.start for one in ranges) == list(range(20))
            found: list[bytes] = []
            while len(found) < 20:
                found += [record.content for record in await consumer.read(timeout_s=60)]
            assert consumer.positions == {producer.partition: 20}
            return found

    with DafkaStore(logs, config):
        assert sorted(asyncio.run(many())) == sorted(b"%d" % n for n in range(20))


def test_who_gives_up_waiting_takes_nothing_back_and_ends_no_producer(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower, producer={"terminate_unacked": True})

    async def give_up() -> None:
        async with AsyncDafkaProducer("flights", config) as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.publish(b"1"), timeout=0.2)

    asyncio.run(give_up())
    with DafkaProducer("flights", config) as producer:
        assert not producer.publish(b"2").cancel()
        with DafkaStore(logs, config) as store:
            producer.flush(60)
            assert store.stored[producer.partition] == (0, 1)
        producer.check_open()


def test_who_gives_up_waiting_for_records_gets_them_the_next_time(tower: DafkaTower, logs: LogNamespace) -> None:
    config = config_of(tower)

    async def give_up_and_read(producer: DafkaProducer) -> None:
        async with AsyncDafkaConsumer(["flights"], config) as consumer:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.read(), timeout=0.05)
            producer.publish_many(contents(0, 20)).result(60)
            found: list[bytes] = []
            while len(found) < 20:
                records = await consumer.read(7, timeout_s=60)
                assert records, f"{len(found)} of 20"
                found += [one.content for one in records]
                assert consumer.positions == {producer.partition: len(found)}
            assert found == contents(0, 20)
            assert await consumer.read(timeout_s=0.0) == []

    with DafkaStore(logs, config), DafkaProducer("flights", config) as producer:
        asyncio.run(give_up_and_read(producer))


def test_whoever_gives_up_waiting_for_records_keeps_no_thread_from_others(tower: DafkaTower) -> None:
    """A program has a few threads for all that it awaits: six, on a machine of two cores."""

    async def give_up_and_close() -> None:
        consumer = AsyncDafkaConsumer(["quiet"], config_of(tower))
        try:
            for _ in range(40):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.read(), timeout=0.005)
            await asyncio.wait_for(consumer.close(), timeout=60)
        finally:
            consumer._consumer.close()  # or a failure would wait for its threads for ever

    asyncio.run(give_up_and_close())


def test_who_wants_no_records_gets_none_though_some_are_there(tower: DafkaTower) -> None:
    config = config_of(tower, producer={"terminate_unacked": True})

    async def read_none(producer: DafkaProducer) -> None:
        async with AsyncDafkaConsumer(["flights"], config) as consumer:
            producer.publish(b"1")
            assert await asyncio.wait_for(consumer.read(0), timeout=60) == []
            assert [one.content for one in await consumer.read(timeout_s=60)] == [b"1"]

    with DafkaProducer("flights", config) as producer:
        asyncio.run(read_none(producer))


def test_a_producer_is_closed_though_many_wait_for_room(tower: DafkaTower) -> None:
    """More than asyncio has threads for what blocks: nobody acknowledges, so they wait until it is closed."""
    full = config_of(tower, producer={"high_watermark": 1})

    async def many() -> list[BaseException | range]:
        producer = AsyncDafkaProducer("flights", full)
        producer._producer.publish(b"there is no room for more")
        waiting = [asyncio.create_task(producer.publish(b"%d" % n)) for n in range(100)]
        await asyncio.wait(waiting, timeout=0)  # all have asked for a thread
        with pytest.raises(RecordsUnacknowledged):
            await producer.close(timeout_s=0.1)
        return await asyncio.gather(*waiting, return_exceptions=True)

    ended = asyncio.run(many())
    assert {type(one) for one in ended} == {DafkaClosed}
