"""A topic that is changed while a sink's writers are open: what it takes now is no bad record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import Decision
from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.current import CurrentTarget
from scribengin.connectors.kafka.sink.records import Target
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import RecordRefused, RecordTooLarge
from scribengin.testing.clocks import ManualClock
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_registry.contract import Registry

BOOTSTRAP = "in-memory-changes:1"


@pytest.fixture
def cluster() -> Iterator[MemoryKafka]:
    with MemoryKafka(BOOTSTRAP).serving() as cluster:
        cluster.create("out", partitions=1, max_message_bytes="1000")
        yield cluster


@pytest.fixture(params=["exactly_once", "at_least_once"])
def writer(request: pytest.FixtureRequest, cluster: MemoryKafka, memory_registry: Registry) -> Iterator[Any]:
    """Of the topic `out`, opened before anything changes there."""
    value = {"kind": "kafka", "bootstrap": BOOTSTRAP, "topic": "out", "guarantee": request.param}
    config = KafkaSinkConfig.parse(value, source="a test")
    sink = open_sink("out", config, Environment(registry=memory_registry, dataflow="flow", nodes=STREAM_NODES))
    (stream,) = sink.streams(1)
    sink.create([stream])
    coordinator = sink.open_coordinator(stream, "task-0") if sink.coordinator_id(stream) else None
    if coordinator is not None:
        coordinator.recover()
        coordinator.establish(Decision(coordinator=coordinator.name, epoch=1, round=0))
    with closing(sink.open_writer(stream, Attempt("owner", 1, "/commit-log", coordinator))) as writer:
        yield writer
    if coordinator is not None:
        coordinator.close()


def to_partition(number: int, payload: bytes = b"1") -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array([payload], pa.binary()), "partition": pa.array([number], pa.int32())})


def test_a_partition_that_was_added_is_written(cluster: MemoryKafka, writer: SinkStreamWriter) -> None:
    cluster.add_partitions("out", 3)
    writer.check(to_partition(2))
    writer.write(to_partition(2))
    prepared = writer.prepare_commit()
    assert prepared is not None
    assert prepared.records == 1
    with pytest.raises(RecordRefused, match="is 3, and there are 3"):
        writer.check(to_partition(3))


def test_a_record_that_is_not_too_large_any_more_is_written(cluster: MemoryKafka, writer: SinkStreamWriter) -> None:
    large = to_partition(0, b"x" * 2000)
    cluster.topics["out"].settings["max.message.bytes"] = "5000"
    writer.check(large)
    writer.write(large)
    assert writer.payload_bytes_max == 4800


def test_where_records_without_a_partition_go_stays() -> None:
    seen = iter([target(1), target(3, partition=2)])
    current = CurrentTarget(lambda: next(seen), SYSTEM_CLOCK)
    current.checked(to_partition(2))
    assert current.now == target(3)


def test_bad_records_do_not_ask_the_cluster_one_by_one() -> None:
    looks, clock = [], ManualClock()
    current = CurrentTarget(lambda: looks.append(1) or target(1), clock)  # type: ignore[func-returns-value]
    for _record in range(100):
        with pytest.raises(RecordRefused):
            current.checked(to_partition(1))
    assert len(looks) == 2, "at the beginning, and at the first bad one"
    clock.advance_s(1.5)
    with pytest.raises(RecordTooLarge):
        current.checked(to_partition(0, b"x" * 2000))
    assert len(looks) == 3


def target(partitions: int, partition: int = 0) -> Target:
    return Target("out", partitions, partition, 1000, by_key=True, tombstones=False)
