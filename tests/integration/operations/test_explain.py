"""`explain`: what is cheap is checked first, and a sink that this user may not write is told."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, SourceMissing
from scribengin.filesystems.paths import durable_file_system
from scribengin.log import LogNamespace
from scribengin.operations.chain.check import check_chain
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.submit import problems_of
from scribengin.operations.submit import check as checking
from scribengin.operations.submit.explain import explain
from scribengin.spark.transform.spec import CheckedPlan, TransformationSpec
from scribengin.testing.memory.files import MemoryFiles
from scribengin_registry.contract import Registry

NOBODY = 65534


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        yield namespace


def flow(source: Path, sink: Path, **more: Any) -> DataflowConfig:
    value = {
        "name": "hot",
        "sources": {"src": {"kind": "hdfs", "path": str(source)}},
        "sinks": {"out": {"kind": "hdfs", "path": str(sink)}},
        "sql": "SELECT payload FROM src",
        **more,
    }
    return DataflowConfig.parse(value, source="the test")


def explained(registry: Registry, config: DataflowConfig, **options: Any) -> tuple[list[str], int]:
    """What is wrong with it, and how often Spark was asked."""
    asked = []

    def by_spark(_: Callable[[], TransformationSpec]) -> CheckedPlan:
        asked.append(1)
        return CheckedPlan({}, {}, ())

    environment = Environment(registry=registry, dataflow=config.name, nodes=STREAM_NODES)
    return explain(registry, config, environment, by_spark, **options)[0].problems, len(asked)


def test_spark_is_asked_once_the_rest_is_right(registry: Registry, tmp_path: Path) -> None:
    missing = flow(tmp_path / "in", tmp_path / "out")
    problems, asked = explained(registry, missing)
    assert len(problems) == 1
    assert str(tmp_path / "in") in problems[0]
    assert asked == 0
    assert explained(registry, missing, expected=(SourceMissing,)) == (problems, 1)
    (tmp_path / "in").mkdir()
    assert explained(registry, missing) == ([], 1)
    assert not (tmp_path / "out").exists()


def test_a_place_of_state_that_does_not_answer_is_told_before_spark_is_asked(
    registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    namespace.create("in/0")
    log = {"src": {"kind": "log", "logs": "in/*"}}
    hdfs = MemoryFiles()
    with hdfs.opened_by("hdfs"):
        config = flow(tmp_path, tmp_path / "out", sources=log, state={"checkpoints": "hdfs://cluster/state"})
        assert explained(registry, config) == ([], 1)
        hdfs.away = True
        [problem], asked = explained(registry, config)
    assert problem.startswith("state.checkpoints: hdfs://cluster/state cannot be reached (")
    assert asked == 0
    (tmp_path / "file").touch()
    config = flow(tmp_path, tmp_path / "out", sources=log, state={"checkpoints": str(tmp_path / "file" / "state")})
    [problem], asked = explained(registry, config)
    assert "state.checkpoints: " in problem
    assert "is no directory" in problem


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_directory_that_this_user_may_not_write_is_told() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        closed = Path(name) / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        files, there = durable_file_system(str(closed))
        _, below = durable_file_system(str(closed / "not" / "yet"))
        with as_nobody():
            assert f"may not write into {closed}" in str(files.unwritable(there))
            assert f"may not write into {closed}" in str(files.unwritable(below))
        closed.chmod(0o777)
        with as_nobody():
            assert files.unwritable(there) is None
            assert files.unwritable(below) is None


def test_a_sink_below_a_file_is_told_before_spark_is_asked(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("")
    problems, asked = explained(registry, flow(tmp_path / "in", tmp_path / "file" / "out"))
    assert len(problems) == 1
    assert problems[0].startswith("sinks.out: ")
    assert f"{tmp_path / 'file'} is no directory" in problems[0]
    assert asked == 0
    assert not explained(registry, flow(tmp_path / "in", tmp_path / "file" / "out", launcher="yarn"))[0]


def test_a_log_store_that_cannot_be_written_is_told(
    registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    config = flow(tmp_path / "in", tmp_path / "out", sinks={"out": {"kind": "log", "log": "out"}})
    assert explained(registry, config) == ([], 1)
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "store").write_text("")
    problems, asked = explained(registry, config)
    assert [f"{tmp_path / 'store'} is not the directory of this namespace" in problem for problem in problems] == [True]
    assert asked == 0


def test_a_mistyped_source_of_a_chain_is_told_what_the_chain_writes(
    registry: Registry, namespace: LogNamespace
) -> None:
    def link(logs: str, log: str) -> dict[str, Any]:
        sources, sinks = {"src": {"kind": "log", "logs": logs}}, {"out": {"kind": "log", "log": log}}
        return {"sources": sources, "sinks": sinks, "sql": "SELECT payload FROM src"}

    one, two = link("fahrenheit/*", "celsius"), link("celcius/*", "too_hot")
    flows = {"one": {**one, "name": "station-one"}, "two": {**two, "name": "station-two"}}
    value = {"name": "station", "logs": {"fahrenheit": {"streams": 2}}, "dataflows": flows}
    (problem,) = problems_of(registry, ChainConfig.parse(value, source="the test"))
    assert str(problem).startswith("dataflow 'two': source 'src': no log in /logs is called 'celcius/*'")
    assert str(problem).endswith("let a dataflow of the chain write it: did you mean 'celsius/*'?")


def test_a_chain_that_goes_round_is_told_before_spark_is_asked(
    registry: Registry, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> CheckedPlan:
        raise AssertionError("Spark was asked")

    monkeypatch.setattr(checking, "_checked_by_spark", never)

    def link(name: str, logs: str, log: str) -> dict[str, Any]:
        sources, sinks = {"src": {"kind": "log", "logs": logs}}, {"out": {"kind": "log", "log": log}}
        return {"name": name, "sources": sources, "sinks": sinks, "sql": "SELECT payload FROM src"}

    value = {"name": "ring", "dataflows": {"one": link("ring-one", "b/*", "a"), "two": link("ring-two", "a/*", "b")}}
    found = check_chain(registry, ChainConfig.parse(value, source="the test"))
    assert found.errors
    assert all(isinstance(error, ConfigInvalid) for error in found.errors)
