"""What Spark's Python workers import of ours. Each of them pays for it when it starts, and a session starts dozens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from pyspark import cloudpickle

from scribengin.connectors.kinds import KINDS
from scribengin.spark import arrow_files
from scribengin.spark.stateful import source as offered
from scribengin.spark.transform import input as rounds
from scribengin.spark.transform import watched

HEAVY = ("scribengin.connectors", "scribengin.log", "pydantic", "fsspec", "kazoo", "pandas")
"""A split brings with it what reads it. Who reads no split needs none of them."""
PACKAGES = {"log": "log", "hdfs": "files", "kafka": "kafka", "spark": "spark", "dafka": "dafka"}
"""Of `scribengin.connectors`, by the kind that stands in each."""
SPLITS = {
    "log": "scribengin.log.read.ranges",
    "hdfs": "scribengin.connectors.files.formats.growing",
    "kafka": "scribengin.connectors.kafka.source.reading",
}


@pytest.mark.parametrize("module", [arrow_files, rounds, watched, offered], ids=lambda module: module.__name__)
def test_what_runs_in_sparks_python_workers_imports_little(module: ModuleType) -> None:
    modules = imported_with(module.__name__)
    assert module.__name__ in modules
    assert not set(HEAVY) & modules


@pytest.mark.parametrize("kind", SPLITS)
def test_who_reads_of_one_system_imports_no_other_one(kind: str) -> None:
    modules = imported_with("scribengin.dataflow.round.long_records", SPLITS[kind])
    systems = {kind: f"scribengin.connectors.{package}" for kind, package in PACKAGES.items()}
    assert set(systems) == set(KINDS)
    assert {other for other, package in systems.items() if package in modules} <= {kind}


def imported_with(*names: str) -> set[str]:
    """All modules that a process has which imports some."""
    program = "import sys\n" + "".join(f"import {name}\n" for name in names) + "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(loaded.stdout.split())


def test_what_writes_output_names_no_other_module() -> None:
    """Spark's workers import the modules that a function names, as it was pickled."""

    class Frame:
        def mapInArrow(self, function: Callable[..., object], _schema: str) -> bytes:  # noqa: N802  as Spark calls it
            return bytes(cloudpickle.dumps(function))

    pickled: Any = arrow_files.arrow_files(cast(Any, Frame()), Path("/output"))
    named = {name.decode() for name in re.findall(rb"scribengin[a-z_.]*", pickled)}
    assert arrow_files.__name__ in named
    assert not [name for name in named if not arrow_files.__name__.startswith(name)]  # its packages
