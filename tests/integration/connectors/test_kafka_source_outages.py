"""A Kafka source whose broker is away, or comes back; and what a user is told. On brokers of its own."""

from __future__ import annotations

import re
import threading
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.connectors.contract import PlannedRange, RoundLimits
from scribengin.connectors.kafka.client import client
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, ScribenginError, SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.operations.submit.explain import explain
from scribengin.spark.transform.spec import CheckedPlan
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.servers.kafka_side import KafkaSide

ALL = RoundLimits(10**6, 10**9)
TIMEOUT_S = 60.0


def config(bootstrap: str, **settings: Any) -> KafkaSourceConfig:
    value = {"kind": "kafka", "bootstrap": bootstrap, "topics": "in", "mirror_offsets": False, **settings}
    return KafkaSourceConfig.parse(value, source="a test")


def opened(bootstrap: str, **settings: Any) -> KafkaSource:
    return KafkaSource("in", config(bootstrap, **settings), "flow", SYSTEM_CLOCK, lambda: False)


def test_explain_names_a_topic_that_is_not_there_and_a_broker_that_is_not(
    registry: Registry, own_kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)

    def explained(bootstrap: str) -> list[str]:
        flow = DataflowConfig.parse(
            {
                "name": "flow",
                "sources": {"src": {"kind": "kafka", "bootstrap": bootstrap, "topics": "nowhere"}},
                "sinks": {"out": {"kind": "log", "log": "out"}},
                "sql": "SELECT payload FROM src",
            },
            source="a test",
        )
        return explain(registry, flow, environment, lambda _: CheckedPlan({}, {}, ()))[0].problems

    (missing,) = explained(own_kafka.bootstrap)
    assert missing.startswith("source 'src': there is no topic 'nowhere' a")
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_S", 5.0)
    (away,) = explained("127.0.0.1:1")
    assert re.match(r"Kafka at 127\.0\.0\.1:1, listing topics: .*refused.*; it is waited for: .*`bootstrap`", away)
    with pytest.raises(ConfigInvalid, match=r"Kafka's client refuses its settings: .*no\.such\.setting"):
        opened("h:1", client={"no.such.setting": 1})


def test_a_control_client_that_does_not_find_its_broker_again_is_replaced(
    own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MUTE_MAX_S", 1.0)
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_S", 1.0)
    topic = f"in-{uuid.uuid4().hex[:8]}"
    with closing(KafkaSide(own_kafka.bootstrap)) as side:
        side.create(topic)
    cluster = client.KafkaControl.of(config(own_kafka.bootstrap))
    try:
        cluster._admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})

        def ends() -> PartitionEnds | ScribenginError:
            return cluster.ends([(topic, 0)], "read_committed")[topic, 0]

        assert isinstance(ends(), SystemUnreachable)
        wait_until(lambda: isinstance(ends(), PartitionEnds), TIMEOUT_S, "another client")
    finally:
        cluster.release()


@pytest.mark.full
def test_a_broker_that_comes_back_is_read_on_from(own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(own_kafka.bootstrap)) as source:
        with closing(KafkaSide(own_kafka.bootstrap)) as side:
            side.create("in")
            side.send("in", [b"1"])
        reader = source.open_reader(source.streams()[0])
        plan = reader.plan(reader.initial_position(), ALL)
        assert plan is not None
        assert not reader.wait(plan.end, 0.2)
        monkeypatch.setattr(client, "REQUEST_TIMEOUT_S", 2.0)  # what came before had to be answered
        own_kafka.stop()
        with pytest.raises(SystemUnreachable, match="asking for the offsets of in/0"):
            reader.plan(plan.end, ALL)
        assert not reader.wait(plan.end, 0.2)
        woken = threading.Event()

        def wait_for_a_record() -> None:
            if reader.wait(plan.end, TIMEOUT_S):
                woken.set()

        waiting = threading.Thread(target=wait_for_a_record)
        waiting.start()
        own_kafka.start()
        with closing(KafkaSide(own_kafka.bootstrap)) as side:
            side.send("in", [b"2"])
        wait_until(woken.is_set, TIMEOUT_S, "the reader to wake")
        waiting.join()
        found: list[PlannedRange | None] = []

        def planned() -> bool:
            """As a worker does, which tries again: the client that plans has a connection of its own to get back."""
            with suppress(SystemUnreachable):
                found.append(reader.plan(plan.end, ALL))
            return bool(found)

        wait_until(planned, TIMEOUT_S, "the broker to answer")
        (rest,) = found
        assert rest is not None
        assert [b.column("payload").to_pylist() for split in rest.splits for b in split.read()] == [[b"2"]]
