"""What is wrong with a configuration, in the words of who writes it: no pydantic, no types of Python, no tags."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.errors import ConfigInvalid, DescriptorUnreadable
from scribengin.log import LogConfig

FLOW: dict[str, Any] = {
    "name": "loud",
    "sources": {"pkgs": {"kind": "hdfs", "path": "/in"}},
    "sinks": {"out": {"kind": "log", "log": "out"}},
    "sql": "SELECT payload FROM pkgs",
}
THEIRS = (
    "value error",
    "input should",
    "should be",
    "should match",
    "input tag",
    "field required",
    "str_",
    "dict[",
    "valid ",
    "type=",
    "parse",
)


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigInvalid) as error:
        load_config({**FLOW, **changes})
    text = str(error.value)
    assert not [word for word in THEIRS if word in text.lower()], text
    return text.removeprefix("the dataflow: ")


def source(**keys: Any) -> dict[str, Any]:
    return {"pkgs": {"kind": "hdfs", "path": "/in", **keys}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wrokers": 2}, "unknown key 'wrokers': did you mean 'workers'?"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"sources": source(file_formt="text")}, "unknown key 'sources.pkgs.file_formt': did you mean 'file_format'?"),
        ({"sinks": {"out": {"kind": "log", "log": "x", "creat": False}}}, "unknown key 'sinks.out.creat': did you"),
        ({"sources": source(file_format="txt")}, "sources.pkgs.file_format: 'txt' is none of text, binary, parquet"),
        (
            {"sources": {"pkgs": {"kind": "hfds"}}},
            "sources.pkgs.kind: 'hfds' is none of log, hdfs, kafka, spark, dafka: did",
        ),
        ({"sources": {"pkgs": {"path": "/in"}}}, "sources.pkgs.kind: is missing"),
        ({"sources": {"pkgs": {"kind": "hdfs"}}}, "sources.pkgs.path: is missing"),
        ({"sources": {}}, "sources: is empty"),
        ({"workers": "many"}, "workers: 'many' is no whole number"),
        ({"workers": 1.5}, "workers: 1.5 is no whole number"),
        ({"workers": float("inf")}, "workers: inf is no number to count with"),
        ({"settings": {3: "x"}}, "settings"),
        ({"workers": -1}, "workers: -1 is too low: 0 or more"),
        ({"session_timeout_s": "x"}, "session_timeout_s: 'x' is no number"),
        ({"round": {"records_max": 0}}, "round.records_max: 0 is too low: 1 or more"),
        ({"metrics_port": 70_000}, "metrics_port: 70000 is too high: at most 65535"),
        ({"sources": source(follow="perhaps")}, "sources.pkgs.follow: 'perhaps' is neither true nor false"),
        ({"sources": source(on_their_way=3)}, "sources.pkgs.on_their_way: is no list"),
        ({"container": 3}, "container: is no mapping of keys"),
        ({"spark": {"conf": {"spark.x": 3}}}, "spark.conf.spark.x: is no text: put it into quotes"),
        ({"sql": 3}, "sql: is no text"),
        ({"sql": {"out": 3}}, "sql.out: is no text: put it into quotes"),
        ({"name": "a b"}, "name: 'a b' is no name: letters, digits, - and _"),
        ({"transformation": "a:b"}, "give exactly one of transformation (module:function) and sql"),
    ],
)
def test_a_mistake_is_told_by_its_key_and_what_it_must_be(changes: dict[str, Any], said: str) -> None:
    assert refused(**changes).startswith(said)


def test_what_is_wrong_in_several_places_is_told_once_each() -> None:
    assert refused(workers="many", sql={"out": 3}).split("; ") == [
        "sql.out: is no text: put it into quotes",
        "workers: 'many' is no whole number",
    ]


def test_what_no_key_is_like_is_told_with_the_keys_that_there_are() -> None:
    with pytest.raises(ConfigInvalid, match=r"unknown key 'container.fast' \(there are: memory_mb, cores\)"):
        load_config({**FLOW, "container": {"fast": True}})
    with pytest.raises(ConfigInvalid, match=r"unknown key 'retention_hour': did you mean 'retention_hours'\?"):
        LogConfig.parse({"retention_hour": 3}, source="--set")


def test_a_node_that_is_no_json_says_so() -> None:
    with pytest.raises(DescriptorUnreadable, match="/a does not hold a DataflowStatus: is no JSON"):
        DataflowStatus.from_bytes(b"{nope", path="/a")


def test_a_secret_that_is_of_the_wrong_type_is_not_shown() -> None:
    conf = {"spark.password": ["hunter2"]}
    with pytest.raises(ConfigInvalid) as error:
        DataflowConfig.parse({**FLOW, "spark": {"conf": conf}}, source="x")
    assert "hunter2" not in str(error.value)
