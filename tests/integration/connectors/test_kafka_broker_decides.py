"""The transaction coordinator on a real broker and a real registry: what the broker keeps, and what it does when it is
killed, stands still, or moves.

What happens between Kafka and the registry is tried in `test_kafka_decides.py`, on a Kafka in memory. What readers see
is told by kafka-python.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from kafka import KafkaAdminClient, TopicPartition

from scribengin.connectors.kafka.sink import transaction
from scribengin.connectors.kafka.sink.transaction import committed_offset
from scribengin.errors import SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.standstill import standing_still
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.integration.connectors.kafka_rounds import Flow, drained, kafka_flow, topic_sink
from tests.servers.kafka_clients import PATIENT, await_markers

PREPARED = "round.prepare:after"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    """The namespace that the dataflows below read and write, with an empty log `in/0`."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("in/0")
        yield opened


@pytest.fixture
def flow(registry: Registry, namespace: LogNamespace, own_kafka: KafkaServer) -> Iterator[Flow]:
    """A flow with ten records to read, into two topics and a log."""
    sinks = {
        "out": topic_sink(own_kafka.bootstrap),
        "more": topic_sink(own_kafka.bootstrap),
        "log": {"kind": "log", "log": "log"},
    }
    with kafka_flow(registry, namespace, sinks) as opened:
        opened.append(10)
        yield opened


def forget(flow: Flow) -> None:
    """Let the group's offsets expire."""
    config: Any = flow.config.sinks["out"]
    with closing(KafkaAdminClient(bootstrap_servers=config.bootstrap, **PATIENT)) as admin:
        await_markers(admin)  # a marker that comes later would bring them back
        admin.delete_group_offsets(flow.group(), [TopicPartition(config.topic, 0)])


def told_by(flow: Flow) -> dict[str, Any]:
    """What Kafka's metadata says, as another client reads it."""
    config: Any = flow.config.sinks["out"]
    with closing(KafkaAdminClient(bootstrap_servers=config.bootstrap, **PATIENT)) as admin:
        await_markers(admin)  # until then the offset is the one before, or none
        found = admin.list_group_offsets(flow.group())
    (offsets,) = found.values() if all(isinstance(value, dict) for value in found.values()) else (found,)
    metadata: str = offsets[TopicPartition(config.topic, 0)].metadata
    told: dict[str, Any] = json.loads(metadata.rstrip("\0"))
    return told


def test_the_metadata_says_which_round_of_which_task_it_was(flow: Flow) -> None:
    owner = flow.taken()
    owner.run_round()
    log = flow.commit_log("out")
    assert told_by(flow) == {"dataflow": "flow", "task": "task-0", "epoch": log.epoch, "round": log.round}
    owner.close()


def test_metadata_that_has_expired_while_nothing_is_prepared_is_written_again(flow: Flow) -> None:
    first = flow.taken()
    first.run_round()
    first.release()
    first.close()
    before = told_by(flow)
    forget(flow)
    second = flow.taken()
    assert told_by(flow) == before
    flow.append(10)
    second.run_round()
    flow.expect_everything_once()
    second.close()


@pytest.mark.full
def test_a_broker_that_is_killed_in_the_middle_of_a_round_and_comes_back_costs_nothing(
    flow: Flow, own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(_stop: str) -> None:
        """Only from now on be impatient: before, a slow answer is no failure."""
        monkeypatch.setattr(transaction, "REQUEST_TIMEOUT_S", 5.0)
        own_kafka.kill()

    for stop in ("kafka.produce:after", PREPARED):
        owner = flow.taken()
        with at_failpoint(stop, kill), pytest.raises(SystemUnreachable):
            owner.run_round()
        own_kafka.start()
        wait_until(partial(drained, owner), 200, "the broker to know its transactions again, and the rounds to be run")
        monkeypatch.undo()
        flow.expect_everything_once()
        owner.close()
        flow.append(10)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("kafka.prepare", "no answer for 1 s; the producer is given up"),
        ("kafka.commit", "looking for topic .*Timed out"),  # the owner asks at once what became of it
    ],
)
def test_a_call_that_does_not_keep_to_its_own_limit_is_given_up_and_its_producer_with_it(
    flow: Flow, own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch, step: str, said: str
) -> None:
    """Seen of librdkafka; here a broker stands still for longer than we wait, and answers the lost calls later."""
    pid = own_kafka.pid
    assert pid is not None
    owner = flow.taken()
    assert drained(owner)  # so that the broker has made the topics of its own
    flow.append(10)
    monkeypatch.setattr(transaction, "GIVEN_UP_AFTER_S", 1.0)
    with (
        ExitStack() as still,
        at_failpoint(f"{step}:before", lambda _stop: still.enter_context(standing_still(pid))),
        pytest.raises(SystemUnreachable, match=said),
    ):
        owner.run_round()
    monkeypatch.undo()
    wait_until(partial(drained, owner), 200, "the broker to answer again")
    flow.expect_everything_once()
    owner.close()


def test_a_coordinator_that_moves_while_the_last_decision_is_read_is_waited_for(own_kafka: KafkaServer) -> None:
    """As on a new broker, which makes the topic of its groups while the first of them is asked for: NOT_COORDINATOR."""
    groups = "__consumer_offsets"
    member = Consumer({"bootstrap.servers": own_kafka.bootstrap, "group.id": uuid.uuid4().hex})
    admin = KafkaAdminClient(bootstrap_servers=own_kafka.bootstrap, **PATIENT)

    def read_and_moved() -> bool:
        assert committed_offset(member, ClientPartition("any", 0)).offset < 0
        return groups in admin.list_topics() and admin.describe_topics([groups])[0]["topic_id"] != before

    try:
        committed_offset(member, ClientPartition("any", 0))  # so that it knows its coordinator
        before = admin.describe_topics([groups])[0]["topic_id"]
        admin.delete_topics([groups])
        wait_until(read_and_moved, 60, "the coordinator to move")
    finally:
        admin.close()
        member.close()


def test_a_record_that_is_too_large_for_the_topic_goes_the_way_of_bad_records(
    registry: Registry, namespace: LogNamespace, own_kafka: KafkaServer
) -> None:
    small = topic_sink(own_kafka.bootstrap, create={"config": {"max.message.bytes": 2_000}})
    sinks = {"out": small, "bad": topic_sink(own_kafka.bootstrap)}
    with kafka_flow(registry, namespace, sinks, errors={"action": "route", "sink": "bad"}) as flow:
        flow.append(5)
        flow.append(1, padding=2_000)
        flow.append(5)
        owner = flow.taken()
        outcome = owner.run_round()
        assert outcome is not None
        assert (outcome.records_in, outcome.records_out, outcome.records_bad) == (11, 10, 1)
        assert flow.seen("out") == [payload for number, payload in enumerate(flow.expected("out")) if number != 5]
        (routed,) = flow.seen("bad")
        assert "a record of 2005 bytes, and max.message.bytes of the topic is 2000" in json.loads(routed)["reason"]
        owner.close()
