"""A chain's file: what it may say, and which dataflow feeds which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.log.sink import LogSinkConfig
from scribengin.connectors.log.source import LogSourceConfig
from scribengin.dataflow.edges import Edge, unawaited
from scribengin.errors import ConfigInvalid
from scribengin.operations.chain.config import ChainConfig, is_chain, load_chain
from scribengin.operations.chain.graph import graph_of
from scribengin.operations.submit.memory import planned


def flow(source: dict[str, Any], *sinks: dict[str, Any]) -> dict[str, Any]:
    """A dataflow from one source to some sinks."""
    named = {f"out{k or ''}": sink for k, sink in enumerate(sinks)}
    return {"sources": {"src": source}, "sinks": named, "transformation": "flow:run"}


def reads(logs: str, **more: Any) -> dict[str, Any]:
    return {"kind": "log", "logs": logs, **more}


def writes(log: str, **more: Any) -> dict[str, Any]:
    return {"kind": "log", "log": log, **more}


def chain(directory: Path, **value: Any) -> ChainConfig:
    path = directory / "chain.yaml"
    path.write_text(yaml.safe_dump({"name": "orders", **value}, sort_keys=False))
    assert is_chain(path)
    return load_chain(path)


@pytest.mark.parametrize(
    ("container", "memory_mb"), [({}, 2560), ({"cores": 2}, 3072), ({"memory_mb": 2048, "cores": 2}, 2048)]
)
def test_a_dataflow_of_a_chain_gets_the_memory_that_it_gets_alone(
    container: dict[str, int], memory_mb: int, tmp_path: Path
) -> None:
    made = chain(tmp_path, dataflows={"first": {**flow(reads("in/*"), writes("out")), "container": container}})
    assert planned(made.dataflows["first"], {"sources.src": "all"}).container.memory_mb == memory_mb


def test_dataflows_stand_in_the_order_in_which_records_flow_whatever_the_file_says(tmp_path: Path) -> None:
    graph = graph_of(
        chain(
            tmp_path,
            dataflows={
                "last": flow(reads("mid/*"), writes("out")),
                "first": flow(reads("in/*"), writes("mid"), writes("bad")),
                "beside": flow(reads("bad/0"), writes("repaired")),
            },
        )
    )
    assert graph.order == ("first", "last", "beside")
    assert graph.edges == (
        Edge("first", "out", "log mid", "last", "src"),
        Edge("first", "out1", "log bad", "beside", "src"),
    )
    assert graph.problems == ()
    assert graph.is_fed("last", "src")
    assert not graph.is_fed("first", "src")


def test_it_is_known_which_reader_nobody_waits_for_when_tasks_are_scaled(tmp_path: Path) -> None:
    topic = {"kind": "kafka", "bootstrap": "one:9092", "topic": "raw"}
    found = chain(
        tmp_path,
        topics={"raw": {"bootstrap": "one:9092", "create": {"partitions": 3}}},
        dataflows={
            "first": flow(reads("in/*"), writes("mid")),
            "held": flow(reads("mid/*"), writes("late"), topic),
            "far": flow({"kind": "kafka", "bootstrap": "one:9092", "topics": "raw"}, writes("out")),
            "free": flow(reads("late/*", retention_hold=False), writes("free")),
            "ring": flow(reads("free/*"), writes("ring")),
            "back": flow(reads("ring/*"), writes("free2")),
        },
    ).dataflows
    first = unawaited(found, "first")
    assert first is not None
    assert (first.writer, first.reader) == ("held", "free"), "not right behind it, and reached through one that waits"
    without = {name: config for name, config in found.items() if name != "free"}
    assert unawaited(without, "first") == Edge("held", "out1", "topic raw", "far", "src")
    assert unawaited({name: without[name] for name in ("first", "held")}, "first") is None
    assert unawaited(found, "free") is None
    circle = {
        "ring": found["ring"],
        "back": found["back"].model_copy(update={"sinks": {"out": found["free"].sinks["out"]}}),
    }
    assert unawaited(circle, "ring") is None


def test_topics_and_directories_join_dataflows_as_logs_do(tmp_path: Path) -> None:
    kafka = {"kind": "kafka", "bootstrap": "one:9092,two:9092"}
    found = chain(
        tmp_path,
        topics={"raw": {"bootstrap": "one:9092", "create": {"partitions": 3}}},
        dataflows={
            "a": flow(reads("in/*"), {**kafka, "topic": "raw"}),
            "b": flow({"kind": "kafka", "bootstrap": "two:9092", "topics": "raw"}, {"kind": "hdfs", "path": "/files"}),
            "c": flow({"kind": "hdfs", "path": "/files/part-*"}, writes("out")),
        },
    )
    graph = graph_of(found)
    assert [(e.writer, e.place, e.reader) for e in graph.edges] == [
        ("a", "topic raw", "b"),
        ("b", "files /files", "c"),
    ]
    assert graph.problems == ()
    sink = found.dataflows["a"].sinks["out"]
    assert isinstance(sink, KafkaSinkConfig)
    assert sink.create is not None
    assert sink.create.partitions == 3


@pytest.mark.parametrize(
    ("pattern", "log", "met"),
    [("a/*", "a", True), ("a*", "a", True), ("*", "a", True), ("?/0", "a", True), ("[ab]/1", "b", True),
     ("a/1?", "a", True), ("a/999", "a", True), ("a/1000", "a", False), ("ab/*", "a", False), ("a/*", "ab", False),
     ("a/b/*", "a", False), ("a/b/*", "a/b", True), ("a", "a", False), ("[ab]/1", "c", False)],
)  # fmt: skip
def test_a_source_reads_what_a_sink_writes_where_its_pattern_matches_a_stream(
    pattern: str, log: str, met: bool
) -> None:
    assert LogSourceConfig(kind="log", logs=pattern).meets(LogSinkConfig(kind="log", log=log).endpoint()) is met


def test_names_of_the_dataflows_are_those_of_the_chain_and_packages_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    own = {"name": "whatever", "package": "code", **flow(reads("mid/*"), writes("out"))}
    (tmp_path / "sub" / "second.yaml").write_text(yaml.safe_dump(own))
    found = chain(tmp_path, dataflows={"a": flow(reads("in/*"), writes("mid")), "b": "sub/second.yaml"})
    assert {key: one.name for key, one in found.dataflows.items()} == {"a": "orders-a", "b": "orders-b"}
    assert found.dataflows["a"].package == str(tmp_path)
    assert found.dataflows["b"].package == str(tmp_path / "sub" / "code")


def test_values_of_one_dataflow_are_overridden_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump({"name": "x", "dataflows": {"a": flow(reads("in"), writes("mid"))}}))
    assert load_chain(path, {"a.workers": "3"}).dataflows["a"].workers == 3
    with pytest.raises(ConfigInvalid, match=r"--set workers: of a chain, write DATAFLOW.KEY=VALUE .*: a\)"):
        load_chain(path, {"workers": "3"})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"dataflows": {"a": flow(reads("c/*"), writes("b")), "b": flow(reads("b/*"), writes("c"))}},
            "a feeds b feeds a: a chain flows in one direction",
        ),
        ({"dataflows": {"a": flow(reads("b/*"), writes("b"))}}, "a feeds a: a chain flows in one direction"),
        (
            {"dataflows": {"a": flow(reads("in"), writes("m")), "b": flow(reads("in"), writes("/m/"))}},
            "a.out and b.out both write log m: a sink has one writer",
        ),
        (
            {"dataflows": {"a": flow(reads("i"), writes("m")), "b": flow(reads("m/*", start="latest"), writes("o"))}},
            "b.src reads what a writes and has `start: latest`",
        ),
        (
            {
                "dataflows": {
                    "a": flow(reads("in"), {**writes("m"), "streams": 4, "partition_by": ["payload"]}),
                    "b": {**flow(reads("m/*", streams=8, partition_by=["payload"]), writes("o")), "state": {}},
                }
            },
            "a.out divides its records among 4 streams, and b.src says 8: say the same number",
        ),
        ({"logs": {"inn": None}, "dataflows": {"a": flow(reads("in"), writes("m"))}}, "logs.inn: no dataflow"),
        (
            {"topics": {"t": {"bootstrap": "h:1"}}, "dataflows": {"a": flow(reads("in"), writes("m"))}},
            "topics.t: no dataflow",
        ),
    ],
)
def test_what_is_wrong_with_a_graph_is_one_line(tmp_path: Path, value: dict[str, Any], said: str) -> None:
    (problem,) = graph_of(chain(tmp_path, **value)).problems
    assert problem.startswith(said)
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"dataflows": {}}, "dataflows: give at least one"),
        ({"dataflows": {"a": 7}}, "dataflows.a: give a descriptor, or the path of one"),
        ({"dataflows": {"a": "none.yaml"}}, "none.yaml: there is no such file"),
        ({"dataflows": {"a": {"name": "b"}}}, "dataflows.a: its name is 'a' already"),
        ({"dataflows": {"a": {**flow(reads("i"), writes("m")), "wrokers": 1}}}, "dataflows.a: unknown key 'wrokers'"),
        ({"log": {}, "dataflows": {"a": flow(reads("i"), writes("m"))}}, "unknown key 'log'"),
        ({"logs": {"i": {"strems": 2}}, "dataflows": {"a": flow(reads("i"), writes("m"))}}, "unknown key 'logs.i.str"),
        ({"name": "a b", "dataflows": {"a": flow(reads("i"), writes("m"))}}, "name: 'a b' is no name"),
    ],
)
def test_what_is_no_chain_is_one_line(tmp_path: Path, value: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        chain(tmp_path, **value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
