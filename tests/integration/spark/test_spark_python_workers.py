"""Spark's Python workers, as the daemon of ours forks them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.spark.python_daemon import MODULE

pytestmark = pytest.mark.spark


def test_python_workers_do_not_look_for_garbage_among_what_they_have_imported(spark: SparkSession) -> None:
    """PySpark looks behind every task. Among all that was imported, a look took longer than most tasks."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        gc.collect()
        yield pa.record_batch([pa.array([os.getpid()]), pa.array([len(gc.get_objects())])], names=["pid", "objects"])

    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == MODULE
    seen: list[int] = []
    while len(seen) < 1_000:  # other tests have left processes that wait for a task; each has its turn
        [row] = spark.range(0, 1, 1, 1).mapInArrow(look, "pid long, objects long").collect()
        seen.append(row["pid"])
        if seen.count(row["pid"]) > 2:  # some modules come while the first task ends
            break
    assert row["objects"] < 5_000
