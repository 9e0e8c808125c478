"""Submitting: everything is there before the first master is launched, and nothing is left when something fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DataflowExists, LauncherError, PackageInvalid, ResourceTaken, SourceMissing
from scribengin.operations.submit.submit import launch_master, submit
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path) as cluster:
        cluster.append("in/0", 10)
        cluster.append("in/1", 10)
        yield cluster


def config(name: str = "flow", **changes: object) -> DataflowConfig:
    value = {
        "name": name,
        "sources": {"src": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM src",
        "workers": 0,
        **changes,
    }
    return DataflowConfig.parse(value, source="the test")


def without_a_place_for_containers(cluster: Cluster) -> None:
    (cluster.home).mkdir(exist_ok=True)
    (cluster.home / "containers").write_text("a file where a directory should be")


def test_a_dataflow_without_workers_comes_up_and_stops_again(cluster: Cluster) -> None:
    flow = Flow(cluster, config())
    submit(cluster.registry, flow.config, cluster.home)
    flow.wait(lambda: len(flow.view.tasks()) == 2, "the tasks")
    flow.wait(lambda: len(flow.status.tasks_unassigned) == 2, "the status to say that nobody runs them")
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "the masters to leave")


def test_a_stopped_dataflow_goes_on_when_it_is_asked_to(cluster: Cluster) -> None:
    flow = Flow(cluster, config())
    submit(cluster.registry, flow.config, cluster.home)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "the masters to leave")
    flow.edit(desired_state="paused")
    launch_master(cluster.registry, "flow", cluster.home)
    flow.wait_for_state("paused")


def test_one_more_master_disturbs_nobody(cluster: Cluster) -> None:
    flow = Flow(cluster, config())
    submit(cluster.registry, flow.config, cluster.home)
    flow.wait(lambda: len(flow.view.tasks()) == 2, "the tasks")
    launch_master(cluster.registry, "flow", cluster.home)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "the masters to leave")


def test_a_master_that_cannot_read_what_stands_there_says_so_and_does_not_try_for_ever(cluster: Cluster) -> None:
    flow = Flow(cluster, config())
    submit(cluster.registry, flow.config, cluster.home)
    flow.wait(lambda: len(flow.view.tasks()) == 2, "the tasks")  # or the leader reads it as well, and ends by itself
    flow.master()
    cluster.registry.set(flow.view.paths.task_descriptors, b"not JSON")
    flow.kill_master()
    flow.wait(lambda: not flow.containers(), "the last master to give up")
    last = flow.view.history().events[-1]
    assert last.kind == "master_failed"
    assert "task-descriptors does not hold a TaskSet" in last.message


def test_a_worker_that_cannot_start_is_in_the_status_with_its_last_words(cluster: Cluster) -> None:
    flow = Flow(cluster, config(workers=1, spark={"master": "spark://elsewhere:7077"}))
    submit(cluster.registry, flow.config, cluster.home)
    flow.wait(lambda: "spark://elsewhere:7077" in (flow.status.error or ""), "the cause in the status")
    assert flow.status.state == "starting"


def test_what_fails_half_way_leaves_nothing_in_the_registry(cluster: Cluster) -> None:
    without_a_place_for_containers(cluster)
    with pytest.raises(LauncherError):
        submit(cluster.registry, config(), cluster.home)
    assert dataflow_names(cluster.registry) == []
    assert cluster.registry.find(paths.sink_resource("log:/logs/out")) is None


def test_a_sink_that_had_a_dataflow_before_keeps_its_positions_when_a_submit_fails(cluster: Cluster) -> None:
    node = paths.sink_resource("log:/logs/out")
    cluster.registry.create(f"{node}/0/commit-log", b"kept", parents=True)
    without_a_place_for_containers(cluster)
    with pytest.raises(LauncherError):
        submit(cluster.registry, config(), cluster.home)
    assert cluster.registry.get(f"{node}/0/commit-log").data == b"kept"
    assert cluster.registry.get(node).data == b""


def test_a_second_dataflow_of_the_name_is_refused_and_the_first_one_untouched(cluster: Cluster) -> None:
    submit(cluster.registry, config(), cluster.home)
    before = DataflowView(cluster.registry, "flow").status().submitted_ms
    with pytest.raises(DataflowExists):
        submit(cluster.registry, config(), cluster.home)
    assert DataflowView(cluster.registry, "flow").status().submitted_ms == before


def test_a_sink_of_another_dataflow_is_refused(cluster: Cluster) -> None:
    submit(cluster.registry, config(), cluster.home)
    with pytest.raises(ResourceTaken, match="'flow'"):
        submit(cluster.registry, config("second"), cluster.home)
    assert dataflow_names(cluster.registry) == ["flow"]


def test_a_source_or_a_package_that_is_not_there_creates_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(SourceMissing):
        submit(cluster.registry, config(sources={"src": {"kind": "log", "logs": "absent/*"}}), cluster.home)
    flow = config(sql=None, transformation="flights:transform", package=str(tmp_path / "absent"))
    with pytest.raises(PackageInvalid):
        submit(cluster.registry, flow, cluster.home)
    assert dataflow_names(cluster.registry) == []
