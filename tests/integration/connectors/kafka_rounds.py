"""A dataflow in one process whose rounds write Kafka topics: what its tests need, and nothing that they judge."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.commit_log import CommitLog, Decision
from scribengin.connectors import Environment
from scribengin.connectors.contract import RecordSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.dying import Died, die
from tests.integration.owners import owners_of
from tests.servers.kafka_clients import committed_records

FLOW = "flow"


def topic_sink(bootstrap: str, **settings: Any) -> dict[str, Any]:
    """A sink of a new topic."""
    topic = f"out-{uuid.uuid4().hex[:8]}"
    return {"kind": "kafka", "bootstrap": bootstrap, "topic": topic, "create": {}, **settings}


def drained(owner: RoundRunner) -> bool:
    """What a worker does, which waits for brokers as long as it takes: whether they answered."""
    try:
        if not owner.owning:
            owner.take_over()
        while owner.lag():
            owner.run_round()
    except SystemUnreachable:
        return False
    return True


class ToAll:
    """Every payload to every sink: in each, the records are told apart by the sink's name."""

    def __init__(self, sinks: Sequence[str]) -> None:
        self._sinks = sinks

    def run(self, inputs: Mapping[str, Sequence[RecordSplit]]) -> dict[str, list[pa.RecordBatch]]:
        batches = [batch for split in inputs["in"] for batch in split.read()]
        return self.run_tables({"in": pa.Table.from_batches(batches)})

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        payloads = inputs["in"].column("payload").to_pylist()
        return {
            sink: [pa.record_batch({"payload": pa.array([b"%s:%s" % (sink.encode(), p) for p in payloads])})]
            for sink in self._sinks
        }


def of_brokers(bootstrap: str, topic: str) -> list[bytes]:
    """What kafka-python's readers of committed records see of a topic, once everything that was decided is visible."""
    return [record.value for record in committed_records(bootstrap, topic)]


class Flow:
    """The dataflow, its input log, and its owners under rising generations."""

    def __init__(
        self,
        registry: Registry,
        namespace: LogNamespace,
        sinks: Mapping[str, Mapping[str, Any]],
        clock: Clock,
        errors: Mapping[str, Any],
        read_topic: Callable[[str, str], list[bytes]],
    ) -> None:
        self._read_topic = read_topic
        self.registry = registry
        self._namespace = namespace
        value = {
            "name": FLOW,
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {name: dict(sink) for name, sink in sinks.items()},
            "sql": dict.fromkeys([name for name in sinks if name != errors.get("sink")], "SELECT 1"),
            "errors": dict(errors),
        }
        self.config = DataflowConfig.parse(value, source="the test")
        self.opened = OpenedDataflow(self.config, Environment(registry, FLOW, STREAM_NODES, clock))
        self.generation = 0
        self.written = 0

    def owner(self) -> RoundRunner:
        """The next owner, which has not taken over yet."""
        self.generation += 1
        sent_to_all = ToAll(self.config.outputs)
        (owner,) = owners_of(
            self.registry, self.opened, sent_to_all, owner=f"owner-{self.generation}", generation=self.generation
        )
        return owner

    def taken(self) -> RoundRunner:
        """The next owner, which has taken over."""
        owner = self.owner()
        owner.take_over()
        return owner

    def append(self, count: int, padding: int = 0) -> None:
        """So many more records into the source, numbered on."""
        payloads = [b"%d%s" % (number, b"." * padding) for number in range(self.written, self.written + count)]
        with self._namespace.open_writer("in/0") as writer:
            writer.write_bulk(pa.record_batch({"payload": pa.array(payloads, pa.binary())})).result(120)
        self.written += count

    def crash_at(self, stop: str) -> None:
        """An owner runs a round and dies at `stop`, leaving everything as it is."""
        owner = self.taken()
        with at_failpoint(stop, die), suppress(Died):
            owner.run_round()
            raise AssertionError(f"the round never came to {stop}")
        owner.close()

    def submitted(self) -> DataflowView:
        """The dataflow as an operator's commands find it: submitted, with its task."""
        view = DataflowView(self.registry, FLOW)
        view.submit(self.config, [sink.resource for sink in self.opened.sinks.values()], now_ms=1)
        view.commit_placement(view.placement_head(), view.creation_of_tasks(self.opened.tasks()))
        return view

    def commit_logs(self) -> dict[str, bytes]:
        """All of them, as they are now: a copy of what the registry knows of the task."""
        source = paths.commit_log(paths.DataflowPaths(FLOW).source_stream("in", "in/0"))
        return {path: self.registry.get(path).data for path in [source, *map(self.commit_log_path, self.config.sinks)]}

    def commit_log_path(self, sink: str) -> str:
        """Of the sink's only stream."""
        (stream,) = self.opened.sink_streams(1)[sink]
        return paths.commit_log(paths.sink_stream(stream.resource, stream.name))

    def commit_log(self, sink: str) -> CommitLog:
        """What it says."""
        path = self.commit_log_path(sink)
        return CommitLog.from_bytes(self.registry.get(path).data, path=path)

    def expected(self, sink: str) -> list[bytes]:
        """Every record of the source once, as the sink has it."""
        return [b"%s:%d" % (sink.encode(), number) for number in range(self.written)]

    def seen(self, sink: str) -> list[bytes]:
        """What readers see of a sink."""
        config: Any = self.config.sinks[sink]
        if config.kind == "kafka":
            return self._read_topic(config.bootstrap, config.topic)
        (stream,) = self.opened.sink_streams(1)[sink]
        batches = self.opened.sinks[sink].committed(stream)
        return [payload for batch in batches for payload in batch.column("payload").to_pylist()]

    def expect_everything_once(self, case: str = "") -> None:
        """Raises AssertionError if a record of the source is not in every sink, once and in order."""
        for sink in self.config.sinks:
            found = self.seen(sink)
            assert found == self.expected(sink), f"{case}: sink {sink} holds {found}"

    def group(self) -> str:
        """The private group of the task: that of its first sink."""
        last = self.commit_log("out").decided or self.commit_log("out").prepared
        assert last is not None
        return last.coordinator if isinstance(last, Decision) else last.decision.coordinator


@contextmanager
def kafka_flow(
    registry: Registry,
    namespace: LogNamespace,
    sinks: Mapping[str, Mapping[str, Any]],
    clock: Clock = SYSTEM_CLOCK,
    errors: Mapping[str, Any] | None = None,
    read_topic: Callable[[str, str], list[bytes]] = of_brokers,
) -> Iterator[Flow]:
    """A flow that is closed afterwards. `read_topic`: what readers of committed records see, by bootstrap and topic."""
    flow = Flow(registry, namespace, sinks, clock, errors or {}, read_topic)
    with flow.opened:
        yield flow
