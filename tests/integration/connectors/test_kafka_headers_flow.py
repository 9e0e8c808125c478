"""A dataflow out of a topic with headers that cannot be read: their records are bad ones. With Kafka in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import TransformationFailed
from scribengin_registry.contract import Registry
from tests.integration.connectors.kafka_rounds import ToAll
from tests.integration.owners import owners_of
from tests.servers.kafka_memory import MemorySide

ROUTE = {"errors": {"action": "route", "sink": "bad"}}


@pytest.fixture
def kafka() -> Iterator[MemorySide]:
    """A topic `in` of nine records. The headers of the third, and of the last, cannot be read."""
    memory = MemorySide("in-memory:7")
    with memory.serving():
        for topic in ("in", "out", "bad"):
            memory.create(topic)
        for n in range(9):
            name = b"\xff" if n in (2, 8) else "name"
            memory.send_record("in", b"%d" % n, key=b"k", timestamp_ms=1, headers=[(name, b"value")])
        yield memory


@contextmanager
def owner(registry: Registry, kafka: MemorySide, source: dict[str, Any], **settings: Any) -> Iterator[RoundRunner]:
    where = {"kind": "kafka", "bootstrap": kafka.bootstrap}
    value = {
        "name": "flow",
        "sources": {"in": {**where, "topics": "in", "mirror_offsets": False, **source}},
        "sinks": {name: {**where, "topic": name} for name in ("out", "bad")[: 1 + bool(settings)]},
        "sql": {"out": "SELECT 1"},
        **settings,
    }
    config = DataflowConfig.parse(value, source="the test")
    with OpenedDataflow(config, Environment(registry, "flow", STREAM_NODES)) as opened:
        [runner] = owners_of(registry, opened, ToAll(["out"]))
        runner.take_over()
        yield runner


def values(kafka: MemorySide, topic: str) -> list[bytes]:
    kafka.write_marks()
    found = kafka.topics[topic].partitions[0].records((topic, 0), 0, committed=True)
    return [entry.record.value or b"" for entry in found if entry.record is not None]


def test_the_task_stops_before_the_first_one_and_says_which_it_is_and_what_to_do(
    memory_registry: Registry, kafka: MemorySide
) -> None:
    with owner(memory_registry, kafka, {}) as runner:
        with pytest.raises(TransformationFailed) as raised:
            runner.run_round()
        assert "the name of one is not UTF-8" in str(raised.value)
        assert "`headers: drop`" in str(raised.value)
        assert "topic in, partition 0, offset 2, of in/in/0" in str(raised.value)
        assert values(kafka, "out") == []


def test_they_go_the_error_route_with_what_can_be_read_of_them(memory_registry: Registry, kafka: MemorySide) -> None:
    with owner(memory_registry, kafka, {}, **ROUTE) as runner:
        while runner.lag():
            outcome = runner.run_round()
        assert outcome is not None
        assert outcome.records_bad == 2
    assert values(kafka, "out") == [b"out:%d" % n for n in range(9) if n not in (2, 8)]
    told = [json.loads(value) for value in values(kafka, "bad")]
    assert [(one["payload"], one["key"], one["place"]) for one in told] == [
        (str(n), "k", f"topic in, partition 0, offset {n}") for n in (2, 8)
    ]
    assert all("the name of one is not UTF-8" in one["reason"] for one in told)


def test_without_headers_everything_is_read(memory_registry: Registry, kafka: MemorySide) -> None:
    with owner(memory_registry, kafka, {"headers": "drop"}) as runner:
        while runner.lag():
            runner.run_round()
    assert values(kafka, "out") == [b"out:%d" % n for n in range(9)]
