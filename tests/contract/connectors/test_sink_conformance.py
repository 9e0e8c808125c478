"""Our own sinks pass the suite that users run on theirs, on a real registry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.connectors import Environment, open_sink
from scribengin.connectors.files import FileSinkConfig
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.log.sink import LogSinkConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.log import LogNamespace
from scribengin.testing import check_sink
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry


@pytest.fixture
def environment(registry: Registry) -> Environment:
    return Environment(registry=registry, dataflow="conformance", nodes=STREAM_NODES)


@pytest.mark.parametrize(
    ("text", "merge_bytes", "merge_age_s"),
    [("json", 64 * 1024 * 1024, 5.0), ("raw", 100, 0.0)],
    ids=["as by default", "many small parts, merged at once"],
)
@pytest.mark.parametrize("place", ["local", "in-memory"])
def test_files_are_a_sink(
    environment: Environment, tmp_path: Path, place: str, text: str, merge_bytes: int, merge_age_s: float
) -> None:
    value = {
        "kind": "hdfs",
        "path": str(tmp_path / "out") if place == "local" else "in-memory://out",
        "format": text,
        "merge_bytes": merge_bytes,
        "merge_age_s": merge_age_s,
    }
    config = FileSinkConfig.parse(value, source="a test")
    with MemoryFiles().opened_by("in-memory"):
        check_sink(lambda: open_sink("out", config, environment), environment.registry)


def test_a_log_is_a_sink(environment: Environment, tmp_path: Path) -> None:
    LogNamespace.bind("/logs", tmp_path, registry=environment.registry)
    config = LogSinkConfig.parse({"kind": "log", "log": "out"}, source="a test")
    check_sink(lambda: open_sink("out", config, environment), environment.registry)


@pytest.fixture(
    params=[
        pytest.param("broker", marks=pytest.mark.servers),
        "memory",
        pytest.param("marks come late", marks=pytest.mark.full),
    ]
)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a Kafka."""
    if request.param == "broker":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    with MemoryKafka("in-memory:3").serving() as memory:
        if request.param == "marks come late":
            delays_s = itertools.cycle((0.0, 0.02, 0.05))
            memory.mark_after_s = lambda _id, _place: next(delays_s)
        yield memory.bootstrap


def test_a_kafka_topic_is_a_sink(environment: Environment, bootstrap: str) -> None:
    value = {
        "kind": "kafka",
        "bootstrap": bootstrap,
        "topic": "conformance",
        "create": {"partitions": 24},
        "partition_by": "stream",
    }
    config = KafkaSinkConfig.parse(value, source="a test")
    check_sink(lambda: open_sink("out", config, environment), environment.registry)
