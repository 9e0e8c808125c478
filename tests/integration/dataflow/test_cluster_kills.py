"""A dataflow with two workers, as processes, on Spark: everything arrives exactly once whatever is killed.

Who stays meanwhile is no question for processes: a machine that stands still for a session loses all of them. The
simulator and the transcripts of `tests/scenario` answer it, on a clock of their own.

One dataflow lives through all of it, step by step; the last step stops it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
LOGS = ("in/0", "in/1", "in/2", "in/3")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def cluster(server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(server.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def flow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Flow:
    feed(cluster)
    files: Path = tmp_path_factory.mktemp("files")
    return start(
        cluster,
        name="flow",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"out": {"kind": "log", "log": "out"}, "files": {"kind": "hdfs", "path": str(files)}},
        sql={"out": "SELECT payload FROM src", "files": "SELECT payload FROM src"},
        workers=2,
        round={"records_max": 50},
        session_timeout_s=20,
    ).up()


def feed(cluster: Cluster) -> None:
    for log in LOGS:
        cluster.append(log, 200)


@pytest.mark.parametrize("more", [False, pytest.param(True, marks=pytest.mark.full)], ids=["most", "all"])
def test_everything_arrives_once_whatever_is_killed(
    flow: Flow, cluster: Cluster, server: EmbeddedZooKeeper, more: bool
) -> None:
    what_stands_in_the_logs_comes_out_of_both_sinks(flow)
    a_killed_worker_is_replaced_and_its_tasks_go_on_elsewhere_meanwhile(flow, cluster)
    a_killed_master_is_replaced_while_records_go_on(flow, cluster)
    if more:
        master_and_worker_killed_at_once_are_both_replaced(flow, cluster)
        a_registry_that_is_started_again_costs_no_record(flow, cluster, server)
    a_worker_that_stalls_longer_than_its_session_is_replaced_and_writes_nothing_afterwards(flow, cluster)
    fewer_workers_take_all_tasks_over_without_a_loss(flow, cluster)
    a_bad_edit_changes_nothing_and_is_shown(flow)
    a_new_stream_gets_a_task_while_the_others_go_on(flow, cluster)
    stopping_drains_everything_and_leaves_nothing_behind(flow, cluster)


def what_stands_in_the_logs_comes_out_of_both_sinks(flow: Flow) -> None:
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(2)
    flow.wait_for_state("running")


def a_killed_worker_is_replaced_and_its_tasks_go_on_elsewhere_meanwhile(flow: Flow, cluster: Cluster) -> None:
    flow.wait_for_workers(2)
    victim = flow.ready_workers()[0]
    feed(cluster)
    os.kill(flow.view.worker(victim).pid, signal.SIGKILL)
    flow.wait_until_delivered(*LOGS)
    flow.wait_until_replaced(victim, workers=2)
    flow.wait(lambda: any(e.kind == "recovered" for e in flow.view.history().events), "the history to say so")


def a_killed_master_is_replaced_while_records_go_on(flow: Flow, cluster: Cluster) -> None:
    flow.wait_for_workers(2)
    leader = flow.master()
    flow.kill_master()
    feed(cluster)
    flow.wait_until_delivered(*LOGS)
    flow.wait(lambda: flow.status.master not in (None, leader), "another master")


def master_and_worker_killed_at_once_are_both_replaced(flow: Flow, cluster: Cluster) -> None:
    flow.master()
    flow.wait_for_workers(2)
    victim = flow.ready_workers()[0]
    feed(cluster)
    os.kill(flow.view.worker(victim).pid, signal.SIGKILL)
    flow.kill_master()
    flow.wait_until_delivered(*LOGS)
    flow.wait_until_replaced(victim, workers=2)


def a_worker_that_stalls_longer_than_its_session_is_replaced_and_writes_nothing_afterwards(
    flow: Flow, cluster: Cluster
) -> None:
    flow.wait_for_workers(2)
    victim = flow.ready_workers()[0]
    process = flow.view.worker(victim).pid
    feed(cluster)
    os.kill(process, signal.SIGSTOP)
    feed(cluster)
    flow.wait_until_delivered(*LOGS)
    with contextlib.suppress(ProcessLookupError):  # the master has killed it for not leaving by itself
        os.kill(process, signal.SIGCONT)
    flow.wait_for_workers(2)
    flow.wait(lambda: victim not in [c.name for c in flow.containers()], "the stalled worker to be gone")
    feed(cluster)
    flow.wait_until_delivered(*LOGS)


def a_registry_that_is_started_again_costs_no_record(flow: Flow, cluster: Cluster, server: EmbeddedZooKeeper) -> None:
    flow.wait_for_workers(2)
    flow.master()
    feed(cluster)
    server.stop()
    server.start()
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(2)
    flow.wait_for_state("running")


def fewer_workers_take_all_tasks_over_without_a_loss(flow: Flow, cluster: Cluster) -> None:
    flow.edit(workers=1)
    feed(cluster)
    flow.wait(lambda: len([c for c in flow.containers() if c.name.startswith("worker-")]) == 1, "one worker")
    flow.wait_until_delivered(*LOGS)


def a_bad_edit_changes_nothing_and_is_shown(flow: Flow) -> None:
    before = flow.config.sql
    flow.edit(sql={"out": "SELECT payload FROM src LIMIT 1", "files": "SELECT payload FROM src"})
    flow.wait(lambda: "sql.out cannot be edited" in (flow.status.config_error or ""), "the refusal")
    assert flow.status.state == "running"
    flow.edit(sql=before)
    flow.wait(lambda: flow.status.config_error is None, "the refusal to go")


def a_new_stream_gets_a_task_while_the_others_go_on(flow: Flow, cluster: Cluster) -> None:
    cluster.append("in/4", 100)
    flow.wait(lambda: len(flow.view.tasks()) == 5, "a fifth task")
    flow.wait_until_delivered(*LOGS, "in/4")


def stopping_drains_everything_and_leaves_nothing_behind(flow: Flow, cluster: Cluster) -> None:
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    assert flow.view.workers() == []
    want = cluster.expected(*LOGS, "in/4")
    assert flow.delivered() == {"out": want, "files": want}
    lines = final_lines(flow)
    assert lines == want.total(), f"{lines} lines in the final files, and {want.total()} records were written"


def final_lines(flow: Flow) -> int:
    """Lines of the final files: what a program that knows nothing of us reads."""
    files = Path(flow.config.sinks["files"].model_dump()["path"])
    return sum(len(part.read_text().splitlines()) for part in files.glob("part-*"))
