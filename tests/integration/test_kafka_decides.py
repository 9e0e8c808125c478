"""The transaction coordinator's protocol, half by half, on a real broker and a real registry.

`tests/crash/test_kafka_crashes.py` kills and stalls processes at every step; here stands what else can happen between
Kafka and the registry. What readers see is told by kafka-python.
"""

from __future__ import annotations

import json
import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from kafka import KafkaAdminClient, TopicPartition

from scribengin.base.commit_log import Decision
from scribengin.connectors.kafka.sink import transaction
from scribengin.connectors.kafka.sink.sink import KafkaSink
from scribengin.connectors.kafka.sink.transaction import REFRESH_AFTER_S, committed_offset
from scribengin.dataflow.registry.view import Versioned
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import ConfigInvalid, DecisionMissing, RecoveryRefused, StaleOwner, SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.operations.delete import finish_rounds
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.integration.kafka_rounds import Flow, Killed, die, kafka_flow
from tests.servers.kafka_clients import PATIENT, await_markers, committed_records

PREPARED = "round.prepare:after"
DECIDED = "kafka.commit:after"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    """The namespace that the dataflows below read and write, with an empty log `in/0`."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("in/0")
        yield opened


def topic_sink(kafka: KafkaServer, **settings: Any) -> dict[str, Any]:
    """A sink of a new topic."""
    topic = f"out-{uuid.uuid4().hex[:8]}"
    return {"kind": "kafka", "bootstrap": kafka.bootstrap, "topic": topic, "create": {}, **settings}


@pytest.fixture
def flow(registry: Registry, namespace: LogNamespace, kafka: KafkaServer) -> Iterator[Flow]:
    """A flow with ten records to read, into two topics and a log."""
    sinks = {"out": topic_sink(kafka), "more": topic_sink(kafka), "log": {"kind": "log", "log": "log"}}
    with kafka_flow(registry, namespace, sinks) as opened:
        opened.append(10)
        yield opened


def seen(flow: Flow, sink: str) -> list[bytes]:
    """What readers see of a sink."""
    config: Any = flow.config.sinks[sink]
    if config.kind == "kafka":
        return [record.value for record in committed_records(config.bootstrap, config.topic)]
    (stream,) = flow.opened.sink_streams(1)[sink]
    batches = flow.opened.sinks[sink].committed(stream)
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def assert_everything_is_there_once(flow: Flow) -> None:
    assert {sink: seen(flow, sink) for sink in flow.config.sinks} == {s: flow.expected(s) for s in flow.config.sinks}


def group_of(flow: Flow) -> str:
    """The private group of the task: that of its first sink."""
    last = flow.commit_log("out").decided or flow.commit_log("out").prepared
    assert last is not None
    return last.coordinator if isinstance(last, Decision) else last.decision.coordinator


def forget(flow: Flow) -> None:
    """Let the group's offsets expire."""
    config: Any = flow.config.sinks["out"]
    with closing(KafkaAdminClient(bootstrap_servers=config.bootstrap, **PATIENT)) as admin:
        await_markers(admin)  # a marker that comes later would bring them back
        admin.delete_group_offsets(group_of(flow), [TopicPartition(config.topic, 0)])


def told_by(flow: Flow) -> dict[str, Any]:
    """What Kafka's metadata says, as another client reads it."""
    config: Any = flow.config.sinks["out"]
    with closing(KafkaAdminClient(bootstrap_servers=config.bootstrap, **PATIENT)) as admin:
        await_markers(admin)  # until then the offset is the one before, or none
        found = admin.list_group_offsets(group_of(flow))
    (offsets,) = found.values() if all(isinstance(value, dict) for value in found.values()) else (found,)
    metadata: str = offsets[TopicPartition(config.topic, 0)].metadata
    told: dict[str, Any] = json.loads(metadata.rstrip("\0"))
    return told


@pytest.mark.parametrize("stop", ["kafka.prepare:after", PREPARED, DECIDED, "round.commit:after"])
def test_topics_and_a_log_move_together_in_one_round(flow: Flow, stop: str) -> None:
    flow.taken().run_round()
    flow.append(10)
    flow.crash_at(stop)
    shown = {sink: seen(flow, sink) for sink in ("out", "more")}
    if stop in (DECIDED, "round.commit:after"):
        assert shown == {sink: flow.expected(sink) for sink in shown}
    else:
        assert shown == {sink: flow.expected(sink)[:10] for sink in shown}
    last = flow.taken()
    while last.lag():
        last.run_round()
    assert_everything_is_there_once(flow)
    assert flow.commit_log("out").prepared is None
    last.close()


def test_the_metadata_says_which_round_of_which_task_it_was(flow: Flow) -> None:
    owner = flow.taken()
    owner.run_round()
    log = flow.commit_log("out")
    assert told_by(flow) == {"dataflow": "flow", "task": "task-0", "epoch": log.epoch, "round": log.round}
    owner.close()


@pytest.mark.parametrize(("stop", "verdict"), [(PREPARED, "rolled back"), (DECIDED, "committed")])
def test_metadata_that_has_expired_is_an_error_until_an_operator_has_looked(
    flow: Flow, stop: str, verdict: str
) -> None:
    flow.taken().run_round()
    flow.append(10)
    flow.crash_at(stop)
    forget(flow)
    group = group_of(flow)
    asked = flow.owner()
    with pytest.raises(DecisionMissing) as refused:
        asked.take_over()
    asked.close()
    assert re.search(f"round 2 of epoch .* is prepared, and only '{group}' can say", str(refused.value))
    path = str(refused.value).rpartition("into `prepared` of ")[2]
    written = json.loads(flow.registry.get(path).data)
    written["prepared"]["verdict"] = verdict
    flow.registry.set(path, json.dumps(written).encode())
    last = flow.taken()
    while last.lag():
        last.run_round()
    assert_everything_is_there_once(flow)
    last.close()


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
    assert_everything_is_there_once(flow)
    second.close()


def test_an_owner_that_wrote_nothing_for_long_writes_the_last_decision_again_before_it_relies_on_it(
    registry: Registry, namespace: LogNamespace, kafka: KafkaServer
) -> None:
    clock = ManualClock()
    with kafka_flow(registry, namespace, {"out": topic_sink(kafka)}, clock) as flow:
        flow.append(10)
        owner = flow.taken()
        owner.run_round()
        before = told_by(flow)
        forget(flow)
        clock.advance_s(REFRESH_AFTER_S + 1)
        flow.append(10)
        with at_failpoint(PREPARED, die), pytest.raises(Killed):
            owner.run_round()
        assert told_by(flow) == before
        owner.close()
        last = flow.taken()
        last.run_round()
        assert_everything_is_there_once(flow)
        last.close()


def test_a_registry_that_was_brought_back_from_a_copy_is_not_believed(flow: Flow) -> None:
    first = flow.taken()
    first.run_round()
    copy = flow.commit_logs()
    flow.append(10)
    first.run_round()
    first.close()
    for path, data in copy.items():
        flow.registry.set(path, data)
    with pytest.raises(DecisionMissing, match=r"says that round 2 of epoch .* and the registry knows of round 1"):
        flow.taken()


def test_a_stale_owner_that_asks_late_is_told_that_it_is_stale_and_the_round_goes_on(flow: Flow) -> None:
    late, owner = flow.owner(), flow.owner()
    late._owned.ownership.take()  # it stalls between its fence in the registry and the one in Kafka
    owner.take_over()
    owner.run_round()
    with pytest.raises(StaleOwner):
        late._owned._decide()
    flow.append(10)
    assert owner.run_round() is None  # undone, and taken over from itself
    while owner.lag():
        owner.run_round()
    assert_everything_is_there_once(flow)
    late.close()
    owner.close()


def test_whoever_recovers_a_log_leaves_a_round_alone_that_kafka_decides(flow: Flow, namespace: LogNamespace) -> None:
    for stop in (PREPARED, DECIDED):
        flow.crash_at(stop)
        with pytest.raises(RecoveryRefused, match=r"round . of task task-0 of flow is staged and prepared"):
            namespace.open_writer("log/0", steal=True)
        assert seen(flow, "log") == flow.expected("log")[: len(seen(flow, "log"))]
        last = flow.taken()
        while last.lag():
            last.run_round()
        assert_everything_is_there_once(flow)
        last.close()
        flow.append(10)


@pytest.mark.parametrize(("stop", "rounds"), [(PREPARED, 0), (DECIDED, 1)])
def test_a_prepared_round_is_brought_to_its_end_before_a_dataflow_is_deleted(
    flow: Flow, stop: str, rounds: int
) -> None:
    view = flow.submitted()
    flow.crash_at(stop)
    head = view.placement_head()
    view.commit_placement(Versioned(head.value.model_copy(update={"next_generation": 2}), head.version), [])
    finish_rounds(view)
    logs = [flow.commit_log(sink) for sink in flow.config.sinks]
    assert [(log.round, log.prepared) for log in logs] == [(rounds, None)] * 3
    source = view.paths.source_stream("in", "in/0") + "/commit-log"
    assert json.loads(flow.registry.get(source).data)["round"] == rounds
    assert [seen(flow, sink) for sink in ("log", "out")] == [flow.expected(s)[: 10 * rounds] for s in ("log", "out")]
    view.delete()


def test_another_task_does_not_bring_a_prepared_round_to_its_end(flow: Flow, registry: Registry) -> None:
    flow.crash_at(DECIDED)
    path = flow.commit_log_path("out")
    flow.registry.set(path, flow.commit_log("out").model_copy(update={"task": "task-9"}).to_bytes())
    with pytest.raises(DecisionMissing, match="has a prepared round of task task-9 of flow"):
        flow.taken()


def drained(owner: RoundRunner) -> bool:
    """What a worker does, which waits for a broker as long as it takes."""
    try:
        if not owner.owning:
            owner.take_over()
        while owner.lag():
            owner.run_round()
    except SystemUnreachable:
        return False
    return True


def test_a_broker_that_is_killed_in_the_middle_of_a_round_and_comes_back_costs_nothing(
    flow: Flow, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(_stop: str) -> None:
        """Only from now on be impatient: before, a slow answer is no failure."""
        monkeypatch.setattr(transaction, "REQUEST_TIMEOUT_S", 5.0)
        kafka.kill()

    for stop in ("kafka.produce:after", PREPARED):
        owner = flow.taken()
        with at_failpoint(stop, kill), pytest.raises(SystemUnreachable):
            owner.run_round()
        kafka.start()
        wait_until(partial(drained, owner), 200, "the broker to know its transactions again, and the rounds to be run")
        monkeypatch.undo()
        assert_everything_is_there_once(flow)
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
    flow: Flow, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch, step: str, said: str
) -> None:
    """Seen of librdkafka; here a broker stands still for longer than we wait, and answers the lost calls later."""
    pid = kafka.pid
    assert pid is not None
    owner = flow.taken()
    assert drained(owner)  # so that the broker has made the topics of its own
    flow.append(10)
    monkeypatch.setattr(transaction, "GIVEN_UP_AFTER_S", 1.0)
    try:
        with (
            at_failpoint(f"{step}:before", lambda _stop: os.kill(pid, signal.SIGSTOP)),
            pytest.raises(SystemUnreachable, match=said),
        ):
            owner.run_round()
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    wait_until(partial(drained, owner), 200, "the broker to answer again")
    assert_everything_is_there_once(flow)
    owner.close()


def test_a_coordinator_that_moves_while_the_last_decision_is_read_is_waited_for(kafka: KafkaServer) -> None:
    """As on a new broker, which makes the topic of its groups while the first of them is asked for: NOT_COORDINATOR."""
    groups = "__consumer_offsets"
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex})
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap, **PATIENT)

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


def test_two_clusters_cannot_decide_about_one_task(flow: Flow) -> None:
    (stream,) = flow.opened.sink_streams(1)["more"]
    elsewhere = stream.model_copy(update={"resource": "kafka:another-cluster/more"})
    sink = flow.opened.sinks["more"]
    assert isinstance(sink, KafkaSink)
    sink._resource = elsewhere.resource
    with pytest.raises(
        ConfigInvalid, match=r"sinks 'out' .* and 'more' .kafka:another-cluster. cannot commit together"
    ):
        flow.opened.tasks()


def test_a_record_that_is_too_large_for_the_topic_goes_the_way_of_bad_records(
    registry: Registry, namespace: LogNamespace, kafka: KafkaServer
) -> None:
    small = topic_sink(kafka, create={"config": {"max.message.bytes": 2_000}})
    sinks = {"out": small, "bad": topic_sink(kafka)}
    with kafka_flow(registry, namespace, sinks, errors={"action": "route", "sink": "bad"}) as flow:
        flow.append(5)
        flow.append(1, padding=2_000)
        flow.append(5)
        owner = flow.taken()
        outcome = owner.run_round()
        assert outcome is not None
        assert (outcome.records_in, outcome.records_out, outcome.records_bad) == (11, 10, 1)
        assert seen(flow, "out") == [payload for number, payload in enumerate(flow.expected("out")) if number != 5]
        (routed,) = seen(flow, "bad")
        assert "a record of 2005 bytes, and max.message.bytes of the topic is 2000" in json.loads(routed)["reason"]
        owner.close()
