"""From logs through SQL to Dafka, and from Dafka through SQL to logs, with masters, workers and Spark.

Two dataflows, one after the other: what the first one publishes, the second one reads, and two programs publish to the
same topic. The second program comes late and goes again. The workers of both dataflows are killed while records come.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from scribengin.dafka import DafkaConfig, DafkaProducer, DafkaStore, DafkaTower
from scribengin.testing.waiting import wait_until
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start
from tests.integration.dafka.dafka_roles import LISTENING, config_of

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]
TOPIC = "flights"
LOGS = ("in/0", "in/1")


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(zookeeper.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def network(cluster: Cluster) -> Iterator[DafkaConfig]:
    """A tower and a store, which stay for the whole test: the config of roles on their network."""
    with ExitStack() as opened:
        tower = opened.enter_context(DafkaTower(LISTENING))
        config = config_of(tower)
        opened.enter_context(DafkaStore(cluster.namespace, config))
        yield config


def publish(cluster: Cluster, producer: DafkaProducer, name: str, count: int) -> None:
    """The next records of a program, which are expected from now on. A store has them when this returns."""
    first = cluster.appended.get(name, 0)
    cluster.appended[name] = first + count
    payloads = [json.dumps({"log": name, "n": n}).encode() for n in range(first, first + count)]
    producer.publish_many(payloads).result(60)


def to_dafka(cluster: Cluster, beacon: dict[str, Any]) -> Flow:
    return start(
        cluster,
        name="to-dafka",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"live": {"kind": "dafka", "topic": TOPIC, "beacon": beacon}},
        sql="SELECT payload FROM src",
        round={"records_max": 50},
        session_timeout_s=6,
    )


def from_dafka(cluster: Cluster, beacon: dict[str, Any], **keys: Any) -> Flow:
    return start(
        cluster,
        name="from-dafka",
        sources={
            "live": {
                "kind": "dafka",
                "topic": TOPIC,
                "beacon": beacon,
                **keys,
                "format": "json",
                "schema_ddl": "log STRING, n BIGINT",
            }
        },
        sinks={"out": {"kind": "log", "log": "out", "format": "json"}},
        sql="SELECT log, n, _topic AS topic, _producer AS producer, _sequence AS sequence FROM live",
        round={"records_max": 50},
        session_timeout_s=6,
    )


def kill_the_worker(flow: Flow) -> None:
    (victim,) = flow.ready_workers()
    os.kill(flow.view.worker(victim).pid, signal.SIGKILL)


def feed(cluster: Cluster) -> None:
    for log in LOGS:
        cluster.append(log, 200)


def test_records_go_from_logs_to_dafka_and_on_into_logs_once_and_in_order_though_workers_are_killed(
    cluster: Cluster, network: DafkaConfig
) -> None:
    beacon = network.beacon.model_dump()
    feed(cluster)
    with DafkaProducer(TOPIC, network) as early:
        publish(cluster, early, "early", 100)
        published, read = to_dafka(cluster, beacon), from_dafka(cluster, beacon)
        read.wait_until_delivered(*LOGS, "early")
        with DafkaProducer(TOPIC, network) as late:
            publish(cluster, late, "late", 100)
        for flow in (published, read):
            kill_the_worker(flow)
        feed(cluster)
        publish(cluster, early, "early", 100)
        read.wait_until_delivered(*LOGS, "early", "late")
    stop(published, read)
    what_came_out_is_whole_and_in_order(cluster, producers=len(LOGS) + 2)


def test_a_task_whose_producer_has_gone_ends_and_goes_on_where_it_stands_when_that_comes_back(
    cluster: Cluster, network: DafkaConfig
) -> None:
    """Once it is gone again its task takes the next producer, and the first one after that, too."""
    with DafkaProducer(TOPIC, network) as gone:
        publish(cluster, gone, "gone", 100)
    flow = from_dafka(cluster, network.beacon.model_dump(), forget_after_s=5.0)
    flow.wait_until_delivered("gone")
    wait_until(lambda: states_of_tasks(flow) == {"task-0": "finished"}, timeout_s=120)
    before = rounds_of(flow)
    with DafkaProducer(TOPIC, network, resume=(gone.partition.address, 100)) as back:
        publish(cluster, back, "gone", 100)
        flow.wait_until_delivered("gone")
    wait_until(lambda: states_of_tasks(flow) == {"task-0": "finished"} and rounds_of(flow) > before, timeout_s=120)
    with DafkaProducer(TOPIC, network) as later:
        publish(cluster, later, "later", 100)
        flow.wait_until_delivered("gone", "later")
        assert [stream.name for stream in flow.view.task("task-0").sources] == [f"{TOPIC}/{later.partition.address}"]
        with DafkaProducer(TOPIC, network, resume=(gone.partition.address, 200)) as back:
            publish(cluster, back, "gone", 100)
            flow.wait_until_delivered("gone", "later")
    assert list(flow.view.tasks()) == ["task-0"]
    assert flow.view.status().state == "running"
    stop(flow)
    what_came_out_is_whole_and_in_order(cluster, producers=2)


def states_of_tasks(flow: Flow) -> dict[str, str]:
    return {report.task: report.state for report in flow.view.status().tasks}


def rounds_of(flow: Flow) -> tuple[int, int]:
    """Of which of its owners the task's report is, and how many rounds it counts: a later one compares as greater."""
    [report] = flow.view.status().tasks
    return report.generation, report.rounds


def stop(*flows: Flow) -> None:
    for flow in flows:
        flow.edit(desired_state="stopped")
        flow.wait_for_state("stopped")


def what_came_out_is_whole_and_in_order(cluster: Cluster, producers: int) -> None:
    """Each producer's sequences come in their order, and so do the records of each log and program."""
    sequences: defaultdict[str, list[int]] = defaultdict(list)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for log in cluster.namespace.names(prefix="out/"):
        with cluster.namespace.open_reader(log) as reader:
            while (batch := reader.read_batch()) is not None:
                for record in map(json.loads, batch.column("payload").to_pylist()):
                    sequences[record["producer"]].append(record["sequence"])
                    numbers[record["log"]].append(record["n"])
    assert len(sequences) == producers
    for found in (*sequences.values(), *numbers.values()):
        assert found == list(range(len(found)))
    assert Counter({name: len(found) for name, found in numbers.items()}) == Counter(cluster.appended)
