"""A mistake that the files of a transformation show is told before Spark is asked for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid
from scribengin.operations.submit.explain import explain, read_again, refuse_own_output
from scribengin.spark.session.spark_master import refuse_unusable
from scribengin.spark.transform.spec import CheckedPlan
from scribengin.testing.memory.registry import MemoryEnsemble


def explained(
    folder: Path, transformation: str, package: str = "flow", *, code: bool = True, **others: Any
) -> tuple[list[str], int]:
    """What is wrong with it, and how often Spark was asked. `others`: more keys of the descriptor."""
    (folder / "in").mkdir(exist_ok=True)
    keys = {
        "name": "hot",
        "sources": {"src": {"kind": "hdfs", "path": str(folder / "in")}},
        "sinks": {"out": {"kind": "hdfs", "path": str(folder / "out")}},
        "transformation": transformation,
        "package": str(folder / package),
        **others,
    }
    asked = []

    def by_spark(_: Any) -> CheckedPlan:
        asked.append(1)
        return CheckedPlan({}, {}, ())

    with MemoryEnsemble().connect() as registry:
        config = DataflowConfig.parse(keys, source="the test")
        found, _errors = explain(
            registry, config, Environment(registry=registry, dataflow="hot", nodes=STREAM_NODES), by_spark, code=code
        )
    return found.problems, len(asked)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow" / "deep").mkdir(parents=True)
    (tmp_path / "flow" / "words.py").write_text("import os\nloud = len\n\ndef transform(inputs, context):\n    ...\n")
    (tmp_path / "flow" / "deep" / "__init__.py").write_text("")
    (tmp_path / "flow" / "deep" / "er.py").write_text("from words import transform as same\n")
    (tmp_path / "flow" / "broken.py").write_text("def transform(:\n")
    (tmp_path / "flow" / "open.py").write_text("from words import *\n")
    (tmp_path / "flow" / "sometimes.py").write_text("if True:\n    def transform(): ...\n")
    return tmp_path


@pytest.mark.parametrize(
    ("transformation", "said"),
    [
        ("nope:transform", "there is no module 'nope' in the package"),
        ("deep.est:transform", "there is no module 'deep.est'"),
        ("words:trans", "module 'words' has no function 'trans' (it has loud, os, transform)"),
        ("deep.er:transform", "module 'deep.er' has no function 'transform' (it has same)"),
        ("broken:transform", "module 'broken' cannot be imported"),
    ],
)
def test_what_is_not_there_is_told_before_spark_is_asked(folder: Path, transformation: str, said: str) -> None:
    (problem,), asked = explained(folder, transformation)
    assert said in problem
    assert asked == 0


def test_a_package_that_is_not_there_is_told_before_spark_is_asked(folder: Path) -> None:
    (problem,), asked = explained(folder, "words:transform", package="gone")
    assert "is not a directory" in problem
    assert asked == 0


def test_where_nobody_asked_for_a_check_nothing_is_told(folder: Path) -> None:
    assert explained(folder, "nope:transform", code=False) == ([], 1)


@pytest.mark.parametrize(
    "transformation",
    ["words:transform", "words:loud", "deep.er:same", "open:transform", "sometimes:transform", "json:loads"],
)
def test_what_may_be_there_is_left_to_the_import(folder: Path, transformation: str) -> None:
    assert explained(folder, transformation) == ([], 1)


KAFKA = {"kind": "kafka", "bootstrap": "h:1"}
JSON_FILES = {"kind": "hdfs", "path": "/data/out", "format": "json"}
BY_DAY = {"partition": {"columns": ["day"]}}


@pytest.mark.parametrize(
    ("source", "sink", "thing"),
    [
        ({"kind": "log", "logs": "words/*"}, {"kind": "log", "log": "words"}, "log words"),
        ({"kind": "log", "logs": "*"}, {"kind": "log", "log": "out"}, "log out"),
        (
            {"kind": "kafka", "bootstrap": "h:1", "pattern": "w.*"},
            {"kind": "kafka", "bootstrap": "h:1", "topic": "words"},
            "topic words",
        ),
        ({"kind": "log", "logs": "words/0"}, {"kind": "log", "log": "words"}, "log words"),
        ({"kind": "hdfs", "path": "/in/"}, {"kind": "hdfs", "path": "/in"}, "files /in"),
        ({"kind": "hdfs", "path": "/data"}, {"kind": "hdfs", "path": "/data/out"}, "files /data/out"),
        ({"kind": "hdfs", "path": "/data", "follow": False}, {"kind": "hdfs", "path": "/data/out"}, "files /data/out"),
        ({"kind": "hdfs", "path": "/"}, {"kind": "hdfs", "path": "/out"}, "files /out"),
        ({"kind": "hdfs", "path": "hdfs://n/d/"}, {"kind": "hdfs", "path": "hdfs://n/d/out/"}, "files hdfs://n/d/out"),
        ({"kind": "hdfs", "path": "/data/**/*.jsonl"}, JSON_FILES, "files /data/out"),
        ({"kind": "hdfs", "path": "/data/*/*"}, JSON_FILES, "files /data/out"),
        ({"kind": "hdfs", "path": "/data/*/*/*.jsonl"}, {**JSON_FILES, **BY_DAY}, "files /data/out"),
    ],
)
def test_a_dataflow_that_reads_its_own_output_is_refused(
    source: dict[str, Any], sink: dict[str, Any], thing: str
) -> None:
    config = {"name": "hot", "sql": "SELECT 1", "sources": {"src": source}, "sinks": {"out": sink}}
    with pytest.raises(ConfigInvalid, match=rf"source 'src' reads what sink 'out' writes \({thing}\)"):
        refuse_own_output(DataflowConfig.parse(config, source="the test"))


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ({"kind": "log", "logs": "words/900"}, {"kind": "log", "log": "words"}),
        ({**KAFKA, "topics": ["t"], "until": "latest"}, {**KAFKA, "topic": "t"}),
        ({"kind": "hdfs", "path": "/data"}, {"kind": "hdfs", "path": "/data2"}),
        ({"kind": "hdfs", "path": "/data"}, {"kind": "hdfs", "path": "/data/_out"}),
        ({"kind": "hdfs", "path": "/data", "on_their_way": ["out"]}, {"kind": "hdfs", "path": "/data/out"}),
        ({"kind": "hdfs", "path": "/data/*.log"}, {"kind": "hdfs", "path": "/data"}),
        ({"kind": "hdfs", "path": "/data/*"}, {"kind": "hdfs", "path": "/data/out"}),
        ({"kind": "hdfs", "path": "/data/in*/*"}, JSON_FILES),
        ({"kind": "hdfs", "path": "/data/*/*"}, {**JSON_FILES, **BY_DAY}),
    ],
)
def test_what_does_not_come_again_is_not_refused(source: dict[str, Any], sink: dict[str, Any]) -> None:
    config = {"name": "hot", "sql": "SELECT 1", "sources": {"src": source}, "sinks": {"out": sink}}
    refuse_own_output(DataflowConfig.parse(config, source="the test"))


RETRIED = {
    "name": "hot",
    "sources": {"src": {**KAFKA, "topics": ["orders", "orders-retry"]}},
    "sinks": {"retry": {**KAFKA, "topic": "orders-retry"}, "done": {**KAFKA, "topic": "done"}},
}


def test_one_of_several_outputs_may_come_again() -> None:
    sql = {"done": "SELECT 1", "retry": "SELECT 1"}
    config = DataflowConfig.parse({**RETRIED, "sql": sql}, source="the test")
    refuse_own_output(config)
    assert read_again(config) == {"retry": "src"}


def test_bad_records_may_not_and_neither_may_all_outputs() -> None:
    bad = {**RETRIED, "sql": "SELECT 1", "errors": {"action": "route", "sink": "retry"}}
    with pytest.raises(ConfigInvalid, match="source 'src' reads what sink 'retry' writes"):
        refuse_own_output(DataflowConfig.parse(bad, source="the test"))
    sinks = {"retry": {**KAFKA, "topic": "orders-retry"}, "bad": {**KAFKA, "topic": "bad"}}
    others_bad = {**RETRIED, "sinks": sinks, "sql": "SELECT 1", "errors": {"action": "route", "sink": "bad"}}
    with pytest.raises(ConfigInvalid, match="source 'src' reads what sink 'retry' writes"):
        refuse_own_output(DataflowConfig.parse(others_bad, source="the test"))


def test_files_below_those_of_a_sink_may_be_others_and_other_logs_are(folder: Path) -> None:
    (folder / "out" / "raw").mkdir(parents=True)
    below = {"src": {"kind": "hdfs", "path": str(folder / "out" / "raw")}}
    assert explained(folder, "words:transform", sources=below) == ([], 1)


@pytest.mark.parametrize("master", ["locl[2]", "local[two]", "local[", "local[0]", "local[2 ]", "spark://h:7077"])
def test_a_master_that_spark_does_not_have_is_told_before_any_worker_finds_out(folder: Path, master: str) -> None:
    (problem,), asked = explained(folder, "words:transform", spark={"master": master})
    assert problem == f"spark.master '{master}': choose local threads, as in local[2], or yarn"
    assert asked == 0


def test_a_master_with_a_newline_behind_it_is_none(folder: Path) -> None:
    (problem,), _ = explained(folder, "words:transform", spark={"master": "local[2]\n"})
    assert problem == r"spark.master 'local[2]\n': choose local threads, as in local[2], or yarn"


def test_whoever_asks_needs_no_configuration_of_the_cluster_that_runs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert explained(folder, "words:transform", spark={"master": "yarn"}) == ([], 1)
    with pytest.raises(ConfigInvalid, match="HADOOP_CONF_DIR"):
        refuse_unusable("yarn")


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_local_masters_are_taken(folder: Path, master: str) -> None:
    assert explained(folder, "words:transform", spark={"master": master}) == ([], 1)
