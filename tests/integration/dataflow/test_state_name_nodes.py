"""State and logs on HDFS under the name of a service: its NameNode dies, another one takes over, and nothing is lost.

Where it dies is in the middle of rounds; the owner then goes on, or the next one does, as in a worker.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.errors import ScribenginError
from scribengin.spark.stateful.query_log import QueryLog
from scribengin.testing.failpoints import at_failpoint
from scribengin.worker.failures import Remedy, remedy_for
from scribengin_dev.servers.hadoop.hdfs_pair import HdfsPair
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_state_on_hdfs import kept
from tests.integration.state_flow import FAR, Event, StateFlow, at, payloads_of

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(1200)]

WINDOWS = """
SELECT window.start AS at, who, count(*) AS many, sum(n) AS total
FROM src GROUP BY window(at, '10 seconds'), who
"""
FIRST: list[Event] = [(second, "ab"[second % 2], second) for second in range(20, 90, 3)]
SECOND: list[Event] = [(second, "ab"[second % 2], second) for second in range(90, 160, 3)]
TRIES = 8
"""Of owners one after the other, as a worker would have them."""


@pytest.fixture
def pair(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HdfsPair]:
    """Two NameNodes that this process's clients know, those in its JVM and in Spark's Python workers, too."""
    environment = spark.sparkContext.environment
    context: Any = spark.sparkContext._jsc
    hadoop = context.hadoopConfiguration()
    with HdfsPair(tmp_path_factory.mktemp("pair"), data_nodes=2) as servers:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(servers.conf_directory))
        monkeypatch.setitem(environment, "HADOOP_CONF_DIR", str(servers.conf_directory))
        for name, value in servers.client_settings.items():
            hadoop.set(name, value)
        try:
            yield servers
        finally:
            for name in servers.client_settings:
                hadoop.unset(name)


def own_with_patience(flow: StateFlow) -> None:
    """Owners, until one comes to the end. Those before give up for reasons that pass, and none that fails the task."""
    told = []
    for _ in range(TRIES):
        try:
            flow.run_to_the_end()
        except ScribenginError as error:
            told.append(remedy_for(error))
        else:
            break
    assert len(told) < TRIES, told
    assert {failure.remedy for failure in told} <= {Remedy.RETRY, Remedy.AWAY, Remedy.WORKER}, told


@pytest.mark.parametrize("stop", ["round.commit:before", "round.commit:after", "log.stage_write:before"])
def test_nothing_is_lost_or_doubled_when_the_name_node_dies_in_a_round(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, pair: HdfsPair, stop: str
) -> None:
    root = f"{pair.url}/{uuid.uuid4().hex}"
    flow = StateFlow(
        memory_registry,
        spark,
        tmp_path,
        logs_at=f"{root}/logs",
        sql=WINDOWS,
        state={"checkpoints": f"{root}/state"},
        round={"records_max": 8},
    )
    with flow.namespace.open_writer("in/0") as writer:

        def append(events: list[Event]) -> None:
            batch = pa.record_batch([pa.array(payloads_of(events), pa.binary())], names=["payload"])
            writer.write_bulk(batch).result(300)

        append(FIRST)
        failed_over: list[str] = []

        def fail_over(_stop: str) -> None:
            if not failed_over:
                failed_over.append(stop)
                pair.fail_over()

        with at_failpoint(stop, fail_over):
            own_with_patience(flow)
        assert failed_over == [stop]
        append(SECOND)
    pair.start_name_node()
    pair.fail_over()
    flow.append("in/0", [(FAR, "z", 0)])  # behind all that came before: it closes their windows
    own_with_patience(flow)
    log = QueryLog.read(kept(flow))
    assert log.planned == log.done
    told = Counter((at_utc(one["at"]), one["who"], one["many"], one["total"]) for one in flow.delivered())
    windows: dict[tuple[str, str], list[int]] = {}
    for second, who, n in [*FIRST, *SECOND]:
        windows.setdefault((at(second // 10 * 10), who), []).append(n)
    assert told == Counter((start, who, len(of), sum(of)) for (start, who), of in windows.items())


def at_utc(told: str) -> str:
    return datetime.fromisoformat(told).astimezone(UTC).isoformat()
