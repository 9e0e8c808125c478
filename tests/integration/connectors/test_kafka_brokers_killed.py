"""Exactly once on three brokers, each of which may be killed: whatever it was in the midst of, another one leads.

One task writes a topic and a log in every round, and commits both with one transaction of Kafka's. Of a lone broker
that is killed right after a decision Kafka may lose the round; of several it must not.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from scribengin.connectors.kafka.sink import transaction
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka_cluster import TRANSACTIONS, KafkaBrokers
from scribengin_registry.contract import Registry
from tests.dying import Died, die
from tests.integration.connectors.kafka_rounds import Flow, drained, kafka_flow

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


@pytest.fixture
def owner(flow: Flow) -> Iterator[RoundRunner]:
    """An owner that has run a round, and has another one to run."""
    flow.append(RECORDS)
    first = flow.taken()
    assert drained(first)
    flow.append(RECORDS)
    yield first
    first.close()


@pytest.fixture
def kill(kafka_brokers: KafkaBrokers, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Kills a broker. From then on the engine asks again soon: a client that was about to ask a broker that was killed
    may wait for it as long as it is allowed to."""

    def kill_broker(number: int) -> None:
        monkeypatch.setattr(transaction, "REQUEST_TIMEOUT_S", 6.0)
        monkeypatch.setattr(transaction, "GIVEN_UP_AFTER_S", 8.0)
        kafka_brokers.kill(number)

    return kill_broker


@pytest.mark.parametrize(
    "stops",
    [
        ("kafka.produce:after", "kafka.commit:after"),
        pytest.param(("round.prepare:after",), marks=pytest.mark.full),  # to the brokers the first of the two
    ],
)
def test_a_broker_that_is_killed_at_any_moment_costs_no_record_and_doubles_none(
    flow: Flow, owner: RoundRunner, kafka_brokers: KafkaBrokers, kill: Callable[[int], None], stops: tuple[str, ...]
) -> None:
    for stop in stops:
        with at_failpoint(stop, lambda _stop: kill(kafka_brokers.leader(TRANSACTIONS))):
            drained(owner)
        wait_until(partial(drained, owner), LIMIT_S, "the other brokers to lead, and the rounds to be run")
        kafka_brokers.start()
        flow.expect_everything_once(stop)
        flow.append(RECORDS)


@pytest.mark.full
def test_a_decision_whose_markers_nobody_has_written_stands_though_its_coordinator_is_killed(
    flow: Flow, owner: RoundRunner, kafka_brokers: KafkaBrokers, kill: Callable[[int], None]
) -> None:
    """The broker that leads the topic stands still, so that no marker gets there. The coordinator decides, and is
    killed; so is the round's owner. The last broker finds the decision, and writes the markers."""
    topic = flow.config.sinks["out"].topic  # type: ignore[union-attr]
    coordinator = kafka_brokers.leader(TRANSACTIONS)
    leader = kafka_brokers.leader(topic)
    assert leader != coordinator
    with ExitStack() as still:

        def kill_coordinator(stop: str) -> None:
            kill(coordinator)
            die(stop)

        def let_leader_stand_still(_stop: str) -> None:
            still.enter_context(kafka_brokers.standing_still(leader))
            still.enter_context(at_failpoint("kafka.commit:after", kill_coordinator))

        with at_failpoint("kafka.commit:before", let_leader_stand_still), pytest.raises(Died):
            owner.run_round()
    owner.close()
    second = flow.owner()
    wait_until(partial(drained, second), LIMIT_S, "the last broker to finish the transaction")
    kafka_brokers.start()
    flow.expect_everything_once("between a decision and its markers")
    second.close()
