"""A Kafka topic as a sink: what its records carry, what is refused, how topics are made. Read with kafka-python and
with Kafka's own console consumer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions

from scribengin.base.commit_log import Decision
from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.kafka.sink import sink as sink_module
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.records import HEADERS
from scribengin.connectors.kafka.sink.sink import KafkaSink
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, DataflowError, RecordRefused, RecordTooLarge, SystemUnreachable
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.servers.kafka_clients import PATIENT, await_markers, committed_records

AT = datetime(2013, 1, 1, 5, 17, tzinfo=UTC)


class Rounds:
    """A sink's only writer, and whole rounds of it without a registry to commit in."""

    def __init__(self, registry: Registry, kafka: KafkaServer, **settings: Any) -> None:
        value = {"kind": "kafka", "bootstrap": kafka.bootstrap, "topic": f"t-{uuid.uuid4().hex[:8]}", "create": {}}
        self.config = KafkaSinkConfig.parse({**value, **settings}, source="a test")
        sink = open_sink("out", self.config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))
        assert isinstance(sink, KafkaSink)
        self.sink = sink
        self.rounds = 0
        (stream,) = sink.streams(1)
        sink.create([stream])
        self.coordinator = sink.open_coordinator(stream, "task-0") if sink.coordinator_id(stream) else None
        if self.coordinator is not None:
            assert self.coordinator.recover() is None
        self.writer: SinkStreamWriter = sink.open_writer(stream, Attempt("owner", 1, "/commit-log", self.coordinator))
        self.writer.recover(None)

    def round(self, *batches: pa.RecordBatch) -> None:
        for batch in batches:
            self.writer.write(batch)
        prepared = self.writer.prepare_commit()
        assert prepared is not None
        assert prepared.records == sum(batch.num_rows for batch in batches)
        if self.coordinator is not None:
            self.rounds += 1
            self.coordinator.prepare(Decision(coordinator=self.coordinator.name, epoch=1, round=self.rounds))
            self.coordinator.commit()
        self.writer.complete_commit(prepared)

    def close(self) -> None:
        self.writer.close()
        if self.coordinator is not None:
            self.coordinator.close()
        self.sink.close()

    def seen(self) -> list[Any]:
        """What readers of committed records see, a record each."""
        return committed_records(self.config.bootstrap, self.config.topic)


@pytest.fixture
def rounds(registry: Registry, kafka: KafkaServer) -> Iterator[Any]:
    """Make a sink with settings of its own; what was made is closed afterwards."""
    opened: list[Rounds] = []

    def make(**settings: Any) -> Rounds:
        opened.append(Rounds(registry, kafka, **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def batch(payloads: list[bytes | None], **columns: Any) -> pa.RecordBatch:
    """Records with these payloads."""
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), **columns})


def test_a_record_carries_its_key_headers_timestamp_and_partition(rounds: Any) -> None:
    one = rounds(create={"partitions": 4, "config": {"retention.ms": -1}})  # else what is from 2013 may go at once
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], None], HEADERS)
    one.round(
        batch(
            [b"first", b"second", b"third"],
            key=pa.array([b"k", None, b"k"]),
            headers=headers,
            timestamp=pa.array([AT, AT, AT], pa.timestamp("us", tz="UTC")),
            partition=pa.array([3, 2, 3], pa.int32()),
        )
    )
    ms = int(AT.timestamp() * 1000)
    told = {r.value: (r.key, r.headers, r.timestamp, r.partition) for r in one.seen()}
    assert told == {
        b"first": (b"k", [("a", b"1"), ("a", None)], ms, 3),
        b"second": (None, [], ms, 2),
        b"third": (b"k", [], ms, 3),
    }


def test_a_key_goes_where_javas_producer_puts_it_and_a_record_without_one_to_the_streams_own_partition(
    rounds: Any, kafka: KafkaServer
) -> None:
    one = rounds(create={"partitions": 5})
    names = [b"key-%d" % n for n in range(20)]
    one.round(batch([b"ours"] * 21, key=pa.array([*names, None], pa.binary())))
    lines = "".join(f"{name.decode()}:javas\n" for name in names)
    words = ["--topic", one.config.topic, "--property", "parse.key=true", "--property", "key.separator=:"]
    kafka.run("org.apache.kafka.tools.ConsoleProducer", words, stdin=lines)
    ours = {record.key: record.partition for record in one.seen() if record.value == b"ours"}
    javas = {record.key: record.partition for record in one.seen() if record.value == b"javas"}
    assert ours.pop(None) == 0
    assert ours == javas
    assert len(set(ours.values())) > 1


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_partition_that_was_added_since_the_writer_was_opened_is_written(rounds: Any, guarantee: str) -> None:
    one = rounds(create={"partitions": 1}, guarantee=guarantee)
    one.round(batch([b"before"]))
    with closing(KafkaAdminClient(bootstrap_servers=one.config.bootstrap, **PATIENT)) as admin:
        admin.create_partitions({one.config.topic: NewPartitions(3)})
    added = batch([b"added"], partition=pa.array([2], pa.int32()))
    wait_until(lambda: takes(one.writer, added), 60, "the new partitions")
    one.round(added)
    assert {record.value: record.partition for record in one.seen()} == {b"before": 0, b"added": 2}


def takes(writer: SinkStreamWriter, records: pa.RecordBatch) -> bool:
    try:
        writer.check(records)
    except RecordRefused:
        return False
    return True


def test_an_abort_does_not_overtake_what_it_aborts(rounds: Any) -> None:
    one = rounds(client={"linger.ms": 30_000})  # so that nothing has left when the abort begins
    one.writer.write(batch([b"aborted"] * 3))
    one.writer.rollback()
    with closing(KafkaAdminClient(bootstrap_servers=one.config.bootstrap, **PATIENT)) as admin:
        await_markers(admin)
    consumer = KafkaConsumer(bootstrap_servers=one.config.bootstrap, isolation_level="read_uncommitted", **PATIENT)
    place = TopicPartition(one.config.topic, 0)
    assert consumer.end_offsets([place])[place] == 4, "three records, and the marker of their end"
    consumer.close()
    one.round(batch([b"committed"]))
    assert [record.value for record in one.seen()] == [b"committed"]


def test_the_console_consumer_sees_committed_records_only(rounds: Any, kafka: KafkaServer) -> None:
    one = rounds()
    one.round(batch([b"committed"]))
    one.writer.write(batch([b"staged"]))
    one.writer.rollback()
    one.round(batch([b"committed too"]))
    words = ["--topic", one.config.topic, "--from-beginning", "--timeout-ms", "60000", "--max-messages", "2"]
    printed = kafka.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", [*words, "--isolation-level", "read_committed"]
    )
    assert printed.split("\n")[:2] == ["committed", "committed too"]


def test_a_record_that_the_topic_would_refuse_is_refused_before_anything_is_staged(rounds: Any) -> None:
    one = rounds(create={"config": {"max.message.bytes": 10_000}})
    for columns in ({}, {"key": pa.array([b"", b"k" * 4_900])}):
        large = batch([b"small", b"x" * (9_900 - 4_900 * bool(columns))], **columns)
        with pytest.raises(
            RecordTooLarge, match=r"a record of 9900 bytes, and max.message.bytes of the topic is 10000"
        ):
            one.writer.write(large)
    headers = pa.array([[{"key": "h", "value": b"v" * 9_900}]], HEADERS)
    with pytest.raises(RecordTooLarge, match=r"a record of 99\d\d bytes"):
        one.writer.write(batch([b""], headers=headers))
    one.round(batch([b"x" * 9_800], headers=pa.array([[]], HEADERS)), batch([b"y" * 3_000] * 50))
    assert [len(record.value) for record in one.seen()] == [9_800, *[3_000] * 50]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"payload": pa.array([b"good", None])}, "a record without a payload; `tombstones: true` allows them"),
        ({"other": pa.array([b"x"])}, "the output has no column 'payload'"),
        ({"payload": ["x"], "partition": pa.array([3], pa.int32())}, "a record's `partition` is 3, and there are 1"),
        ({"payload": ["x"], "partition": pa.array([-1], pa.int32())}, "a record's `partition` is -1"),
        (
            {"payload": ["x"], "timestamp": pa.array([2**45], pa.timestamp("ms", "UTC"))},
            "takes none .* 3600000 ms after",
        ),
        ({"payload": ["x"], "headers": pa.array([1])}, "column 'headers' of a Kafka sink is list<"),
        ({"payload": ["x"], "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, "header .* has no key"),
    ],
    ids=[
        "no payload",
        "no column",
        "no such partition",
        "negative partition",
        "the far future",
        "no headers",
        "no header's key",
    ],
)
def test_what_cannot_be_a_record_is_refused_before_anything_is_staged(
    rounds: Any, wrong: dict[str, Any], said: str
) -> None:
    one = rounds()
    with pytest.raises(DataflowError, match=said):
        one.writer.write(pa.record_batch(wrong))
    assert one.writer.prepare_commit() is None


def test_a_null_payload_is_a_tombstone_where_that_is_wanted(rounds: Any) -> None:
    one = rounds(tombstones=True)
    one.round(batch([None, b""], key=pa.array([b"gone", b"empty"])))
    assert [(record.key, record.value) for record in one.seen()] == [(b"gone", None), (b"empty", b"")]


def test_a_topic_is_made_as_configured_and_only_then(rounds: Any, registry: Registry, kafka: KafkaServer) -> None:
    one = rounds(
        create={"partitions": 3, "replication": 1, "config": {"retention.ms": 12_345_678, "preallocate": True}}
    )
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap, **PATIENT)
    (described,) = admin.describe_topics([one.config.topic])
    assert len(described["partitions"]) == 3
    found = str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, one.config.topic)]))
    assert "12345678" in found
    admin.close()
    missing = KafkaSinkConfig.parse({"kind": "kafka", "bootstrap": kafka.bootstrap, "topic": "no"}, source="a test")
    sink = open_sink("out", missing, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))
    with pytest.raises(ConfigInvalid, match=f"sink 'out': there is no topic no at {kafka.bootstrap}; make it, or have"):
        assert sink.resource


def test_a_cluster_that_forgets_too_soon_is_refused(
    registry: Registry, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "RETENTION_MINUTES_MIN", 7 * 24 * 60 + 1)  # the brokers' default is seven days
    value = {"kind": "kafka", "bootstrap": kafka.bootstrap, "topic": "forgotten", "create": {}}
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    sink = open_sink("out", KafkaSinkConfig.parse(value, source="a test"), environment)
    with pytest.raises(ConfigInvalid, match="forget offsets after 10080 minutes and transactional ids after 604800000"):
        assert sink.resource
    once = KafkaSinkConfig.parse({**value, "guarantee": "at_least_once"}, source="a test")
    assert open_sink("out", once, environment).resource.endswith("/forgotten")


def test_at_least_once_is_visible_before_the_round_commits_and_says_so(rounds: Any) -> None:
    one = rounds(guarantee="at_least_once")
    assert (one.sink.guarantee, one.coordinator) == ("at least once", None)
    one.writer.write(batch([b"1", b"2"]))
    prepared = one.writer.prepare_commit()
    assert (prepared.records, [record.value for record in one.seen()]) == (2, [b"1", b"2"])
    one.writer.recover(None)
    one.round(batch([b"1", b"2"]))
    assert [record.value for record in one.seen()] == [b"1", b"2"] * 2


def test_a_broker_that_does_not_answer_is_one_clear_line(registry: Registry) -> None:
    config = KafkaSinkConfig.parse({"kind": "kafka", "bootstrap": "127.0.0.1:1", "topic": "t"}, source="a test")
    sink = open_sink("out", config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))
    with pytest.raises(SystemUnreachable, match=r"^Kafka at 127.0.0.1:1, asking for the cluster's id: .*$"):
        assert sink.resource


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"topic": "no/topic"}, "'no/topic' is no name of a topic"),
        ({"client": {"transactional.id": "mine"}}, "'transactional.id' is set by Scribengin"),
        ({"guarantee": "at_most_once"}, "guarantee: 'at_most_once' is none of exactly_once, at_least_once"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        KafkaSinkConfig.parse(
            {"kind": "kafka", "bootstrap": "localhost:9092", "topic": "t", **setting}, source="a test"
        )
