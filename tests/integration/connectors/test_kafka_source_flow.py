"""A dataflow from Kafka to logs, with processes and Spark, on a real broker: everything arrives exactly once.

One dataflow lives through all of it, step by step. kafka-python writes the records, Kafka's tools look at the offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import TIMEOUT_S, Cluster, Flow, running_cluster, start
from tests.servers.kafka_side import KafkaSide, transactional

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
TOPIC = "in"


@pytest.fixture(scope="module")
def side(own_kafka: KafkaServer) -> Iterator[KafkaSide]:
    side = KafkaSide(own_kafka.bootstrap)
    yield side
    side.close()


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster, own_kafka: KafkaServer, side: KafkaSide) -> Flow:
    side.create(TOPIC, partitions=2)
    feed(cluster, side, 0, 200)
    feed(cluster, side, 1, 200)
    return start(
        cluster,
        name="kafka-flow",
        sources={
            "src": {
                "kind": "kafka",
                "bootstrap": own_kafka.bootstrap,
                "topics": TOPIC,
                "format": "json",
                "schema_ddl": "log STRING, n BIGINT",
            }
        },
        sinks={"out": {"kind": "log", "log": "out", "format": "json"}},
        sql="SELECT log, n, _partition = cast(substring(log, 4) AS INT) AS same, _offset, _timestamp FROM src",
        round={"records_max": 150},
        session_timeout_s=6,
    ).up()


def records(cluster: Cluster, partition: int, count: int) -> list[bytes]:
    """The next records of a partition, which are expected from now on."""
    name = f"{TOPIC}/{partition}"
    first = cluster.appended.get(name, 0)
    cluster.appended[name] = first + count
    return [json.dumps({"log": name, "n": n}).encode() for n in range(first, first + count)]


def feed(cluster: Cluster, side: KafkaSide, partition: int, count: int) -> None:
    side.send(TOPIC, records(cluster, partition, count), partition=partition)


def outputs(cluster: Cluster) -> list[dict[str, object]]:
    """Every record of the dataflow's logs."""
    found: list[dict[str, object]] = []
    for log in cluster.namespace.names(prefix="out/"):
        with cluster.namespace.open_reader(log) as reader:
            while (batch := reader.read_batch()) is not None:
                found += [json.loads(payload) for payload in batch.column("payload").to_pylist()]
    return found


def test_what_stands_in_kafka_arrives_once_whatever_happens_to_the_topic_and_its_broker(
    flow: Flow, cluster: Cluster, side: KafkaSide, own_kafka: KafkaServer
) -> None:
    what_stands_in_the_topic_comes_out_of_the_logs_with_its_columns(flow, cluster)
    a_partition_that_is_added_gets_a_task_while_the_others_go_on(flow, cluster, side)
    only_what_was_committed_there_is_delivered(flow, cluster, side, own_kafka)
    kafkas_own_tool_sees_that_nothing_is_left(flow, own_kafka)
    a_broker_that_goes_away_is_waited_for_and_nothing_is_lost(flow, cluster, own_kafka, side)
    stopping_delivers_everything(flow, cluster, side)


def what_stands_in_the_topic_comes_out_of_the_logs_with_its_columns(flow: Flow, cluster: Cluster) -> None:
    flow.wait_until_delivered(f"{TOPIC}/0", f"{TOPIC}/1")
    for record in outputs(cluster):
        assert record["same"] is True
        assert record["_offset"] == record["n"]
        assert record["_timestamp"]


def a_partition_that_is_added_gets_a_task_while_the_others_go_on(flow: Flow, cluster: Cluster, side: KafkaSide) -> None:
    side.add_partitions(TOPIC, 3)
    for partition in range(3):
        feed(cluster, side, partition, 100)
    flow.wait(lambda: len(flow.view.tasks()) == 3, "a third task")
    flow.wait_until_delivered(*(f"{TOPIC}/{partition}" for partition in range(3)))


def only_what_was_committed_there_is_delivered(
    flow: Flow, cluster: Cluster, side: KafkaSide, own_kafka: KafkaServer
) -> None:
    with transactional(own_kafka.bootstrap, "the other side") as writer:
        for partition, commits in ((0, True), (1, False), (2, True)):
            writer.begin_transaction()
            values = records(cluster, partition, 50) if commits else [b"aborted: not even JSON"] * 50
            for value in values:
                writer.send(TOPIC, value, partition=partition)
            writer.flush()
            if commits:
                writer.commit_transaction()
            else:
                writer.abort_transaction()
    feed(cluster, side, 1, 10)
    flow.wait_until_delivered(*(f"{TOPIC}/{partition}" for partition in range(3)))


def kafkas_own_tool_sees_that_nothing_is_left(flow: Flow, own_kafka: KafkaServer) -> None:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = ""

    def shows_no_lag() -> bool:
        nonlocal told
        told = own_kafka.run(tool, ["--describe", "--group", "scribengin-kafka-flow-src"])
        rows = [line.split() for line in told.splitlines() if f" {TOPIC} " in line]
        return sorted(row[2] for row in rows) == ["0", "1", "2"] and all(row[5] == "0" for row in rows)

    wait_until(shows_no_lag, TIMEOUT_S, "a LAG of 0 in all three partitions")


def a_broker_that_goes_away_is_waited_for_and_nothing_is_lost(
    flow: Flow, cluster: Cluster, own_kafka: KafkaServer, side: KafkaSide
) -> None:
    feed(cluster, side, 0, 500)
    own_kafka.stop()
    flow.wait(lambda: any("it is waited for" in (t.error or "") for t in flow.status.tasks), "the status to say so")
    own_kafka.start()
    feed(cluster, side, 1, 100)
    flow.wait_until_delivered(*(f"{TOPIC}/{partition}" for partition in range(3)))


def stopping_delivers_everything(flow: Flow, cluster: Cluster, side: KafkaSide) -> None:
    feed(cluster, side, 2, 100)
    flow.wait_until_delivered(*(f"{TOPIC}/{partition}" for partition in range(3)))
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: not flow.containers(), "all processes to leave")
    found = len(outputs(cluster))
    assert found == sum(cluster.appended.values()), f"{found} of {cluster.appended}"
