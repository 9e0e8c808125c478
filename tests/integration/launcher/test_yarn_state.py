"""State on HDFS of a dataflow whose workers are containers of YARN: a killed one's successor goes on with it, on
whichever node that is; it is looked at and deleted from a machine that runs none of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from scribengin.filesystems.paths import tree_file_system
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.counted_windows import COUNTING, COUNTS, wait_for_windows
from tests.integration.launcher.shipped_flow import SESSION_S
from tests.integration.yarn_cluster import submit_on_yarn, yarn_cluster

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1800)]


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
            **COUNTING,
            package=str(package),
            container={"memory_mb": 1536},
            state={"checkpoints": root},
            session_timeout_s=SESSION_S,
        ).up()
        wait_for_windows(flow, 9, "in/0")
        [(victim, pid)] = flow.worker_pids().items()
        os.kill(pid, signal.SIGKILL)
        cluster.append("in/0", 100)
        wait_for_windows(flow, 19, "in/0")
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
