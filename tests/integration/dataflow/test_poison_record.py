"""One record in 100,000 that nobody can take: on the error route, or the end of the task, and nothing else lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import TransformationFailed
from scribengin.log import LogNamespace
from scribengin.spark.transform.transformation import Transformation
from scribengin_registry.contract import Registry
from tests.integration.one_owner import taken_over

pytestmark = pytest.mark.spark

RECORDS = 100_000
POISON = 61_803


@pytest.fixture
def filled(registry: Registry, tmp_path: Path) -> Iterator[Registry]:
    """A registry whose log `in/0` holds the records, one of them cut short."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    payloads = [json.dumps({"n": n}).encode() for n in range(RECORDS)]
    payloads[POISON] = b'{"n": 618'
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("in/0")
        with namespace.open_writer("in/0") as writer:
            writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)
        yield registry


def opened(registry: Registry, errors: dict[str, Any]) -> OpenedDataflow:
    config = DataflowConfig.parse(
        {
            "name": "poison",
            "sources": {"src": {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "n BIGINT"}},
            "sinks": {"out": {"kind": "log", "log": "out", "format": "json"}, **errors.pop("sinks", {})},
            "sql": {"out": "SELECT n, 2 * n AS double FROM src"},
            "errors": errors,
        },
        source="the test",
    )
    return OpenedDataflow(config, Environment(registry=registry, dataflow="poison", nodes=STREAM_NODES))


def written(resources: OpenedDataflow, sink: str) -> list[dict[str, Any]]:
    stream = resources.sink_streams(1)[sink][0]
    batches = resources.sinks[sink].committed(stream)
    return [json.loads(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def test_it_ends_on_the_error_route_with_the_reason_and_all_others_are_delivered_in_order(
    filled: Registry, spark: SparkSession
) -> None:
    errors = {"action": "route", "sink": "bad", "sinks": {"bad": {"kind": "log", "log": "bad"}}}
    with opened(filled, errors) as resources:
        task = taken_over(filled, resources, spark)
        outcome = task.run_round()
        task.release()
        assert outcome is not None
        assert (outcome.records_in, outcome.records_bad) == (RECORDS, 1)
        assert [row["n"] for row in written(resources, "out")] == [n for n in range(RECORDS) if n != POISON]
        (bad,) = written(resources, "bad")
        assert (bad["stream"], bad["index"], bad["payload"]) == ("in/0", POISON, '{"n": 618')
        assert bad["reason"].startswith("malformed JSON: ")


def test_one_in_a_thousand_is_found_with_one_look_and_one_more_run(
    registry: Registry, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, bad = 20_000, range(500, 20_000, 1_000)
    payloads = [json.dumps({"n": n}).encode() for n in range(count)]
    for n in bad:
        payloads[n] = bytes(range(256)) if n % 3 else "{'Grüße': ".encode()
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("in/0")
        with namespace.open_writer("in/0") as writer:
            writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)
    runs: list[int] = []
    run_tables = Transformation.run_tables

    def counted(self: Transformation, inputs: Mapping[str, pa.Table]) -> Any:
        runs.append(inputs["src"].num_rows)
        return run_tables(self, inputs)

    monkeypatch.setattr(Transformation, "run_tables", counted)
    errors = {"action": "route", "sink": "bad", "sinks": {"bad": {"kind": "log", "log": "bad"}}}
    with opened(registry, errors) as resources:
        task = taken_over(registry, resources, spark)
        outcome = task.run_round()
        task.release()
        assert outcome is not None
        assert outcome.records_bad == len(bad)
        assert runs == [count - len(bad)]
        assert [row["n"] for row in written(resources, "out")] == [n for n in range(count) if n not in bad]
        assert [row["index"] for row in written(resources, "bad")] == list(bad)
        assert all(row["reason"].startswith("malformed JSON: ") for row in written(resources, "bad"))


def test_or_it_stops_the_task_which_says_where_it_is_and_nothing_of_the_round_is_written(
    filled: Registry, spark: SparkSession
) -> None:
    with opened(filled, {"action": "stop"}) as resources:
        task = taken_over(filled, resources, spark)
        with pytest.raises(TransformationFailed, match=r"at log in/0, DLSN 1/\d+/\d+, of src/in/0"):
            task.run_round()
        assert task.owning, "nothing was staged, so the task is still owned"
        assert written(resources, "out") == []
