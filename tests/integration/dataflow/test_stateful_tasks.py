"""Several tasks with state, on Spark: each has the streams of some keys, of both sources, and all together give out
what a computation over all records at once does, also when one of them is taken over half way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig, RoundConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.errors import RecordMisplaced
from scribengin.log.clients import hash_partitioner
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_stateful_rounds import COUNTS, MEETINGS, told, windows
from tests.integration.owners import owners_with_state
from tests.integration.state_flow import FAR, SCHEMA, Died, Event, die, drain, own_to_the_end, payloads_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

STREAMS, TASKS = 4, 2
NAMES = [f"w{number}" for number in range(12)]
EVENTS: list[Event] = [(second, NAMES[second % len(NAMES)], second) for second in range(20, 140, 5)]
OTHERS: list[Event] = [(second + 7, NAMES[second % len(NAMES)], second) for second in range(20, 140, 10)]
"""Each of them meets an event."""


class TwoTasks:
    """A dataflow that counts windows of `src`, and joins it with `other`, in two tasks, and their owners. The windows
    go to logs among which they are divided as the sources are."""

    def __init__(self, registry: Registry, spark: SparkSession, directory: Path) -> None:
        logs = [f"{name}/{number}" for name in ("in", "ot") for number in range(STREAMS)]
        self.registry = registry
        self.spark = spark
        self.namespace = bound_namespace(registry, directory / "store", *logs)
        log = {"kind": "log", "format": "json", "schema_ddl": SCHEMA, "streams": STREAMS, "partition_by": ["who"]}
        sink = {"kind": "log", "format": "json"}
        self.config = DataflowConfig.parse(
            {
                "name": "flow",
                "sources": {"src": {**log, "logs": "in/*"}, "other": {**log, "logs": "ot/*"}},
                "sinks": {
                    "counts": {**sink, "log": "counts", "streams": STREAMS, "partition_by": ["who"]},
                    "met": {**sink, "log": "met"},
                },
                "sql": {"counts": COUNTS, "met": MEETINGS},
                "tasks": TASKS,
                "round": {"records_max": 2},
                "state": {
                    "checkpoints": str(directory / "state"),
                    "partitions": 1,
                    "watermarks": {name: {"column": "at", "delay_s": 500} for name in ("src", "other")},
                },
            },
            source="the test",
        )
        self.generation = 0

    def append(self, name: str, events: Sequence[Event]) -> None:
        for number in range(STREAMS):
            if here := [event for event in events if stream_of(event[1]) == number]:
                self.append_to(f"{name}/{number}", here)

    def append_to(self, log: str, events: Sequence[Event]) -> None:
        with self.namespace.open_writer(log) as writer:
            payloads = pa.array(payloads_of(events), pa.binary())
            writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)

    @contextmanager
    def owners(self) -> Iterator[list[StatefulRunner]]:
        """The next owners, one a task, of one worker: they share its transformation."""
        self.generation += 1
        environment = Environment(registry=self.registry, dataflow="flow", nodes=STREAM_NODES)
        with OpenedDataflow(self.config, environment) as resources:
            transform = StatefulTransformation.load(resources.transformation_spec(), self.spark)
            owners = owners_with_state(self.registry, resources, transform, self.generation)
            try:
                yield owners
            finally:
                for owner in owners:
                    owner.close()

    def delivered(self, sink: str, number: int) -> list[dict[str, Any]]:
        with self.namespace.open_reader(f"{sink}/{number}") as reader:
            batches = iter(reader.read_batch, None)
            return [json.loads(one) for batch in batches for one in batch.column("payload").to_pylist()]


def stream_of(who: str) -> int:
    return int(hash_partitioner(pa.array([who.encode()], pa.binary()), STREAMS)[0].as_py())


def test_two_tasks_give_out_what_one_computation_does_also_when_one_is_taken_over(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = TwoTasks(memory_registry, spark, tmp_path)
    ends: list[Event] = [(FAR, next(who for who in NAMES if stream_of(who) == n), 0) for n in range(STREAMS)]
    half, others_half = len(EVENTS) // 2, len(OTHERS) // 2
    flow.append("in", EVENTS[:half])
    flow.append("ot", OTHERS[:others_half])
    with flow.owners() as [first, second]:
        first.take_over()
        second.take_over()
        # Side by side, as the executors of one worker have them. Each has a log of three records or more, so there are
        # some left afterwards, whether a batch reads any or was due to the state before.
        assert first.run_round() is not None
        assert second.run_round() is not None
        with at_failpoint("round.commit:after", die), pytest.raises(Died):
            second.run_round()
        drain(first)
        first.release()
    flow.append("in", EVENTS[half:])
    flow.append("ot", OTHERS[others_half:])
    flow.config = flow.config.model_copy(update={"round": RoundConfig(records_max=100)})  # fewer, from now on
    with flow.owners() as owners:
        for owner in owners:
            own_to_the_end(owner)
        flow.append("in", ends)
        flow.append("ot", ends)
        for owner in owners:
            drain(owner)
            owner.release()
    counts = [flow.delivered("counts", stream) for stream in range(STREAMS)]
    assert told([one for of_stream in counts for one in of_stream]) == windows(EVENTS), f"{counts}"
    keys = [{one["who"] for one in of_stream} for of_stream in counts]
    placed = [{who for who in NAMES if stream_of(who) == stream} for stream in range(STREAMS)]
    assert keys == placed, f"{keys}"
    met = sorted((one["n"], one["m"]) for task in range(TASKS) for one in flow.delivered("met", task))
    assert met == meetings([*EVENTS, *ends], [*OTHERS, *ends]), f"{met}"


def meetings(events: Sequence[Event], others: Sequence[Event]) -> list[tuple[int, int]]:
    """What MEETINGS makes of all of them at once."""
    pairs = [(one, other) for one in events for other in others if one[1] == other[1] and 0 <= other[0] - one[0] <= 10]
    return sorted((one[2], other[2]) for one, other in pairs)


@pytest.mark.full
def test_a_key_in_a_wrong_stream_stops_the_task_that_has_it_and_no_other(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = TwoTasks(memory_registry, spark, tmp_path)
    flow.append("in", EVENTS[:12])
    stray = next(who for who in NAMES if stream_of(who) != 2)
    flow.append_to("ot/2", [(20, stray, 1)])
    said = f"of other/ot/2, has the key '{stray}', which belongs to stream {stream_of(stray)} of sources.other and not"
    with flow.owners() as [first, second]:
        first.take_over()
        second.take_over()
        with pytest.raises(RecordMisplaced, match=said) as refused:
            first.run_round()
        assert "\n" not in str(refused.value)
        assert second.run_round() is not None
