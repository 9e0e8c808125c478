"""A dataflow with state as processes: its worker is killed, and another one goes on with what it has counted; what it
keeps is shown meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cli_runner import command
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.stalls import expect_output

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
WINDOW_S = 10
LAST = {"start": "1970-01-01T00:03:10.000Z", "end": "1970-01-01T00:03:20.000Z"}
"""The window that is open: five records are in it."""
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
    chosen = ("--operator", "aggregate", "--key", "log=in/0", "--key", "window.start=1970-01-01 00:03:10")
    kept = {"task": "task-0", "key": {"window": LAST, "log": "in/0"}, "value": {"count": 5}}
    flow.wait(lambda: state(cluster, *chosen) == [kept], "five records in the last window, whose batch may still go on")
    assert list((cluster.home / "state" / "counting" / "task-0").iterdir()), "checkpoints are where the home is"

    (tmp_path / "counts.py").write_text(COUNTS.replace('"log").count', '(F.col("n") % 7).alias("log")).count'))
    workers = flow.ready_workers()
    refused = told(cluster, "restart", "counting", "--yes")
    assert refused.returncode == 2
    assert "what task-0 has kept for aggregate does not fit the transformation any more" in refused.stderr
    assert (flow.ready_workers(), flow.view.status().state) == (workers, "running")


def state(cluster: Cluster, *options: str) -> list[Any]:
    """What `scribengin state` prints."""
    ended = told(cluster, "state", "counting", *options, "--json")
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def told(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SCRIBENGIN_REGISTRY": cluster.registry.hosts, "SCRIBENGIN_HOME": str(cluster.home)}
    return subprocess.run(command(list(words)), env=environment, capture_output=True, text=True, check=False)


def wait_for_windows(flow: Flow, count: int) -> None:
    """Wait for the first `count` windows, each of which has come out once, with all of its records."""
    want = Counter(("in/0", number * WINDOW_S * 1000 + WINDOW_S) for number in range(count))
    flow.wait(lambda: flow.delivered()["out"].total() >= count, f"{count} windows")
    found = flow.delivered()["out"]
    expect_output(found == want, f"{found - want} too often, {want - found} missing")
