"""A dataflow that counts records of logs in windows of ten seconds, and what has to come out of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.integration.cluster import Flow

WINDOW_S = 10
COUNTS = """
from pyspark.sql import functions as F


def transform(inputs, context):
    timed = inputs["src"].withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "0 seconds")
    counts = timed.groupBy(F.window("at", "10 seconds"), "log").count()
    return counts.select("log", (F.unix_seconds("window.start") * 1000 + F.col("count")).alias("n"))
"""
"""The module `counts` of its package."""
COUNTING: dict[str, Any] = {
    "name": "counting",
    "sources": {"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n LONG"}},
    "sinks": {"out": {"kind": "log", "log": "out", "format": "json"}},
    "transformation": "counts:transform",
}


def wait_for_windows(flow: Flow, count: int, *logs: str) -> None:
    """Wait for the first `count` windows of each log, each of which has come out once, with all of its records."""
    want = Counter((log, number * WINDOW_S * 1000 + WINDOW_S) for log in logs for number in range(count))
    flow.wait(lambda: flow.delivered()["out"].total() >= want.total(), f"{count} windows")
    found = flow.delivered()["out"]
    assert found == want, f"{found - want} too often, {want - found} missing"
