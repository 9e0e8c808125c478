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

from scribengin.spark import arrow_files, worker_imports
from scribengin.spark.stateful import source as offered
from scribengin.spark.transform import input as rounds
from scribengin.spark.transform import watched

HEAVY = ("scribengin.connectors", "scribengin.log", "pydantic", "fsspec", "kazoo", "pandas")
"""A split brings with it what reads it. Who reads no split needs none of them."""


@pytest.mark.parametrize("module", [arrow_files, rounds, watched, offered], ids=lambda module: module.__name__)
def test_what_runs_in_sparks_python_workers_imports_little(module: ModuleType) -> None:
    name = module.__name__
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {name}; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    modules = loaded.stdout.split()
    assert name in modules
    assert not set(HEAVY) & set(modules)


def test_what_writes_output_names_no_other_module() -> None:
    """Spark's workers import the modules that a function names, as it was pickled."""

    class Frame:
        def mapInArrow(self, function: Callable[..., object], _schema: str) -> bytes:  # noqa: N802  as Spark calls it
            return bytes(cloudpickle.dumps(function))

    pickled: Any = arrow_files.arrow_files(cast(Any, Frame()), Path("/output"))
    named = {name.decode() for name in re.findall(rb"scribengin[a-z_.]*", pickled)}
    assert arrow_files.__name__ in named
    light = (arrow_files.__name__, worker_imports.__name__)
    assert not [name for name in named if not any(one.startswith(name) for one in light)]  # their packages


_TASKS = """
import gc, pickle, sys
from pathlib import Path
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StructType
from scribengin.spark.arrow_files import _writer
from scribengin.spark.transform.input import RoundPartition, RoundReader

def read():
    nothing_to_read = RoundPartition(0, pickle.dumps([]))
    list(RoundReader(Path(), 1, StructType().add("a", IntegerType()), embedded=True).read(nothing_to_read))

def write():
    TaskContext._getOrCreate()
    list(_writer(".", None)(iter(())))

task = {"read": read, "write": write}[sys.argv[1]]
task()
import pandas  # some modules come while the first task ends
task()
gc.collect()
first = gc.get_freeze_count()
task()
rubbish = []
rubbish.append(rubbish)
del rubbish
print(len(gc.get_objects()), gc.collect(), gc.get_freeze_count() - first)
"""


@pytest.mark.parametrize("task", ["read", "write"])
def test_the_search_for_garbage_leaves_out_what_was_imported(task: str, tmp_path: Path) -> None:
    """PySpark searches behind each task. With all that it imports there were 70,000 objects to look at."""
    told = subprocess.run(
        [sys.executable, "-c", _TASKS, task], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    looked_at, found, frozen_since = map(int, told.stdout.split())
    assert looked_at < 5_000
    assert found >= 1, "garbage that comes later is found as ever"
    assert frozen_since == 0, "a task that imports nothing freezes nothing: what it leaves may be garbage"
