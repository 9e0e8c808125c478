"""The transaction coordinator's protocol, half by half, on a Kafka, a registry and a store of logs in memory.

`tests/crash/test_kafka_crashes.py` kills and stalls owners at every step; here stands what else can happen between
Kafka and the registry. What a real broker does is tried in `test_kafka_broker_decides.py`.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scribengin.connectors.kafka.sink.sink import KafkaSink
from scribengin.connectors.kafka.sink.transaction import REFRESH_AFTER_S
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.view import Versioned
from scribengin.errors import ConfigInvalid, DecisionMissing, RecoveryRefused, StaleOwner
from scribengin.log import LogNamespace
from scribengin.operations.delete import finish_rounds
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from tests.dying import Died, die
from tests.integration.connectors.kafka_rounds import Flow, kafka_flow, topic_sink

PREPARED = "round.prepare:after"
DECIDED = "kafka.commit:after"


@pytest.fixture(params=["marks come at once", "marks come late"])
def cluster(request: pytest.FixtureRequest) -> Iterator[MemoryKafka]:
    """A cluster of the test's own."""
    with MemoryKafka("in-memory:8").serving() as memory:
        if request.param == "marks come late":
            delays_s = itertools.cycle((0.0, 0.02, 0.05))
            memory.mark_after_s = lambda _id, _place: next(delays_s)
        yield memory


@pytest.fixture
def namespace(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    """The namespace that the dataflows below read and write, with an empty log `in/0`."""
    disk = MemoryDisk(uuid.uuid4().hex)
    with bound_namespace(memory_registry, disk.name, "in/0", store=MEMORY_STORE) as opened:
        yield opened


@pytest.fixture
def flow(memory_registry: MemoryRegistry, namespace: LogNamespace, cluster: MemoryKafka) -> Iterator[Flow]:
    """A flow with ten records to read, into two topics and a log."""
    out, more = topic_sink(cluster.bootstrap), topic_sink(cluster.bootstrap)
    sinks = {"out": out, "more": more, "log": {"kind": "log", "log": "log"}}
    with kafka_flow(memory_registry, namespace, sinks, read_topic=reader_of(cluster)) as opened:
        opened.append(10)
        yield opened


def reader_of(cluster: MemoryKafka) -> Callable[[str, str], list[bytes]]:
    """Reads a topic once everything that was decided is visible."""

    def read(_bootstrap: str, topic: str) -> list[bytes]:
        cluster.write_marks()
        return [value or b"" for value in cluster.visible(topic)]

    return read


def forget(flow: Flow, cluster: MemoryKafka) -> None:
    """Let the group's offsets expire."""
    cluster.write_marks()  # one that comes later would bring them back
    cluster.groups.pop(flow.group(), None)


def told_by(flow: Flow, cluster: MemoryKafka) -> dict[str, Any]:
    """What Kafka's metadata says."""
    cluster.write_marks()
    config: Any = flow.config.sinks["out"]
    _offset, metadata = cluster.groups[flow.group()][config.topic, 0]
    told: dict[str, Any] = json.loads(metadata)
    return told


@pytest.mark.parametrize("stop", ["kafka.prepare:after", PREPARED, DECIDED, "round.commit:after"])
def test_topics_and_a_log_move_together_in_one_round(flow: Flow, stop: str) -> None:
    flow.taken().run_round()
    flow.append(10)
    flow.crash_at(stop)
    shown = {sink: flow.seen(sink) for sink in ("out", "more")}
    if stop in (DECIDED, "round.commit:after"):
        assert shown == {sink: flow.expected(sink) for sink in shown}
    else:
        assert shown == {sink: flow.expected(sink)[:10] for sink in shown}
    last = flow.taken()
    while last.lag():
        last.run_round()
    flow.expect_everything_once()
    assert flow.commit_log("out").prepared is None
    last.close()


@pytest.mark.parametrize(("stop", "verdict"), [(PREPARED, "rolled back"), (DECIDED, "committed")])
def test_metadata_that_has_expired_is_an_error_until_an_operator_has_looked(
    flow: Flow, cluster: MemoryKafka, stop: str, verdict: str
) -> None:
    flow.taken().run_round()
    flow.append(10)
    flow.crash_at(stop)
    forget(flow, cluster)
    group = flow.group()
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
    flow.expect_everything_once()
    last.close()


def test_an_owner_that_wrote_nothing_for_long_writes_the_last_decision_again_before_it_relies_on_it(
    memory_registry: MemoryRegistry, namespace: LogNamespace, cluster: MemoryKafka
) -> None:
    clock = ManualClock()
    sinks = {"out": topic_sink(cluster.bootstrap)}
    with kafka_flow(memory_registry, namespace, sinks, clock, read_topic=reader_of(cluster)) as flow:
        flow.append(10)
        owner = flow.taken()
        owner.run_round()
        before = told_by(flow, cluster)
        forget(flow, cluster)
        clock.advance_s(REFRESH_AFTER_S + 1)
        flow.append(10)
        with at_failpoint(PREPARED, die), pytest.raises(Died):
            owner.run_round()
        assert told_by(flow, cluster) == before
        owner.close()
        last = flow.taken()
        last.run_round()
        flow.expect_everything_once()
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
    flow.expect_everything_once()
    late.close()
    owner.close()


def test_whoever_recovers_a_log_leaves_a_round_alone_that_kafka_decides(flow: Flow, namespace: LogNamespace) -> None:
    for stop in (PREPARED, DECIDED):
        flow.crash_at(stop)
        with pytest.raises(RecoveryRefused, match=r"round . of task task-0 of flow is staged and prepared"):
            namespace.open_writer("log/0", steal=True)
        assert flow.seen("log") == flow.expected("log")[: len(flow.seen("log"))]
        last = flow.taken()
        while last.lag():
            last.run_round()
        flow.expect_everything_once()
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
    assert [flow.seen(sink) for sink in ("log", "out")] == [flow.expected(s)[: 10 * rounds] for s in ("log", "out")]
    delete_nodes(view)


def test_another_task_does_not_bring_a_prepared_round_to_its_end(flow: Flow) -> None:
    flow.crash_at(DECIDED)
    path = flow.commit_log_path("out")
    flow.registry.set(path, flow.commit_log("out").model_copy(update={"task": "task-9"}).to_bytes())
    with pytest.raises(DecisionMissing, match="has a prepared round of task task-9 of flow"):
        flow.taken()


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
