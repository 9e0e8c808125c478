"""State on HDFS of a dataflow whose workers are containers of YARN: a killed one's successor goes on with it, on
whichever node that is; it is looked at and deleted from a machine that runs none of them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from scribengin.filesystems.paths import tree_file_system
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.launcher.shipped_flow import SESSION_S
from tests.integration.yarn_cluster import YarnFlow, submit_on_yarn, yarn_cluster
from tests.stalls import expect_output

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1800)]
COUNTS = """
from pyspark.sql import functions as F


def transform(inputs, context):
    timed = inputs["src"].withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "0 seconds")
    counts = timed.groupBy(F.window("at", "10 seconds"), "log").count()
    return counts.select("log", (F.unix_seconds("window.start") * 1000 + F.col("count")).alias("n"))
"""


def test_a_killed_container_leaves_its_state_to_the_next_one(
    yarn: YarnServers, hdfs: HdfsServers, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    root = f"{hdfs.url}/state-{tmp_path.name}-{os.getpid()}"
    package = tmp_path / "package"
    package.mkdir()
    (package / "counts.py").write_text(COUNTS)
    with yarn_cluster(yarn, zookeeper.hosts, tmp_path / "cluster") as cluster:
        cluster.append("in/0", 95)
        flow = submit_on_yarn(
            cluster,
            yarn,
            name="counting",
            sources={"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n LONG"}},
            sinks={"out": {"kind": "log", "log": "out", "format": "json"}},
            transformation="counts:transform",
            package=str(package),
            container={"memory_mb": 1536},
            state={"checkpoints": root},
            session_timeout_s=SESSION_S,
        ).up()
        wait_for_windows(flow, 9)
        [(victim, pid)] = flow.worker_pids().items()
        os.kill(pid, signal.SIGKILL)
        cluster.append("in/0", 100)
        wait_for_windows(flow, 19)
        assert victim not in flow.ready_workers()
        printed = flow.command("state", "counting", "--operator", "aggregate", "--key", "log=in/0", "--json")
        kept = [json.loads(line) for line in printed.splitlines()]
        assert [one["value"] for one in kept if one["key"]["window"]["start"].endswith("00:03:10.000Z")] == [
            {"count": 5}
        ]
        flow.command("stop", "counting")
        flow.command("delete", "counting")
    files, path = tree_file_system(root)
    assert files.names(path) == []


def wait_for_windows(flow: YarnFlow, count: int) -> None:
    """Wait for the first `count` windows, each of which has come out once, with all of its records."""
    want = Counter(("in/0", number * 10_000 + 10) for number in range(count))
    flow.wait(lambda: flow.delivered()["out"].total() >= count, f"{count} windows")
    found = flow.delivered()["out"]
    expect_output(found == want, f"{found - want} too often, {want - found} missing")
