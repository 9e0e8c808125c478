"""A dataflow on a real YARN: everything arrives exactly once, whatever is killed, and its workers outlive its master.

One dataflow lives through kills and restarts, step by step; others fail, keep to their nodes, and lose master and
worker at once.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import psutil
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_dev.servers.hadoop.yarn import LABEL, RUN_VARIABLE, YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster
from tests.integration.launcher.shipped_flow import SESSION_S, feed, submit_shipped
from tests.integration.yarn_cluster import YarnFlow, submit_on_yarn, yarn_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
LOGS = ("in/0", "in/1", "in/2", "in/3")


@pytest.fixture(scope="module")
def cluster(
    yarn: YarnServers, zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with yarn_cluster(yarn, zookeeper.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster, yarn: YarnServers, tmp_path_factory: pytest.TempPathFactory) -> YarnFlow:
    feed(cluster, LOGS)
    return submit_shipped(cluster, yarn, tmp_path_factory.mktemp("shipped"), workers=2, yarn={"priority": 3})


def await_new_master(flow: YarnFlow, before: str | None) -> None:
    flow.wait(lambda: flow.status.master not in (None, before), "the next attempt to lead")


def test_a_dataflow_lives_as_an_application_through_kills_and_a_restart(flow: YarnFlow, cluster: Cluster) -> None:
    a_dataflow_with_a_package_comes_up_as_an_application(flow)
    its_words_are_shown(flow, r"worker-\d+", "running")
    its_containers_carry_the_mark_of_the_run_that_started_them(flow)
    a_killed_worker_is_replaced(flow, cluster)
    a_killed_master_is_replaced_and_its_workers_never_stop(flow, cluster)
    kill_ends_everything_also_where_the_master_hangs(flow)
    started_again_it_goes_on_where_it_was_and_its_end_is_the_applications(flow, cluster)
    its_words_are_collected(flow)


def a_dataflow_with_a_package_comes_up_as_an_application(flow: YarnFlow) -> None:
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(2)
    flow.wait_for_state("running")
    (application,) = flow.applications()
    wanted = {
        "queue": "root.second",
        "applicationType": "SCRIBENGIN",
        "name": "flow",
        "priority": 3,
        "state": "RUNNING",
    }
    assert {name: application[name] for name in wanted} == wanted
    looked = flow.command("status", "flow")
    assert re.search(r"application +application_\d+_\d+, RUNNING, attempt 1, queue (root\.)?second", looked), looked


def its_words_are_shown(flow: YarnFlow, container: str, state: str) -> None:
    """Those of what runs, by its node; those of what has ended, once YARN has collected them."""

    def shown() -> bool:
        headings, words = [], []
        for line in flow.command("logs", "flow", "-n", "5").splitlines():
            (headings if line.startswith("== ") else words).append(line)
        wanted = re.compile(rf"== {container} on localhost:\d+ \({state}; container_")
        return bool(words) and any(map(wanted.match, headings))

    flow.wait(shown, f"the words of {container}, {state}")


def its_words_are_collected(flow: YarnFlow) -> None:
    """YARN says when, so that the command, a process with a JVM, need not ask again and again."""

    def collected() -> bool:
        return flow.applications()[-1].get("logAggregationStatus") not in {"NOT_START", "RUNNING"}

    flow.wait(collected, "YARN to collect the words of all containers")
    its_words_are_shown(flow, r"master attempt \d+", "ended")


def its_containers_carry_the_mark_of_the_run_that_started_them(flow: YarnFlow) -> None:
    """By it a run that is broken off finds them, and what they have started."""
    pids = [flow.master_pid(), *flow.worker_pids().values()]
    family = [process for pid in pids for process in (psutil.Process(pid), *psutil.Process(pid).children())]
    assert len(family) > len(pids), "a worker has a JVM"
    assert {process.environ().get(RUN_VARIABLE) for process in family} == {os.environ[RUN_VARIABLE]}


def a_killed_worker_is_replaced(flow: YarnFlow, cluster: Cluster) -> None:
    victim, pid = next(iter(flow.worker_pids().items()))
    feed(cluster, LOGS)
    os.kill(pid, signal.SIGKILL)
    flow.wait_until_delivered(*LOGS)
    flow.wait_until_replaced(victim, workers=2)
    flow.wait_for_event(victim, "SIGKILL")


def a_killed_master_is_replaced_and_its_workers_never_stop(flow: YarnFlow, cluster: Cluster) -> None:
    workers, leader = flow.worker_pids(), flow.status.master
    killed_ms = SYSTEM_CLOCK.now_ms()
    os.kill(flow.master_pid(), signal.SIGKILL)
    feed(cluster, LOGS)
    flow.wait_until_delivered(*LOGS)
    await_new_master(flow, leader)
    assert flow.worker_pids() == workers
    feed(cluster, LOGS)
    flow.wait_until_delivered(*LOGS)
    started = [flow.view.worker(name).started_ms for name in flow.view.workers()]
    assert max(started) < killed_ms, "a worker was started although none was lost"
    assert [app["state"] for app in flow.applications()] == ["RUNNING"]


def kill_ends_everything_also_where_the_master_hangs(flow: YarnFlow) -> None:
    hanging = psutil.Process(flow.master_pid())
    hanging.suspend()
    said = flow.command("kill", "flow")
    assert "application_" in said, said
    assert flow.processes() == []
    assert [app["state"] for app in flow.applications()] == ["KILLED"]
    assert flow.status.state == "killed"


def started_again_it_goes_on_where_it_was_and_its_end_is_the_applications(flow: YarnFlow, cluster: Cluster) -> None:
    feed(cluster, LOGS)
    flow.edit(workers=1)
    flow.command("start", "flow")
    flow.wait_until_delivered(*LOGS)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: flow.applications()[-1]["state"] == "FINISHED", "the application to end")
    assert [app["finalStatus"] for app in flow.applications()] == ["KILLED", "SUCCEEDED"]
    flow.wait(lambda: not flow.processes(), "all processes to leave")


@pytest.mark.full
def test_master_and_worker_killed_at_once_are_both_replaced(cluster: Cluster, yarn: YarnServers) -> None:
    logs = ("both-in/0", "both-in/1")
    feed(cluster, logs)
    flow = submit_on_yarn(
        cluster,
        yarn,
        name="both",
        sources={"src": {"kind": "log", "logs": "both-in/*"}},
        sinks={"both": {"kind": "log", "log": "both"}},
        sql="SELECT payload FROM src",
        workers=2,
        container={"memory_mb": 1536},
        round={"records_max": 50},
        session_timeout_s=SESSION_S,
    ).up()
    flow.wait_for_workers(2)
    leader, (victim, pid) = flow.status.master, next(iter(flow.worker_pids().items()))
    feed(cluster, logs)
    os.kill(flow.master_pid(), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    await_new_master(flow, leader)
    flow.wait_until_delivered(*logs)
    flow.wait_until_replaced(victim, workers=2)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")


@pytest.mark.full
def test_a_dataflow_that_fails_is_an_application_that_failed_and_says_why(cluster: Cluster, yarn: YarnServers) -> None:
    cluster.append("bad/0", 10)
    failing = submit_on_yarn(
        cluster,
        yarn,
        name="failing",
        sources={"src": {"kind": "log", "logs": "bad/*"}},
        sinks={"failed": {"kind": "log", "log": "failed"}},
        sql="SELECT CAST(raise_error('nobody can take this') AS BINARY) AS payload FROM src",
        container={"memory_mb": 1536},
    )
    failing.wait_for_state("failed")
    failing.wait(lambda: failing.applications()[-1]["state"] == "FINISHED", "the application to end")
    (application,) = failing.applications()
    assert application["finalStatus"] == "FAILED"
    assert "nobody can take this" in application["diagnostics"]
    failing.wait(lambda: "nobody can take this" in failing.command("logs", "failing"), "its words to be collected")


@pytest.mark.full
def test_a_node_label_keeps_master_and_worker_on_the_nodes_that_have_it(cluster: Cluster, yarn: YarnServers) -> None:
    cluster.append("labelled-in/0", 10)
    yarn.label_node(1)
    try:
        flow = submit_on_yarn(
            cluster,
            yarn,
            name="labelled",
            sources={"src": {"kind": "log", "logs": "labelled-in/*"}},
            sinks={"labelled": {"kind": "log", "log": "labelled"}},
            sql="SELECT payload FROM src",
            container={"memory_mb": 1536},
            yarn={"node_label": LABEL},
        )
        flow.wait_until_delivered("labelled-in/0")
        assert set(flow.processes("scribengin.worker")) | {flow.master_pid()} <= set(yarn.container_processes(1))
        assert yarn.container_processes(0) == []
        flow.edit(desired_state="stopped")
        flow.wait_for_state("stopped")
    finally:
        yarn.label_node(1, "")
