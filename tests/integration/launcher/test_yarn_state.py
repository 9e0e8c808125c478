"""State on HDFS of a dataflow whose workers are containers of YARN: a killed one's successor goes on with it, on
whichever node that is; it is looked at and deleted from a machine that runs none of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from scribengin.filesystems.paths import tree_file_system
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.counted_windows import COUNTING, COUNTS, wait_for_windows
from tests.integration.launcher.shipped_flow import SESSION_S
from tests.integration.yarn_cluster import LOOPBACK, executors, submit_on_yarn, yarn_cluster

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("where", [{}, {"master": "yarn", "conf": LOOPBACK}], ids=["in the worker", "on executors"])
def test_a_killed_container_leaves_its_state_to_the_next_one(
    yarn: YarnServers, hdfs: HdfsServers, zookeeper: EmbeddedZooKeeper, tmp_path: Path, where: dict[str, Any]
) -> None:
    """Its executors, if it has some, are further containers. They end with it, and the next one has its own."""
    root = f"{hdfs.url}/state-{tmp_path.name}-{os.getpid()}"
    package = tmp_path / "package"
    package.mkdir()
    (package / "counts.py").write_text(COUNTS)
    with yarn_cluster(yarn, zookeeper.hosts, tmp_path / "cluster") as cluster:
        cluster.append("in/0", 95)
        flow = submit_on_yarn(
            cluster,
            yarn,
            **COUNTING,
            package=str(package),
            container={"memory_mb": 1536},
            state={"checkpoints": root, "partitions": 2},
            spark=where,
            session_timeout_s=SESSION_S,
        ).up()
        wait_for_windows(flow, 9, "in/0")
        [(victim, pid)] = flow.worker_pids().items()
        of_victim = executors(pid)
        assert bool(of_victim) == bool(where)
        os.kill(pid, signal.SIGKILL)
        cluster.append("in/0", 100)
        wait_for_windows(flow, 19, "in/0")
        assert victim not in flow.ready_workers()
        flow.wait(lambda: not any(one.is_running() for one in of_victim), "the executors of the dead worker to end")
        printed = flow.command("state", "counting", "--operator", "aggregate", "--key", "log=in/0", "--json")
        kept = [json.loads(line) for line in printed.splitlines()]
        assert [one["value"] for one in kept if one["key"]["window"]["start"].endswith("00:03:10.000Z")] == [
            {"count": 5}
        ]
        flow.command("stop", "counting")
        flow.command("delete", "counting")
    files, path = tree_file_system(root)
    assert files.names(path) == []
