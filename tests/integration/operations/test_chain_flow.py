"""A chain of two dataflows as processes, on Spark: a worker is killed, the chain is scaled, its second half stands
still and is stopped with the rest, and every record is there once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.log import LogConfig
from scribengin.operations.chain.config import ChainConfig, full_name
from scribengin.operations.chain.lifecycle import stop_chain
from scribengin.operations.chain.submit import submit_chain
from scribengin.operations.verify.verify import ends_of, generate, verify
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
COUNT = 2_000
NOTHING_IS_KEPT = LogConfig(segment_bytes_max=16_384, retention_hours=0)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server,
        running_cluster(server.hosts, tmp_path_factory.mktemp("cluster")) as cluster,
    ):
        yield cluster


def chain() -> ChainConfig:
    """From the logs `in` through `mid`, which keeps nothing that it need not keep, to `out`."""
    flows = {
        key: {
            "name": full_name("orders", key),
            "sources": {"src": {"kind": "log", "logs": f"{source}/*"}},
            "sinks": {"out": {"kind": "log", "log": sink}},
            "sql": "SELECT payload FROM src",
            "round": {"records_max": 300},
            "container": {"memory_mb": 1024},
            "session_timeout_s": 20,
        }
        for key, source, sink in (("first", "in", "mid"), ("last", "mid", "out"))
    }
    logs = {"in": {"streams": 2}, "mid": {"streams": 2, "config": NOTHING_IS_KEPT.model_dump()}}
    return ChainConfig.parse({"name": "orders", "logs": logs, "dataflows": flows}, source="the test")


@pytest.mark.full
def test_a_chain_that_is_killed_scaled_and_stopped_delivers_every_record_once(cluster: Cluster) -> None:
    config = chain()
    submitted = submit_chain(cluster.registry, config, cluster.home, standbys=0)
    first, last = (Flow(cluster, config.dataflows[key]) for key in ("first", "last"))
    last.edit(desired_state="paused")
    first.wait(first.ready_workers, "a worker")
    ends = ends_of(cluster.registry, submitted)
    assert generate(cluster.registry, ends, COUNT) == 2

    def written() -> int:
        return sum(cluster.namespace.count(log) for log in cluster.namespace.names("mid/"))

    first.wait(lambda: written() > 0, "the first records between the two")
    for container in first.containers():
        if container.name.startswith("worker-"):
            cluster.launcher.kill(container)
    first.edit(workers=2)
    assert generate(cluster.registry, ends, COUNT) == 2
    first.wait(lambda: written() == 4 * COUNT, "all records between the two, where nothing of them was dropped")
    assert sum(len(cluster.namespace.segments(log)) for log in ("mid/0", "mid/1")) > 4
    first.wait(lambda: len(first.ready_workers()) == 2, "two workers")

    stop_chain(cluster.registry, submitted, lambda _: None)
    assert (first.status.state, last.status.state) == ("stopped", "stopped")
    found = verify(cluster.registry, ends, within_s=0)
    assert [(chunk.stream, chunk.sent, chunk.arrived) for chunk in found.chunks] == [
        (log, COUNT, COUNT) for log in [chunk.stream for chunk in found.chunks]
    ]
    assert len(found.chunks) == 4
    assert found.good, found
    for log in ("mid/0", "mid/1"):
        cluster.namespace.purge(log)
    assert written() < 4 * COUNT, "what both have committed is let go"
