"""A topic of Dafka is a sink: one producer a stream, whose records come once, wherever its task works."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, Sink, SinkStreamWriter
from scribengin.connectors.dafka import publishing
from scribengin.connectors.dafka import sink as sink_module
from scribengin.connectors.dafka.config import DafkaSinkConfig
from scribengin.dafka import DafkaConsumer, DafkaFollower, DafkaPartition, DafkaTower
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, DataflowError, SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.testing import check_sink
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from tests.contract.connectors.dafka_memory_store import MemoryDafkaStore
from tests.contract.connectors.dafka_network import TOPIC, Network
from tests.integration.dafka.dafka_roles import LISTENING, config_of, read

NODE = "/scribengin/locks/commit-log"


@pytest.fixture
def environment(memory_registry: MemoryRegistry) -> Environment:
    return Environment(registry=memory_registry, dataflow="conformance", nodes=STREAM_NODES)


@pytest.fixture
def network(environment: Environment, tmp_path: Path) -> Iterator[Network]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=environment.registry)
    with (
        LogNamespace.open("/logs", registry=environment.registry) as logs,
        DafkaTower(LISTENING) as tower,
    ):
        network = Network(tower, logs)
        with network.opened:
            yield network


def sink(network: Network, environment: Environment, **settings: Any) -> Sink:
    said = {"kind": "dafka", "topic": TOPIC, "beacon": network.beacon, **settings}
    return open_sink("out", DafkaSinkConfig.parse(said, source="a test"), environment)


def take(environment: Environment, opened: Sink, epoch: int, committed: CommitDescriptor | None) -> SinkStreamWriter:
    log = CommitLog(
        dataflow="flow", task="task-0", owner=f"owner-{epoch}", generation=1, epoch=epoch, round=1, committed=committed
    )
    if environment.registry.find(NODE) is None:
        environment.registry.create(NODE, parents=True)
    environment.registry.set(NODE, log.to_bytes())
    writer = opened.open_writer(opened.streams(1)[0], Attempt(f"owner-{epoch}", epoch, NODE))
    writer.recover(committed)
    return writer


def stage(writer: SinkStreamWriter, first: int, end: int) -> CommitDescriptor:
    writer.write(pa.record_batch({"payload": [b"record %d" % n for n in range(first, end)]}))
    prepared = writer.prepare_commit()
    assert prepared is not None
    return prepared


@pytest.mark.long
def test_a_topic_is_a_sink(network: Network, environment: Environment) -> None:
    with closing(MemoryDafkaStore(network.config)):
        check_sink(lambda: sink(network, environment), environment.registry)


@pytest.mark.parametrize(("min_acks", "kept"), [(1, "a store has"), (2, "2 stores have")])
def test_it_says_what_its_guarantee_rests_on(
    network: Network, environment: Environment, min_acks: int, kept: str
) -> None:
    said = sink(network, environment, min_acks=min_acks).guarantee_note
    assert said == f"for consumers that go by sequence, once {kept} a round"


def test_who_reads_by_sequence_gets_each_record_once_though_the_task_moves(
    network: Network, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.store("one")
    network.store("two")
    monkeypatch.setattr(sink_module, "_KEPT_BYTES", 1000)  # nearly every round truncates what was before it
    committed: CommitDescriptor | None = None
    with DafkaConsumer([TOPIC], config_of(network.tower)) as consumer:
        for epoch in range(1, 4):
            with closing(sink(network, environment, min_acks=2)) as opened:
                opened.create(opened.streams(1))
                writer = take(environment, opened, epoch, committed)
                for number in (2 * epoch - 2, 2 * epoch - 1):
                    stage(writer, 0, 7)
                    writer.rollback()
                    committed = stage(writer, 50 * number, 50 * number + 50)
                    if number % 2 == 0:  # the last round of each owner is committed, and published by the next one
                        writer.complete_commit(committed)
                        writer.complete_commit(committed)
                writer.close()
        with closing(sink(network, environment, min_acks=2)) as opened:
            take(environment, opened, 9, committed).close()
        records = read(consumer, 300)
        assert [one.sequence for one in records] == list(range(300))
        assert [one.content for one in records] == [b"record %d" % n for n in range(300)]
        assert len({one.partition for one in records}) == 1
        assert consumer.read(timeout_s=0.0) == []


def test_a_round_of_many_batches_that_stores_have_already_is_published_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They acknowledge its end at once, before its first batches have come again."""
    network.store()
    monkeypatch.setattr(publishing, "_OUTSTANDING_MAX", 2)
    said = {"kind": "dafka", "topic": TOPIC, "beacon": network.beacon, "ack_timeout_s": 60}
    config, partition = DafkaSinkConfig.parse(said, source="a test"), DafkaPartition(TOPIC, "AB" * 16)
    for _ in range(2):
        with closing(publishing.DafkaPublisher("out", config)) as publisher:
            publisher.publish(partition, 0, ([b"record %d" % n] * 10 for n in range(20)), published=200)


@pytest.mark.parametrize("first", [5, 10], ids=["with a round again", "with a new round"])
def test_stores_that_have_more_than_was_ever_committed_take_no_round_for_what_they_have(
    network: Network, first: int
) -> None:
    """As when the registry is that of an older backup: its next round has the numbers of one that it has lost."""
    network.store()
    said = {"kind": "dafka", "topic": TOPIC, "beacon": network.beacon}
    config, partition = DafkaSinkConfig.parse(said, source="a test"), DafkaPartition(TOPIC, "AB" * 16)
    with closing(publishing.DafkaPublisher("out", config)) as publisher:
        publisher.publish(partition, 0, [[b"before %d" % n for n in range(15)]], published=0)
    for again in (publishing.DafkaPublisher("out", config) for _ in range(2)):  # whoever tries it another time, too
        with closing(again), pytest.raises(DataflowError, match=r"'flights', producer (AB){16}, up to 14: more than"):
            again.publish(partition, first, [[b"after %d" % n for n in range(first, first + 5)]], published=10)


def test_more_records_than_a_producer_may_keep_wait_for_stores_as_long_as_others(network: Network) -> None:
    said = {"kind": "dafka", "topic": TOPIC, "beacon": network.beacon, "ack_timeout_s": 0.2}
    publisher = publishing.DafkaPublisher("out", DafkaSinkConfig.parse(said, source="a test"))
    producer = publisher._roles.producer.model_copy(update={"high_watermark": 10})
    publisher._roles = publisher._roles.model_copy(update={"producer": producer})
    batches = ([b"record"] * 6 for _ in range(3))
    with ThreadPoolExecutor(1) as threads, closing(publisher):
        publishing_it = threads.submit(publisher.publish, DafkaPartition(TOPIC, "AB" * 16), 0, batches, published=18)
        with pytest.raises(SystemUnreachable, match=r"no store has taken a round of topic 'flights' in 0.2"):
            publishing_it.result(60)


def test_each_batch_of_a_round_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that take one after the other, however slowly, are not taken for gone."""
    waits: list[float] = []

    class SlowProducer:
        unacknowledged, partition, next = 0, DafkaPartition(TOPIC, "AB" * 16), 0

        def publish_many(self, _contents: list[bytes]) -> SlowProducer:
            return self

        def result(self, timeout_s: float) -> None:
            waits.append(timeout_s)

    config = DafkaSinkConfig.parse({"kind": "dafka", "topic": TOPIC, "ack_timeout_s": 7}, source="a test")
    publisher = publishing.DafkaPublisher("out", config)
    monkeypatch.setattr(publisher, "_producer", SlowProducer())
    publisher.publish(SlowProducer.partition, 0, [[b"record"]] * 100, published=0)
    assert waits == [7.0] * 100


@pytest.mark.parametrize("timeout_s", [1e10, math.inf, math.nan])
def test_a_wait_that_no_clock_can_count_is_refused_in_a_line(timeout_s: float) -> None:
    said = {"kind": "dafka", "topic": TOPIC, "ack_timeout_s": timeout_s}
    with pytest.raises(ConfigInvalid, match=r"^patient.yaml: ack_timeout_s: \S+ is (too high|no number)") as refused:
        DafkaSinkConfig.parse(said, source="patient.yaml")
    assert "\n" not in str(refused.value)


def test_the_longest_wait_for_stores_is_one_that_threads_can_wait() -> None:
    said = {"kind": "dafka", "topic": TOPIC, "ack_timeout_s": 1e9}
    assert DafkaSinkConfig.parse(said, source="patient.yaml").ack_timeout_s < threading.TIMEOUT_MAX


def test_without_a_store_a_round_waits_and_says_so(network: Network, environment: Environment) -> None:
    with closing(sink(network, environment, ack_timeout_s=0.2, min_acks=2)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        committed = stage(writer, 0, 5)
        with pytest.raises(
            SystemUnreachable, match=r"fewer than 2 stores have taken a round of topic 'flights' in 0.2"
        ):
            writer.complete_commit(committed)
        writer.close()
    network.store()
    with closing(sink(network, environment)) as opened:
        take(environment, opened, 2, committed).close()
        [batch] = opened.committed(opened.streams(1)[0])
        assert batch["payload"].to_pylist() == [b"record %d" % n for n in range(5)]


def test_a_dataflow_that_comes_after_another_goes_on_behind_its_records(
    network: Network, environment: Environment
) -> None:
    network.store()
    with closing(sink(network, environment)) as opened:
        opened.create(opened.streams(1))
        for epoch in (1, 2):  # the second knows nothing of the first one's commit
            writer = take(environment, opened, epoch, None)
            writer.complete_commit(stage(writer, 5 * epoch - 5, 5 * epoch))
            writer.close()
        found = [
            payload for batch in opened.committed(opened.streams(1)[0]) for payload in batch["payload"].to_pylist()
        ]
        assert found == [b"record %d" % n for n in range(10)]


def payloads(opened: Sink) -> list[bytes]:
    return [one for batch in opened.committed(opened.streams(1)[0]) for one in batch["payload"].to_pylist()]


@pytest.mark.full
def test_a_topic_that_was_truncated_to_its_end_is_empty_and_goes_on(
    network: Network, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[bool] = []

    class Told(DafkaFollower):
        """Says whether it was told that nobody keeps what comes next, and has not just waited long enough."""

        def wait(self, partition: DafkaPartition, sequence: int, timeout_s: float) -> bool:
            came.append(super().wait(partition, sequence, timeout_s))
            return came[-1]

    monkeypatch.setattr(publishing, "DafkaFollower", Told)
    store = network.store()
    with closing(sink(network, environment)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        committed = stage(writer, 0, 5)
        writer.complete_commit(committed)
        writer.close()
        [topic] = network.logs.names("dafka/")
        network.logs.truncate(topic, network.logs.end_dlsn(topic))
        assert payloads(opened) == []
        store.close()  # it knows no more of the records than its log says
        network.store()
        assert payloads(opened) == []
        assert came == [True, True]
        writer = take(environment, opened, 2, committed)
        writer.complete_commit(stage(writer, 5, 10))
        writer.close()
        assert payloads(opened) == [b"record %d" % n for n in range(5, 10)]


def test_a_store_that_is_heard_of_late_is_waited_for(
    network: Network, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = network.store()

    class LateFollower(DafkaFollower):
        """Knows everybody who is there, as far as it can tell, before the store says that it is."""

        def wait(self, partition: DafkaPartition, sequence: int, timeout_s: float) -> bool:
            assert self.settle()
            network.store()
            return super().wait(partition, sequence, timeout_s)

    with closing(sink(network, environment)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        writer.complete_commit(stage(writer, 0, 5))
        writer.close()
        store.close()
        monkeypatch.setattr(publishing, "DafkaFollower", LateFollower)
        assert payloads(opened) == [b"record %d" % n for n in range(5)]


def test_a_round_that_waits_for_stores_is_not_seen_and_keeps_nobody_from_beginning_again(
    network: Network, environment: Environment
) -> None:
    """Whoever submits the dataflow again looks at its sink first."""
    with closing(sink(network, environment, ack_timeout_s=0.2)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        with pytest.raises(SystemUnreachable):
            writer.complete_commit(stage(writer, 0, 5))
        writer.close()
        wait_until(lambda: seen_or_none(opened) == [])  # no tower may have answered so soon


def test_who_only_looks_does_not_wait_for_a_round_that_nobody_tells_of(
    network: Network, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preflight, and verify, would wait for an hour."""
    waits: list[float] = []

    class Impatient(DafkaFollower):
        """Has heard of all who are there, and waits for nothing."""

        def settle(self) -> bool:
            wait_until(lambda: self.welcomed_s is not None)
            return True

        def wait(self, _partition: DafkaPartition, _sequence: int, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return False

    with closing(sink(network, environment, ack_timeout_s=0.2)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        with pytest.raises(SystemUnreachable):
            writer.complete_commit(stage(writer, 0, 5))
        writer.close()
    monkeypatch.setattr(publishing, "DafkaFollower", Impatient)
    with closing(sink(network, replace(environment, looking=True), ack_timeout_s=3600)) as looked:
        assert payloads(looked) == []
        [batch] = looked.unreachable(looked.streams(1)[0])
        assert batch.column("payload").to_pylist() == [b"record %d" % n for n in range(5)]
    assert waits == [network.config.beacon.timeout / 1000]


def seen_or_none(opened: Sink) -> list[bytes] | None:
    try:
        return payloads(opened)
    except SystemUnreachable:
        return None


def test_records_that_are_known_of_and_do_not_come_are_told_of(
    network: Network, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(DafkaFollower):
        """Hears of records, and gets none."""

        def wait(self, partition: DafkaPartition, _sequence: int, _timeout_s: float) -> bool:
            wait_until(lambda: self.ends().get(partition) == 5)
            return False

    network.store()
    with closing(sink(network, environment)) as opened:
        opened.create(opened.streams(1))
        writer = take(environment, opened, 1, None)
        writer.complete_commit(stage(writer, 0, 5))
        writer.close()
        monkeypatch.setattr(publishing, "DafkaFollower", Deaf)
        with pytest.raises(SystemUnreachable, match=r"nobody has sent record 0 in 60 s, and 4 was published"):
            payloads(opened)


def test_a_log_of_somebody_else_is_refused(network: Network, environment: Environment) -> None:
    network.logs.create("mine/0")
    with network.logs.open_writer("mine/0") as writer:
        writer.write(b"of mine").result(60)
    with (
        closing(sink(network, environment, log="mine")) as opened,
        pytest.raises(DataflowError, match=r"log 'mine/0' holds records that are none of the sink's"),
    ):
        take(environment, opened, 1, None)
