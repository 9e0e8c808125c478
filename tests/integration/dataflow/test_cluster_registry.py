"""A dataflow whose registry is restarted under it, server by server, and then cut off for several sessions, as
processes, on Spark: it stops when its generations end, goes on by itself, and every record is there once.

One dataflow lives through all of it, step by step; the last step stops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import psutil
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry import paths
from scribengin.log import LogNamespace
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.zookeeper import ZooKeeperServers
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect
from tests.integration.cluster import Cluster, Flow, running_cluster, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
LOGS = ("in/0", "in/1")
AWAY_S = 30.0
SESSION_TIMEOUT_S = 8.0


@pytest.fixture(scope="module")
def proxies(zookeeper_quorum: ZooKeeperServers) -> Iterator[list[ChaosProxy]]:
    """One before each server: all that the dataflow knows of them."""
    with ExitStack() as opened:
        yield [opened.enter_context(ChaosProxy(server)) for server in zookeeper_quorum.hosts.split(",")]


@pytest.fixture(scope="module")
def behind(proxies: list[ChaosProxy], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What is launched there is cut off with the proxies."""
    hosts = ",".join(proxy.address for proxy in proxies)
    with running_cluster(hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def direct(behind: Cluster, zookeeper_quorum: ZooKeeperServers) -> Iterator[Registry]:
    """The test's own way to the same nodes, which is never cut off."""
    chroot = behind.registry.hosts.partition("/")[2]
    with connect(f"{zookeeper_quorum.hosts}/{chroot}", session_timeout_s=60) as registry:
        yield registry


@pytest.fixture(scope="module")
def cluster(behind: Cluster, direct: Registry) -> Iterator[Cluster]:
    """The same, but that records are appended whatever is cut off."""
    with LogNamespace.open("/logs", registry=direct) as namespace:
        yield replace(behind, namespace=namespace)


@pytest.fixture(scope="module")
def flow(cluster: Cluster) -> Flow:
    feed(cluster)
    return start(
        cluster,
        name="flow",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"out": {"kind": "log", "log": "out"}},
        sql="SELECT payload FROM src",
        round={"records_max": 50},
        session_timeout_s=SESSION_TIMEOUT_S,
    ).up()


def feed(cluster: Cluster) -> None:
    for log in LOGS:
        cluster.append(log, 200)


def test_a_dataflow_outlives_its_registrys_restarts_and_several_sessions_without_it(
    flow: Flow, cluster: Cluster, zookeeper_quorum: ZooKeeperServers, direct: Registry, proxies: list[ChaosProxy]
) -> None:
    a_rolling_restart_of_three_servers_costs_no_record(flow, cluster, zookeeper_quorum)
    cut_off_for_several_sessions_it_commits_nothing_and_then_goes_on_by_itself(flow, cluster, direct, proxies)
    stopping_leaves_every_record_once(flow, cluster)


def a_rolling_restart_of_three_servers_costs_no_record(
    flow: Flow, cluster: Cluster, zookeeper_quorum: ZooKeeperServers
) -> None:
    flow.wait_until_delivered(*LOGS)
    flow.master()
    for number in range(zookeeper_quorum.count):
        feed(cluster)
        zookeeper_quorum.kill(number)
        feed(cluster)
        flow.wait_until_delivered(*LOGS)
        zookeeper_quorum.start_server(number)
    feed(cluster)
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(1)


def cut_off_for_several_sessions_it_commits_nothing_and_then_goes_on_by_itself(
    flow: Flow, cluster: Cluster, direct: Registry, proxies: list[ChaosProxy]
) -> None:
    flow.wait_for_workers(1)
    masters = {c.name for c in flow.containers() if c.name.startswith("master-")}
    worker = flow.view.worker(flow.ready_workers()[0])
    commits = [paths.commit_log(flow.view.paths.source_stream("src", log)) for log in LOGS]
    feed(cluster)
    for proxy in proxies:
        proxy.cut()
    cut_s = SYSTEM_CLOCK.monotonic_s()
    wait_until(lambda: direct.find(flow.view.paths.session(worker.name)) is None, 60, "the worker's generation to end")
    left_at = {path: direct.get(path).version for path in commits}
    feed(cluster)
    wait_until(lambda: SYSTEM_CLOCK.monotonic_s() - cut_s > AWAY_S, 2 * AWAY_S, "the time to pass")
    assert {path: direct.get(path).version for path in commits} == left_at, "nobody can commit without a generation"
    for proxy in proxies:
        proxy.heal()
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(1)
    assert flow.ready_workers() != [worker.name]
    wait_until(lambda: not psutil.pid_exists(worker.pid), 60, "the worker without a generation to be gone")
    assert masters & {c.name for c in flow.containers()} == masters, "masters stand for election again"


def stopping_leaves_every_record_once(flow: Flow, cluster: Cluster) -> None:
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    assert flow.delivered() == {"out": cluster.expected(*LOGS)}
