"""The table of kinds is all that the engine knows of connectors; configurations say where they read and write."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.connectors import KINDS
from scribengin.connectors.contract import Endpoint, SinkConfig, SourceConfig
from scribengin.dataflow.config import DataflowConfig
from tests.house.rooms import imported_modules
from tests.house.tree import expect_none, shipped_files

KAFKA = {"kind": "kafka", "bootstrap": "b:2,a:1"}
LOG = {"kind": "log", "namespace": "/logs"}
ENDS: list[tuple[dict[str, Any], dict[str, Any], str, bool]] = [
    ({**LOG, "log": "/a/"}, {**LOG, "logs": "a/*"}, "log a", True),
    ({**LOG, "log": "a"}, {**LOG, "logs": "a/999"}, "log a", True),
    ({**LOG, "log": "a"}, {**LOG, "logs": "ab/*"}, "log a", False),
    ({**LOG, "log": "a"}, {"kind": "log", "namespace": "/others", "logs": "a/*"}, "log a", False),
    ({**KAFKA, "topic": "t"}, {"kind": "kafka", "bootstrap": "a:1", "topics": ["t"]}, "topic t", True),
    ({**KAFKA, "topic": "t"}, {"kind": "kafka", "bootstrap": "c:1", "topics": ["t"]}, "topic t", False),
    ({**KAFKA, "topic": "t"}, {**KAFKA, "pattern": "x.*"}, "topic t", False),
    ({"kind": "hdfs", "path": "/d/"}, {"kind": "hdfs", "path": "/d/day=1"}, "files /d", True),
    ({"kind": "hdfs", "path": "/d"}, {"kind": "hdfs", "path": "/dd"}, "files /d", False),
    ({"kind": "hdfs", "path": "/logs"}, {**LOG, "logs": "/logs/*"}, "files /logs", False),
    ({"kind": "spark", "spark_format": "x"}, {"kind": "spark", "spark_format": "x"}, "table of Spark", False),
]


def sink_of(value: dict[str, Any]) -> SinkConfig:
    return KINDS[value["kind"]].sink.parse(value, source="a test")


def source_of(value: dict[str, Any]) -> SourceConfig:
    return KINDS[value["kind"]].source.parse(value, source="a test")


@pytest.mark.parametrize(("sink", "source", "words", "met"), ENDS)
def test_a_source_knows_whether_it_reads_what_a_sink_writes(
    sink: dict[str, Any], source: dict[str, Any], words: str, met: bool
) -> None:
    assert str(sink_of(sink).endpoint()) == words
    assert source_of(source).meets(sink_of(sink).endpoint()) is met


@pytest.mark.parametrize("sink", [ENDS[0][0], ENDS[4][0]])
def test_what_reads_a_sink_back_meets_it(sink: dict[str, Any]) -> None:
    back = sink_of(sink).read_back()
    assert back is not None
    assert back.source.meets(sink_of(sink).endpoint())


def test_the_order_of_brokers_is_nobodys() -> None:
    assert sink_of({**KAFKA, "topic": "t"}).endpoint() == Endpoint("topic", "a:1,b:2", "t")


def test_a_descriptor_takes_every_kind_of_the_table() -> None:
    schema = DataflowConfig.model_json_schema()
    for place in ("sources", "sinks"):
        assert set(schema["properties"][place]["additionalProperties"]["discriminator"]["mapping"]) == set(KINDS)


def test_a_configuration_says_the_kind_under_which_it_stands() -> None:
    for kind, entry in KINDS.items():
        for model in (entry.source, entry.sink):
            assert model.model_json_schema()["properties"]["kind"]["const"] == kind


def test_nobody_outside_of_connectors_asks_of_which_kind_a_configuration_is() -> None:
    """What is about one system alone may: a chain's topics, the files that a sink has left, what logs hold back."""
    configs = {f"{one.__module__}.{one.__name__}" for kind in KINDS.values() for one in (kind.source, kind.sink)}
    about_one_system = {
        "scribengin.dataflow.followers": {"LogSinkConfig"},
        "scribengin.dataflow.retention_holds": {"LogSourceConfig"},
        "scribengin.operations.registry.leftover_claims": {"FileSinkConfig"},
        "scribengin.testing.simulation.streams.files": {"FileSinkConfig"},
        "scribengin.testing.simulation.streams.kafka": {"KafkaSinkConfig", "KafkaSourceConfig"},
    }
    inside = "scribengin.connectors"
    found = {
        (file.module, name.rpartition(".")[2])
        for file in shipped_files()
        if not file.module.startswith((inside, "scribengin_dev"))
        for name, _ in imported_modules(file)
        if name in configs or (name.startswith(inside) and name.endswith(("SourceConfig", "SinkConfig")))
    }
    shared = {"AnySourceConfig", "AnySinkConfig", "SourceConfig", "SinkConfig"}
    expect_none(
        f"{m} imports {n}" for m, n in sorted(found) if n not in shared and n not in about_one_system.get(m, ())
    )
