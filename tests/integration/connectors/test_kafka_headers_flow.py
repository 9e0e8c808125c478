"""A dataflow out of a topic with headers that cannot be read: their records are bad ones.

With Kafka in memory, whose client reads all headers. That the real one does not, and how that is seen:
`tests/contract/connectors/test_source_kafka_headers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message

from scribengin.connectors import Environment
from scribengin.connectors.kafka.source import columns
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import TransformationFailed
from scribengin_registry.contract import Registry
from tests.integration.connectors.kafka_rounds import ToAll
from tests.integration.owners import owners_of
from tests.servers.kafka_memory import MemorySide

ODD = "a name that is not UTF-8"
ROUTE = {"errors": {"action": "route", "sink": "bad"}}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemorySide]:
    """A topic `in` of nine records. The headers of the third, and of the last, cannot be read."""
    monkeypatch.setattr(columns, "_read_headers", without_odd_ones)
    memory = MemorySide("in-memory:7")
    with memory.serving():
        for topic in ("in", "out", "bad"):
            memory.create(topic)
        for n in range(9):
            name = ODD if n in (2, 8) else "name"
            memory.send_record("in", b"%d" % n, key=b"k", timestamp_ms=1, headers=[(name, b"value")])
        yield memory


def without_odd_ones(messages: list[Message]) -> tuple[list[Any], list[int]]:
    """As `columns._read_headers` gives those of the real client."""
    found = [message.headers() for message in messages]
    odd = [n for n, headers in enumerate(found) if headers and headers[0][0] == ODD]
    return [None if n in odd else headers for n, headers in enumerate(found)], odd


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
