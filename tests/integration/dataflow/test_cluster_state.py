"""A dataflow with state as processes: its worker is killed, and another one goes on with what it has counted."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.stalls import expect_output

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
WINDOW_S = 10
COUNTS = """
from pyspark.sql import functions as F


def transform(inputs, context):
    timed = inputs["src"].withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "0 seconds")
    counts = timed.groupBy(F.window("at", "10 seconds"), "log").count()
    return counts.select("log", (F.unix_seconds("window.start") * 1000 + F.col("count")).alias("n"))
"""


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path_factory.mktemp("state")) as cluster:
        yield cluster


def test_a_killed_workers_windows_are_counted_on_by_the_next_one(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    cluster.append("in/0", 95)
    flow = start(
        cluster,
        name="counting",
        sources={"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n LONG"}},
        sinks={"out": {"kind": "log", "log": "out", "format": "json"}},
        transformation="counts:transform",
        package=str(tmp_path),
        round={"records_max": 30},
        state={},
        session_timeout_s=10,
    ).up()
    wait_for_windows(flow, 9)
    os.kill(flow.view.worker(flow.ready_workers()[0]).pid, signal.SIGKILL)
    cluster.append("in/0", 100)
    wait_for_windows(flow, 19)
    assert list((cluster.home / "state" / "counting" / "task-0").iterdir()), "checkpoints are where the home is"


def wait_for_windows(flow: Flow, count: int) -> None:
    """Wait for the first `count` windows, each of which has come out once, with all of its records."""
    want = Counter(("in/0", number * WINDOW_S * 1000 + WINDOW_S) for number in range(count))
    flow.wait(lambda: flow.delivered()["out"].total() >= count, f"{count} windows")
    found = flow.delivered()["out"]
    expect_output(found == want, f"{found - want} too often, {want - found} missing")
