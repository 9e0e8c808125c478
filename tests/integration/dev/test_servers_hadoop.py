"""HDFS and YARN for tests and people: real daemons, Hadoop's own clients on them, and what a killed one leaves."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from scribengin.errors import ArtifactUnavailable, ServerDown
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hadoop import ask, ask_json
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import LABEL, QUEUES, YarnServers
from scribengin_dev.servers.jars.lock import Lock, lock_path
from scribengin_registry.java.jars import pyspark_jars

pytestmark = pytest.mark.servers  # also of those that start their own

SHELL = "org.apache.hadoop.fs.FsShell"
LOGS = "org.apache.hadoop.yarn.client.cli.LogsCLI"
ENDED = ("FINISHED", "FAILED", "KILLED")


def submit(yarn: YarnServers, command: str, **settings: Any) -> str:
    """Submit an application that is one command; its id."""
    application = str(ask_json(f"{yarn.web_url}/ws/v1/cluster/apps/new-application", method="POST")["application-id"])
    body = {
        "application-id": application,
        "application-name": "test",
        "max-app-attempts": 1,
        "am-container-spec": {"commands": {"command": command}},
        "resource": {"memory": 128, "vCores": 1},
        **settings,
    }
    sent = json.dumps(body).encode()
    assert ask(f"{yarn.web_url}/ws/v1/cluster/apps", method="POST", body=sent) is not None
    return application


def report(yarn: YarnServers, application: str) -> dict[str, Any]:
    found = ask_json(f"{yarn.web_url}/ws/v1/cluster/apps/{application}")
    return dict(found.get("app", found))


def await_end(yarn: YarnServers, application: str) -> dict[str, Any]:
    wait_until(lambda: report(yarn, application).get("state") in ENDED, timeout_s=120)
    return report(yarn, application)


def test_hadoop_is_the_version_whose_client_is_inside_pyspark() -> None:
    versions = {jar.revision for jar in Lock.read(lock_path("hadoop")).sums if jar.organisation == "org.apache.hadoop"}
    [client] = pyspark_jars(["hadoop-client-api-*"], ArtifactUnavailable)
    assert [f"hadoop-client-api-{version}.jar" for version in versions] == [client.name]


@pytest.mark.full
def test_an_application_runs_on_yarn_and_what_it_said_is_kept_on_hdfs(yarn: YarnServers, hdfs: HdfsServers) -> None:
    where = "echo configured by $HADOOP_CONF_DIR with $JAVA_HOME 1><LOG_DIR>/stdout"
    application = submit(yarn, where, queue=QUEUES[1], priority=7)
    ended = await_end(yarn, application)
    assert "exitCode: 0" in ended["diagnostics"]  # it never registered as a master, so YARN calls it failed
    assert (ended["queue"].rpartition(".")[2], ended["priority"]) == (QUEUES[1], 7)
    wait_until(lambda: report(yarn, application).get("logAggregationStatus") == "SUCCEEDED", timeout_s=120)
    assert "configured by /" in yarn.run(LOGS, ["-applicationId", application])
    assert application in hdfs.run(SHELL, ["-ls", "-R", "/yarn-logs"])


def test_a_container_that_takes_too_much_memory_is_killed_and_yarn_says_why(yarn: YarnServers) -> None:
    greedy = "python3 -c 'import time; held = [7] * 50_000_000; time.sleep(60)'"  # 400 MB in 128 MB
    assert "beyond the 'PHYSICAL' memory limit" in await_end(yarn, submit(yarn, greedy))["diagnostics"]


def test_masters_that_ask_for_the_label_run_on_the_node_that_has_it(yarn: YarnServers) -> None:
    wanted = {"app-node-label-expression": LABEL, "am-container-node-label-expression": LABEL}
    yarn.label_node(1)
    try:
        application = submit(yarn, "sleep 60", **wanted)
        wait_until(lambda: yarn.container_processes(1), timeout_s=120)
        assert yarn.container_processes(0) == []
        assert report(yarn, application)["amNodeLabelExpression"] == LABEL
    finally:
        yarn.label_node(1, "")
        ask(f"{yarn.web_url}/ws/v1/cluster/apps/{application}/state", method="PUT", body=b'{"state":"KILLED"}')
    wait_until(lambda: not yarn.container_processes(1), timeout_s=120)


@pytest.mark.full
def test_a_file_outlives_one_of_two_data_nodes_and_so_do_writers(own_hdfs: HdfsServers, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("hello")
    own_hdfs.run(SHELL, ["-put", str(tmp_path / "words"), "/before"])
    own_hdfs.kill_data_node(0)
    own_hdfs.run(SHELL, ["-put", str(tmp_path / "words"), "/after"])
    assert own_hdfs.run(SHELL, ["-cat", "/before", "/after"]) == "hellohello"
    wait_until(lambda: own_hdfs.live_data_nodes() == 1, timeout_s=120)
    own_hdfs.start_data_node(0)
    assert own_hdfs.live_data_nodes() == 2


def sleeping(yarn: YarnServers, number: int | None = None) -> list[int]:
    """The processes of containers that run `sleep`, beside the shells that started them."""
    found = []
    for pid in yarn.container_processes(number):
        with suppress(psutil.NoSuchProcess):  # a command of the shell that prepares the container
            if psutil.Process(pid).name() == "sleep":
                found.append(pid)
    return found


@pytest.mark.full
def test_a_killed_node_is_lost_its_containers_are_orphans_and_it_can_come_back(own_yarn: YarnServers) -> None:
    submit(own_yarn, "sleep 600")
    wait_until(lambda: sleeping(own_yarn), timeout_s=180, what="the container's command")
    number = 0 if sleeping(own_yarn, 0) else 1
    orphans = sleeping(own_yarn, number)
    own_yarn.kill_node(number)
    lost = own_yarn.node_id(number)
    wait_until(lambda: own_yarn.node_states().get(lost) == "LOST", timeout_s=180, what="LOST")
    assert sleeping(own_yarn, number) == orphans
    own_yarn.start_node(number)
    wait_until(lambda: set(own_yarn.node_states().values()) == {"RUNNING"}, timeout_s=180, what="both nodes to run")
    assert sleeping(own_yarn, number) == orphans
    own_yarn.stop()
    assert own_yarn.container_processes() == []
    assert own_yarn.pids == {}


@pytest.mark.full
def test_a_daemon_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """The NameNode: a ResourceManager takes a minute to end."""
    servers = HdfsServers(tmp_path, data_nodes=0, settings={"dfs.replication": 1, "dfs.namenode.edits.dir.minimum": 5})
    with pytest.raises(ServerDown, match=r"(?s)the server namenode ended at once.*too many journals"):
        servers.start()
    assert servers.pids == {}
