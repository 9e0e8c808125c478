"""Exactly once on three brokers, each of which may be killed: whatever it was in the midst of, another one leads.

One task writes a topic and a log in every round, and commits both with one transaction of Kafka's. Of a lone broker
that is killed right after a decision Kafka may lose the round; of several it must not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import DecisionUnknown, SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka_cluster import TRANSACTIONS, KafkaBrokers
from scribengin_registry.contract import Registry
from tests.integration.kafka_rounds import Flow, Killed, die, kafka_flow
from tests.servers.kafka_clients import committed_records
from tests.stalls import expect_output

pytestmark = pytest.mark.timeout(600)
LIMIT_S = 180.0
RECORDS = 10


@pytest.fixture
def flow(memory_registry: Registry, kafka_brokers: KafkaBrokers, tmp_path: Path) -> Iterator[Flow]:
    """A flow into a topic that another broker leads than the one that coordinates transactions, and into a log."""
    warm = Producer({"bootstrap.servers": kafka_brokers.bootstrap, "transactional.id": uuid.uuid4().hex})
    warm.init_transactions(LIMIT_S)  # the brokers have made their own topic
    topic = f"out-{uuid.uuid4().hex[:8]}"
    coordinator = kafka_brokers.leader(TRANSACTIONS)
    kafka_brokers.create_topic(topic, led_by=coordinator % 3 + 1)
    sinks = {
        "out": {"kind": "kafka", "bootstrap": kafka_brokers.bootstrap, "topic": topic},
        "log": {"kind": "log", "log": "log"},
    }
    LogNamespace.bind("/logs", tmp_path / "logs", registry=memory_registry)
    with LogNamespace.open("/logs", registry=memory_registry) as namespace:
        namespace.create("in/0")
        with kafka_flow(memory_registry, namespace, sinks) as flow:
            yield flow


def drained(owner: RoundRunner) -> bool:
    """What a worker does, which waits for brokers as long as it takes."""
    with suppress(SystemUnreachable, DecisionUnknown):
        if not owner.owning:
            owner.take_over()
        while owner.lag():
            owner.run_round()
        return True
    return False


def expect_everything_once(flow: Flow, brokers: KafkaBrokers, case: str) -> None:
    config = flow.config.sinks["out"]
    found = [record.value for record in committed_records(brokers.bootstrap, config.topic)]  # type: ignore[union-attr]
    expect_output(found == flow.expected("out"), f"{case}: the topic holds {found}")
    (stream,) = flow.opened.sink_streams(1)["log"]
    batches = flow.opened.sinks["log"].committed(stream)
    logged = [payload for batch in batches for payload in batch.column("payload").to_pylist()]
    expect_output(logged == flow.expected("log"), f"{case}: the log holds {logged}")


def test_a_broker_that_is_killed_at_any_moment_costs_no_record_and_doubles_none(
    flow: Flow, kafka_brokers: KafkaBrokers
) -> None:
    flow.append(RECORDS)
    owner = flow.taken()
    assert drained(owner)
    for stop in ("kafka.produce:after", "round.prepare:after", "kafka.commit:after"):
        flow.append(RECORDS)
        with at_failpoint(stop, lambda _stop: kafka_brokers.kill(kafka_brokers.leader(TRANSACTIONS))):
            drained(owner)
        wait_until(partial(drained, owner), LIMIT_S, "the other brokers to lead, and the rounds to be run")
        kafka_brokers.start()
        expect_everything_once(flow, kafka_brokers, stop)
    owner.close()


def test_a_decision_whose_markers_nobody_has_written_stands_though_its_coordinator_is_killed(
    flow: Flow, kafka_brokers: KafkaBrokers
) -> None:
    """The broker that leads the topic stands still, so that no marker gets there. The coordinator decides, and is
    killed; so is the round's owner. The last broker finds the decision, and writes the markers."""
    flow.append(RECORDS)
    first = flow.taken()
    assert drained(first)
    flow.append(RECORDS)
    topic = flow.config.sinks["out"].topic  # type: ignore[union-attr]
    coordinator = kafka_brokers.leader(TRANSACTIONS)
    leader = kafka_brokers.leader(topic)
    assert leader != coordinator
    with ExitStack() as still:

        def kill_coordinator(stop: str) -> None:
            kafka_brokers.kill(coordinator)
            die(stop)

        def let_leader_stand_still(_stop: str) -> None:
            still.enter_context(kafka_brokers.standing_still(leader))
            still.enter_context(at_failpoint("kafka.commit:after", kill_coordinator))

        with at_failpoint("kafka.commit:before", let_leader_stand_still), pytest.raises(Killed):
            first.run_round()
    first.close()
    second = flow.owner()
    wait_until(partial(drained, second), LIMIT_S, "the last broker to finish the transaction")
    kafka_brokers.start()
    expect_everything_once(flow, kafka_brokers, "between a decision and its markers")
    second.close()
