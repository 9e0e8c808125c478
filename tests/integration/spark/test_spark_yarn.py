"""`spark.master: yarn`: a worker on this machine is the driver, and its executors are containers of a real YARN."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.errors import ConfigInvalid
from scribengin.spark.session.session import start_session
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import TIMEOUT_S, running_cluster, start
from tests.integration.yarn_cluster import LOOPBACK, executors

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SMALL, LARGE = 300, 60_000
BAD = 123
PLACES = """
    import os
    from pyspark.sql import functions as F

    @F.udf("string")
    def container(n):
        return os.environ.get("CONTAINER_ID", "none")

    def transform(inputs, context):
        numbers = inputs["src"]
        return numbers.select("log", "n", (numbers.n * 2).alias("double"), container("n").alias("container"))
"""
WINDOWS = """
    import os
    from pyspark.sql import functions as F

    @F.udf("string")
    def container(n):
        return os.environ.get("CONTAINER_ID", "none")

    def transform(inputs, context):
        timed = inputs["src"].withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "0 seconds")
        counts = timed.groupBy(F.window("at", "10 seconds"), "log").agg(F.count("*").alias("many"))
        start = F.unix_seconds("window.start").alias("n")
        return counts.select("log", start, "many", container("many").alias("container"))
"""


def test_executors_are_containers_of_yarn(
    zookeeper: EmbeddedZooKeeper,
    yarn: YarnServers,
    tmp_path: Path,
    package: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log, which the executors are sent, since it lies on the worker's disk; two files with what became of it."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_directory))
    with running_cluster(zookeeper.hosts, tmp_path / "cluster") as cluster:
        cluster.append("in/0", BAD)
        with cluster.namespace.open_writer("in/0") as writer:
            writer.write_bulk(pa.record_batch([pa.array([b'{"n": x}'], pa.binary())], names=["payload"])).result(120)
        cluster.append("in/0", SMALL - BAD)
        out, bad = tmp_path / "out", tmp_path / "bad"
        flow = start(
            cluster,
            name=f"on-yarn-{tmp_path.name}",
            sources={"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n BIGINT"}},
            sinks={
                "out": {"kind": "hdfs", "path": str(out), "format": "json", "merge_age_s": 0},
                "bad": {"kind": "hdfs", "path": str(bad), "merge_age_s": 0},
            },
            errors={"action": "route", "sink": "bad"},
            transformation="places:transform",
            package=str(package(places=PLACES)),
            spark={"master": "yarn", "conf": {**LOOPBACK, "spark.executor.instances": "1"}},
        )
        # A driver here, a master and an executor in containers start behind each other.
        monkeypatch.setattr(flow, "patience_s", 3 * TIMEOUT_S)
        flow.wait(lambda: len(lines(out)) == SMALL and lines(bad), "the small round, in both sinks")
        [refused] = lines(bad)
        assert (refused["payload"], refused["index"]) == ('{"n": x}', BAD)
        cluster.append("in/0", LARGE)
        cluster.seal("in/0")
        flow.wait_for_state("finished")
    rows = lines(out)
    assert sorted(row["n"] for row in rows) == list(range(SMALL + LARGE))
    assert all(row["double"] == 2 * row["n"] and row["log"] == "in/0" for row in rows)
    containers = {row["container"] for row in rows}
    assert all(name.startswith("container_") for name in containers), containers


@pytest.mark.full
def test_state_is_kept_on_executors_of_yarn_and_outlives_them_and_the_worker(
    zookeeper: EmbeddedZooKeeper,
    yarn: YarnServers,
    hdfs: HdfsServers,
    tmp_path: Path,
    package: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows of ten records each, whose state is on HDFS. An executor is killed, then the worker, which is the driver,
    and with it all executors."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_directory))
    with running_cluster(zookeeper.hosts, tmp_path / "cluster") as cluster:
        cluster.append("in/0", 95)
        flow = start(
            cluster,
            name=f"state-on-yarn-{tmp_path.name}",
            sources={"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n BIGINT"}},
            sinks={"out": {"kind": "log", "log": "out", "format": "json"}},
            transformation="windows:transform",
            package=str(package(windows=WINDOWS)),
            spark={"master": "yarn", "conf": LOOPBACK},
            state={"checkpoints": f"{hdfs.url}/state-{tmp_path.name}", "partitions": 2},
            session_timeout_s=10,
        )
        monkeypatch.setattr(flow, "patience_s", 3 * TIMEOUT_S)
        flow.wait(lambda: flow.delivered()["out"].total() >= 9, "nine windows")
        worker = flow.view.worker(flow.ready_workers()[0]).pid
        executors(worker)[0].kill()
        cluster.append("in/0", 100)
        flow.wait(lambda: flow.delivered()["out"].total() >= 19, "ten more, without the executor")
        os.kill(worker, signal.SIGKILL)
        cluster.append("in/0", 100)
        flow.wait(lambda: flow.delivered()["out"].total() >= 29, "ten more, of the next worker")
        with cluster.namespace.open_reader("out/0") as reader:
            batches = list(iter(reader.read_batch, None))
    rows = [json.loads(payload) for batch in batches for payload in batch.column("payload").to_pylist()]
    counted = sorted((row["n"], row["many"]) for row in rows)
    assert counted == [(first, 10) for first in range(0, 290, 10)], f"windows of ten: {counted}"
    assert all(row["container"].startswith("container_") for row in rows), rows


def lines(directory: Path) -> list[dict[str, Any]]:
    """What anybody reads in the sink's final files."""
    parts = sorted(directory.glob("part-*"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


@pytest.mark.parametrize(("master", "said"), [("spark://h:7077", "choose local threads"), ("yarn", "HADOOP_CONF_DIR")])
def test_a_master_that_cannot_be_is_refused(master: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(ConfigInvalid, match=said):
        start_session("refused", master=master)
