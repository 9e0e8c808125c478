"""Bad records of a dataflow with state: what cannot be decoded takes the error route; what a function raises on stops
the task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.errors import TransformationFailed
from scribengin_registry.contract import Registry
from tests.integration.state_flow import FAR, StateFlow, drain, payloads_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COUNTS = """
SELECT who, count(*) AS n, sum(100 / n) AS hundredths FROM src GROUP BY window(at, '10 seconds'), who
"""
GOOD = payloads_of([(10, "a", 1), (11, "b", 2), (12, "a", 4)])


def routed(registry: Registry, spark: SparkSession, directory: Path) -> StateFlow:
    sinks = {name: {"kind": "log", "log": name} for name in ("out", "bad")}
    return StateFlow(
        registry,
        spark,
        directory,
        sql={"out": COUNTS},
        sinks={**sinks, "out": {**sinks["out"], "format": "json"}},
        errors={"action": "route", "sink": "bad"},
    )


def append(flow: StateFlow, payloads: list[bytes]) -> None:
    with flow.namespace.open_writer("in/0") as writer:
        writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)


def bad(flow: StateFlow) -> list[dict[str, Any]]:
    with flow.open() as resources:
        [stream] = resources.sink_streams(1)["bad"]
        batches = list(resources.sinks["bad"].committed(stream))
    return [json.loads(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def test_what_cannot_be_decoded_takes_the_route_and_windows_count_all_others(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = routed(memory_registry, spark, tmp_path)
    append(flow, [GOOD[0], b"no json", GOOD[1], b"\xff", b"{", GOOD[2]])
    with flow.owner() as owner:
        owner.take_over()
        first = owner.run_round()
        assert first is not None
        assert (first.records_in, first.records_bad) == (4, 2)
        drain(owner)
        append(flow, payloads_of([(FAR, "z", 1)]))
        drain(owner)
        owner.release()
    found = bad(flow)
    assert [one["index"] for one in found] == [1, 3, 0]
    assert {one["reason"].partition(":")[0] for one in found} == {"malformed JSON"}
    assert [one["payload"] for one in found] == ["no json", "base64:/w==", "{"]
    assert sorted((row["who"], row["n"], row["hundredths"]) for row in flow.delivered()) == [
        ("a", 2, 125.0),
        ("b", 1, 50.0),
    ]


def test_a_record_that_a_function_raises_on_stops_the_task_though_there_is_a_route(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = routed(memory_registry, spark, tmp_path)
    append(flow, [GOOD[0], *payloads_of([(11, "b", 0)])])
    with flow.owner() as owner:
        owner.take_over()
        with pytest.raises(TransformationFailed, match="DIVIDE_BY_ZERO"):
            owner.run_round()
    assert bad(flow) == []
    assert flow.delivered() == []
