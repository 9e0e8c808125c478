"""How dataflows pause and end, as processes, on Spark: paused, told to leave, finished, failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
NEVER_12 = """
    SELECT payload, 12 / (12 - CAST(get_json_object(CAST(payload AS STRING), '$.n') AS INT)) AS quotient FROM src
"""


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path_factory.mktemp("ends")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster) -> Flow:
    cluster.append("in/0", 100)
    cluster.append("in/1", 100)
    return start(
        cluster,
        name="ending",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"out": {"kind": "log", "log": "out"}},
        sql="SELECT payload FROM src",
        session_timeout_s=60,  # nobody is killed here, and a machine may stand still
    ).up()


def test_a_dataflow_pauses_loses_a_worker_that_was_told_to_end_and_finishes(flow: Flow, cluster: Cluster) -> None:
    a_paused_dataflow_reads_nothing_and_goes_on_where_it_was(flow, cluster)
    a_worker_that_is_told_to_end_gives_its_tasks_back_and_another_one_takes_its_place(flow, cluster)
    a_dataflow_whose_sources_have_ended_finishes_and_leaves(flow, cluster)


def a_paused_dataflow_reads_nothing_and_goes_on_where_it_was(flow: Flow, cluster: Cluster) -> None:
    flow.wait_until_delivered("in/0", "in/1")
    workers = flow.ready_workers()
    before = cluster.expected("in/0", "in/1")
    flow.edit(desired_state="paused")
    flow.wait_for_state("paused")
    cluster.append("in/0", 100)
    assert flow.delivered() == {"out": before}
    flow.edit(desired_state="running")
    flow.wait_until_delivered("in/0", "in/1")
    assert flow.ready_workers() == workers


def a_worker_that_is_told_to_end_gives_its_tasks_back_and_another_one_takes_its_place(
    flow: Flow, cluster: Cluster
) -> None:
    (worker,) = flow.ready_workers()
    cluster.append("in/1", 100)
    os.kill(flow.view.worker(worker).pid, signal.SIGTERM)
    flow.wait(lambda: flow.ready_workers() not in ([], [worker]), "another worker")
    flow.wait_until_delivered("in/0", "in/1")
    (ended,) = [c for c in cluster.launcher.all_containers("ending") if c.name == worker]
    flow.wait(lambda: cluster.launcher.poll(ended) is not None, "the one that was told to end")
    how = cluster.launcher.poll(ended)
    assert how is not None
    assert (how.kind, how.code) == ("exited", 0)


def a_dataflow_whose_sources_have_ended_finishes_and_leaves(flow: Flow, cluster: Cluster) -> None:
    cluster.append("in/0", 50)
    cluster.seal("in/0")
    cluster.seal("in/1")
    flow.wait_for_state("finished")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    assert flow.delivered() == {"out": cluster.expected("in/0", "in/1")}
    assert {task.state for task in flow.status.tasks} == {"finished"}


def test_a_record_that_cannot_be_transformed_stops_the_dataflow_and_is_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.append("bad/0", 40)
    flow = start(
        cluster,
        name="failing",
        sources={"src": {"kind": "log", "logs": "bad/*"}},
        sinks={"out": {"kind": "hdfs", "path": str(tmp_path), "format": "json"}},
        sql=NEVER_12,
        round={"records_max": 10},
    )
    flow.wait_for_state("failed")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    error = flow.status.error or ""
    assert error.startswith("task-0: ")
    assert "DIVIDE_BY_ZERO" in error
    assert "(at log bad/0, DLSN 1/" in error
    lines = [line for part in tmp_path.glob("part-*") for line in part.read_text().splitlines()]
    assert len(lines) == 10, "what was committed before the bad round is there, merged, and nothing else"
