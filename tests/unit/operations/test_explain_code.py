"""A mistake that the files of a transformation show is told before Spark is asked for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.operations.submit.explain import explain
from scribengin.spark.transform.spec import CheckedPlan
from scribengin.testing.memory.registry import MemoryEnsemble


def explained(folder: Path, transformation: str, package: str = "flow", *, code: bool = True) -> tuple[list[str], int]:
    """What is wrong with it, and how often Spark was asked."""
    (folder / "in").mkdir(exist_ok=True)
    keys = {
        "name": "hot",
        "sources": {"src": {"kind": "hdfs", "path": str(folder / "in")}},
        "sinks": {"out": {"kind": "hdfs", "path": str(folder / "out")}},
        "transformation": transformation,
        "package": str(folder / package),
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
