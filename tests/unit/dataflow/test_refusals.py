"""What is wrong with a configuration, in the words of who writes it: no pydantic, no types of Python, no tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.text.yaml_text import parse_yaml
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.config_node import config_from_bytes
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
        (
            {"sources": {"pkgs": {"knd": "hdfs", "path": "/in"}}},
            "sources.pkgs.kind: is missing: did you write 'knd' for it?",
        ),
        ({"sinks": {"out": {"Kind": "log", "log": "x"}}}, "sinks.out.kind: is missing: did you write 'Kind' for it?"),
        ({"sources": {"pkgs": {3: "hdfs"}}}, "sources.pkgs.kind: is missing"),
        ({"sinks": {"out": {"kind": "lgo"}}}, "sinks.out.kind: 'lgo' is none of log, hdfs, kafka, spark, dafka: did"),
        (
            {"sinks": {"out": {"kind": "Kafka"}}},
            "sinks.out.kind: 'Kafka' is none of log, hdfs, kafka, spark, dafka: did",
        ),
        ({"sinks": {"out": {"kind": "LOG"}}}, "sinks.out.kind: 'LOG' is none of log, hdfs, kafka, spark, dafka: did"),
        ({"sources": {"pkgs": {"kind": "hdfs"}}}, "sources.pkgs.path: is missing"),
        ({"sources": {}}, "sources: is empty"),
        ({"workers": "many"}, "workers: 'many' is no whole number"),
        ({"workers": 1.5}, "workers: 1.5 is no whole number"),
        ({"workers": float("inf")}, "workers: inf is no number to count with"),
        ({"settings": {3: "x"}}, "settings"),
        ({"stalled_after_s": float("inf")}, "stalled_after_s: inf is no number to count with"),
        ({"stalled_after_s": 10**400}, "stalled_after_s: "),
        ({"stalled_after_s": 1e10}, "stalled_after_s: 10000000000.0 is too high: at most 1000000000"),
        ({"session_timeout_s": 1e7}, "session_timeout_s: 10000000.0 is too high: at most 2000000"),
        ({"settings": {"a": {"b": [1, float("inf")]}}}, "settings: a.b.1 is inf, which JSON cannot hold: write it as"),
        ({"settings": {"a": float("nan")}}, "settings: a is nan, which JSON cannot hold: write it as text"),
        ({"workers": -1}, "workers: -1 is too low: 0 or more"),
        ({"workers": 10**9}, "workers: 1000000000 is too high: at most 10000"),
        ({"executors_per_worker": 10**9}, "executors_per_worker: 1000000000 is too high: at most 1000"),
        ({"container": {"cores": 10**9}}, "container.cores: 1000000000 is too high: at most 1000"),
        ({"state": {"partitions": 10**9}}, "state.partitions: 1000000000 is too high: at most 10000"),
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
        ({"name": "flow\n"}, "name: 'flow\n' is no name"),
        ({"name": "x" * 101}, "name: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' has 101 characters: a name has at most 100"),
        ({"sinks": {"out\n": {"kind": "log", "log": "x"}}}, "sinks: 'out\n' is not a name"),
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


def test_of_very_many_mistakes_the_first_are_told_in_few_words() -> None:
    told = refused(**{f"key{n}": n for n in range(20_000)}).split("; ")
    assert (told[0], told[49:]) == ("unknown key 'key0'", ["unknown key 'key49'", "and 19,950 more"])
    assert len(refused(**{"k" * 100_000: 1})) < 1000
    assert len(refused(sources={"k" * 100_000: {"kind": "log"}})) < 1000


def test_a_key_that_stands_twice_is_refused_wherever_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "loud.yaml"
    path.write_text("name: loud\nworkers: 1\nsources:\n  pkgs: {kind: hdfs, path: /in}\nworkers: 2\n")
    with pytest.raises(ConfigInvalid, match=r"line 5, column 1: the key 'workers' stands in line 2, column 1, too"):
        load_config(path)
    with pytest.raises(ConfigInvalid, match=r"the key 'sources\.a' stands in line 1, column 2, too"):
        parse_yaml("{sources.a: 1, b: {c: 1}, sources.a: 2}", source="the edit")
    with pytest.raises(ConfigInvalid, match="/config is not JSON: the key 'cores' stands twice"):
        config_from_bytes(b'{"container": {"cores": 1, "memory_mb": 900, "cores": 2}}', "/config")


@pytest.mark.parametrize(
    "text",
    ["{1: a, 0x1: b}", "{true: 1, yes: 2}", "{1: a, 1.0: b}", "{x: 1, 'x': 2}", "[&k x, {*k : 1, *k : 2}]"],
)
def test_a_key_that_is_written_in_two_ways_stands_twice(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"stands in line 1, column .*, too: leave one out"):
        parse_yaml(text, source="x", aliases=True)


@pytest.mark.parametrize(
    ("text", "number"),
    [("010", "8"), ("-0_17", "-15"), ("1:30", "90"), ("12:30:00", "45000"), ("1:30.5", "90.5")],
)
def test_a_number_that_is_another_one_than_people_mean_is_refused(text: str, number: str) -> None:
    """YAML takes zeros in front for base eight, and colons for base sixty."""
    for written, place in ((f"workers: {text}", "line 1, column 10"), (f"{{{text}: x}}", "line 1, column 2")):
        with pytest.raises(ConfigInvalid) as error:
            parse_yaml(written, source="x", aliases=True)
        assert str(error.value) == (
            f"x is no YAML: {place}: {text} would be the number {number}: write that, or put {text} into quotes"
        )


def test_other_ways_to_write_a_number_are_taken() -> None:
    text = "[0, -0, 1_000, 0x1F, 0b11, 1.5, 01.5, .inf, '010', '1:30', 0o17, 12:30pm]"
    found = parse_yaml(text, source="x")
    assert found == [0, 0, 1000, 31, 3, 1.5, 1.5, float("inf"), "010", "1:30", "0o17", "12:30pm"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": True}, "workers: 'true' is no whole number"),
        ({"tasks": False}, "tasks: 'false' is no whole number"),
        ({"stalled_after_s": True}, "stalled_after_s: 'true' is no number"),
        ({"round": {"records_max": True}}, "round.records_max: 'true' is no whole number"),
    ],
)
def test_yes_and_no_are_no_numbers(changes: dict[str, Any], said: str) -> None:
    assert refused(**changes) == said


@pytest.mark.parametrize("path", ["/d/a**b", "/d/**.log", "/d/***"])
def test_a_glob_that_there_is_not_is_no_path(path: str) -> None:
    said = refused(sources={"pkgs": {"kind": "hdfs", "path": path}})
    assert said == f"sources.pkgs.path: {path}: ** stands alone between slashes, as in **/*.log"


def test_a_list_is_no_key() -> None:
    with pytest.raises(ConfigInvalid, match="x is no YAML"):
        parse_yaml("{!!seq a: 1}", source="x")


def test_keys_that_only_look_alike_are_two() -> None:
    assert parse_yaml("{1: a, '1': b, null: c, 'null': d}", source="x") == {1: "a", "1": "b", None: "c", "null": "d"}


class CountedKey(str):
    """Counts how often it is looked at."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        CountedKey.looks += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def test_a_node_of_many_keys_is_not_searched_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(CountedKey(n), n) for n in range(2000)] + [(CountedKey(1999), 0)]
    monkeypatch.setattr(json, "loads", lambda _, object_pairs_hook: object_pairs_hook(pairs))
    with pytest.raises(ConfigInvalid, match="the key '1999' stands twice"):
        config_from_bytes(b"", "/config")
    assert CountedKey.looks < len(pairs)


def test_a_key_of_one_mapping_may_stand_in_another_one_and_override_what_is_merged() -> None:
    text = "a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}\nc: {x: 3}\n"
    assert parse_yaml(text, source="x", aliases=True)["b"] == {"x": 2, "y": 1}


def test_a_node_that_is_no_json_says_so() -> None:
    with pytest.raises(DescriptorUnreadable, match="/a does not hold a DataflowStatus: is no JSON"):
        DataflowStatus.from_bytes(b"{nope", path="/a")


def test_a_secret_that_is_of_the_wrong_type_is_not_shown() -> None:
    conf = {"spark.password": ["hunter2"]}
    with pytest.raises(ConfigInvalid) as error:
        DataflowConfig.parse({**FLOW, "spark": {"conf": conf}}, source="x")
    assert "hunter2" not in str(error.value)
