"""A chain that is submitted as one file to a real YARN: each dataflow is an application, a worker is killed in the
middle, and the chain is stopped and deleted as one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from scribengin.operations.chain.config import load_chain
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster
from tests.integration.launcher.shipped_flow import SESSION_S, feed
from tests.integration.yarn_cluster import YarnFlow, yarn_cluster

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]
LOGS = ("in/0", "in/1")


def chain_file(folder: Path) -> Path:
    """Everything of `in` goes to `out` by way of `mid`. JSON is YAML."""

    def passing(source: str, sink: str) -> dict[str, object]:
        return {
            "sources": {"src": {"kind": "log", "logs": f"{source}/*"}},
            "sinks": {sink: {"kind": "log", "log": sink}},
            "sql": "SELECT payload FROM src",
            "workers": 1,
            "container": {"memory_mb": 1536},
            "round": {"records_max": 50},
            "session_timeout_s": SESSION_S,
            "launcher": "yarn",
            "yarn": {"python": {"path": sys.executable}},
        }

    chain = {
        "name": "two",
        "logs": {"mid": {"streams": len(LOGS)}},
        "dataflows": {"first": passing("in", "mid"), "last": passing("mid", "out")},
    }
    file = folder / "two.yaml"
    file.write_text(json.dumps(chain))
    return file


def test_a_chain_lives_as_applications_of_yarn(yarn: YarnServers, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    file = chain_file(tmp_path)
    with yarn_cluster(yarn, zookeeper.hosts, tmp_path / "cluster") as cluster:
        feed(cluster, LOGS)
        first, last = (YarnFlow(cluster, config, yarn) for config in load_chain(file).dataflows.values())
        last.command("submit", str(file), "--no-preflight", "--no-check")
        for flow in (first, last):
            flow.up()
        last.wait_until_delivered(*LOGS)
        a_killed_worker_of_the_first_is_replaced(first, last, cluster)
        said = last.command("status", "two")
        assert all(words in said for words in ("first", "last", "running")), said
        last.command("stop", "two")
        for flow in (first, last):
            it_has_ended_well(flow)
        last.wait_until_delivered(*LOGS)
        last.command("delete", "two")
        assert "two" not in last.command("list")


def a_killed_worker_of_the_first_is_replaced(first: YarnFlow, last: YarnFlow, cluster: Cluster) -> None:
    victim, pid = next(iter(first.worker_pids().items()))
    feed(cluster, LOGS)
    os.kill(pid, signal.SIGKILL)
    last.wait_until_delivered(*LOGS)
    first.wait_until_replaced(victim, workers=1)


def it_has_ended_well(flow: YarnFlow) -> None:
    flow.wait(lambda: not flow.processes(), "all processes to leave")
    assert [app["finalStatus"] for app in flow.applications()] == ["SUCCEEDED"]
