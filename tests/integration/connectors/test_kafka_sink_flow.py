"""A dataflow from logs to Kafka, with processes and Spark, on a real broker: everything arrives exactly once.

One dataflow lives through all of it, step by step. kafka-python reads what it has committed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.servers.kafka_clients import committed_records
from tests.stalls import output_awaited

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1200)]
LOGS = ("in/0", "in/1")
START_S = SYSTEM_CLOCK.now_ms() // 1000 - 3600  # neither in the future nor so old that the broker deletes it
SQL = f"""
SELECT log, n, CAST(log AS BINARY) AS _key, n * 1000000 AS at, timestamp_seconds({START_S} + n) AS _timestamp,
       array(named_struct('key', 'n', 'value', CAST(CAST(n AS STRING) AS BINARY))) AS _headers,
       CAST(n % 3 AS INT) AS _partition
FROM src
"""


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster, kafka: KafkaServer) -> Flow:
    feed(cluster)
    source = {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "log STRING, n BIGINT"}
    sink = {
        "kind": "kafka",
        "bootstrap": kafka.bootstrap,
        "topic": "out",
        "format": "json",
        "create": {"partitions": 3},
    }
    return start(
        cluster,
        name="to-kafka",
        sources={"src": source},
        sinks={"out": sink},
        sql=SQL,
        round={"records_max": 50},
        session_timeout_s=6,
    ).up()


def feed(cluster: Cluster) -> None:
    for log in LOGS:
        cluster.append(log, 200)


def delivered(flow: Flow, kafka: KafkaServer) -> list[Any]:
    """Everything that was appended, once it is all there."""
    wanted = flow.cluster.expected(*LOGS).total()
    found: list[Any] = []

    def all_there() -> bool:
        nonlocal found
        found = committed_records(kafka.bootstrap, "out")
        return len(found) >= wanted or threading.Event().wait(0.5)

    with output_awaited():
        flow.wait(all_there, f"{wanted} records in the topic")
    return found


def numbers(records: list[Any]) -> Counter[tuple[str, int]]:
    return Counter((value["log"], value["n"]) for value in (json.loads(record.value) for record in records))


def test_what_stands_in_the_logs_is_in_the_topic_once_though_a_worker_is_killed(
    flow: Flow, cluster: Cluster, kafka: KafkaServer
) -> None:
    what_stands_in_the_logs_comes_out_of_the_topic_with_its_columns(flow, cluster, kafka)
    a_worker_that_is_killed_leaves_nothing_out_and_nothing_twice(flow, cluster, kafka)


def what_stands_in_the_logs_comes_out_of_the_topic_with_its_columns(
    flow: Flow, cluster: Cluster, kafka: KafkaServer
) -> None:
    flow.wait(lambda: flow.status.state == "running", "the dataflow to run")
    records = delivered(flow, kafka)
    assert numbers(records) == cluster.expected(*LOGS)
    for record in records:
        value = json.loads(record.value)
        n = value["n"]
        assert value == {"log": value["log"], "n": n, "at": n * 1_000_000}
        told = (record.key, record.headers, record.timestamp, record.partition)
        assert told == (value["log"].encode(), [("n", str(n).encode())], (START_S + n) * 1000, n % 3)


def a_worker_that_is_killed_leaves_nothing_out_and_nothing_twice(
    flow: Flow, cluster: Cluster, kafka: KafkaServer
) -> None:
    flow.wait_for_workers(1)
    (victim,) = flow.ready_workers()
    feed(cluster)
    os.kill(flow.view.worker(victim).pid, signal.SIGKILL)
    assert numbers(delivered(flow, kafka)) == cluster.expected(*LOGS)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    assert numbers(delivered(flow, kafka)) == cluster.expected(*LOGS)
