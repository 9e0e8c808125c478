"""Sinks whose records are divided among streams by their keys: where a record goes, and once, whoever dies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.connectors.contract import DIVIDED_BY, RECORD_SCHEMA, Division
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import ConfigInvalid
from scribengin.log import LogNamespace
from scribengin.log.clients import hash_partitioner
from scribengin.spark.transform.spec import InputSpec, OutputSpec
from scribengin.spark.transform.transformation import Transformation
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_stateful_rounds import COUNTS, END, EVENTS, told, windows
from tests.integration.owners import owners_of
from tests.integration.spark_samples import records, spec
from tests.integration.state_flow import Died, StateFlow, die, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STREAMS = 3
DIVIDED = {"kind": "log", "log": "out", "format": "json", "streams": STREAMS, "partition_by": ["who"]}
STOPS = ("log.stage_write:after", "round.commit:before", "round.commit:after", "log.control_write:before")
KEYS = """
    SELECT payload, cast(payload AS STRING) AS text, 7 AS int, 7L AS long, true AS yes, cast(null AS STRING) AS nothing,
        date'2013-01-02' AS day, timestamp'2013-01-02 03:04:05.678' AS at, 1.5D AS floating FROM src
"""


def keys(spark: SparkSession, *columns: str) -> list[bytes]:
    outputs = [OutputSpec("out", division=Division(4, columns))]
    made = spec(sql={"out": KEYS}, inputs=[InputSpec("src", RECORD_SCHEMA)], outputs=outputs)
    [batch] = Transformation.load(made, spark).run_tables({"src": records([b"UA"])})["out"]
    assert batch.schema.names == ["payload", DIVIDED_BY]
    return batch.column(DIVIDED_BY).to_pylist()


def test_a_key_is_the_text_of_its_columns_whatever_their_width(spark: SparkSession) -> None:
    assert keys(spark, "text") == keys(spark, "payload") == [b"UA"]
    assert keys(spark, "int") == keys(spark, "long") == [b"7"]
    assert keys(spark, "yes") == [b"true"]
    assert keys(spark, "day", "at") == [b"15707\x1f1357095845678000"]
    assert keys(spark, "text", "nothing", "int") == [b"UA\x1f7"]
    assert keys(spark, "nothing") == [b""]


def test_the_stream_of_a_key_never_changes() -> None:
    """These are Kafka's, too: logs that were divided before stay as they are."""
    carriers = pa.array([b"UA", b"AA", b"B6", b"DL", b"EV", b"7", b""], pa.binary())
    assert hash_partitioner(carriers, 8).to_pylist() == [2, 5, 0, 3, 3, 3, 1]


def test_what_is_no_key_is_refused_with_the_columns_there_are(spark: SparkSession) -> None:
    with pytest.raises(ConfigInvalid, match=r"sinks\.out\.partition_by names 'carier', which the output has not"):
        keys(spark, "carier")
    with pytest.raises(ConfigInvalid, match="'floating' is double, and keys are text"):
        keys(spark, "floating")


def by_stream(namespace: LogNamespace) -> list[list[dict[str, Any]]]:
    """What the logs `out/<k>` hold, in order."""
    found = []
    for number in range(STREAMS):
        with namespace.open_reader(f"out/{number}") as reader:
            batches = iter(reader.read_batch, None)
            found.append([json.loads(one) for batch in batches for one in batch.column("payload").to_pylist()])
    return found


def stream_of(who: str) -> int:
    return int(hash_partitioner(pa.array([who.encode()], pa.binary()), STREAMS)[0].as_py())


@pytest.mark.full
def test_a_task_with_state_divides_its_rounds_once_whoever_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS, sinks={"out": DIVIDED}, round={"records_max": 20})
    flow.append("in/0", [*EVENTS, *END])
    flow.append("in/1", [*EVENTS, *END])
    for stop in STOPS:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    flow.run_to_the_end()
    streams = by_stream(flow.namespace)
    assert told([one for stream in streams for one in stream]) == windows(EVENTS * 2)
    assert all(stream_of(one["who"]) == number for number, stream in enumerate(streams) for one in stream)


def narrow_owner(registry: Registry, spark: SparkSession, resources: OpenedDataflow, generation: int) -> RoundRunner:
    transform = Transformation.load(resources.transformation_spec(), spark)
    [owner] = owners_of(registry, resources, transform, owner=f"owner-{generation}", generation=generation)
    return owner


def test_a_narrow_task_divides_its_rounds_once_and_keeps_the_order_of_a_key(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    namespace = bound_namespace(memory_registry, tmp_path / "store", "in/0", "in/1")
    events = [{"who": f"k{n % 7}", "n": n} for n in range(400)]
    append(namespace, "in/0", events)
    source = {"kind": "log", "logs": "in/*", "format": "json", "schema_ddl": "who STRING, n INT"}
    described = {"name": "flow", "sources": {"src": source}, "sinks": {"out": DIVIDED}, "round": {"records_max": 90}}
    config = DataflowConfig.parse({**described, "sql": "SELECT who, n FROM src"}, source="the test")
    environment = Environment(registry=memory_registry, dataflow="flow", nodes=STREAM_NODES)
    for generation, stop in enumerate([*STOPS, None], start=1):
        with OpenedDataflow(config, environment) as resources:
            owner = narrow_owner(memory_registry, spark, resources, generation)
            if stop is None:
                run_to_the_end(owner)
                owner.release()
            else:
                with at_failpoint(stop, die), pytest.raises(Died):
                    run_to_the_end(owner)
            owner.close()
    streams = by_stream(namespace)
    assert streams == [[one for one in events if stream_of(str(one["who"])) == number] for number in range(STREAMS)]


def run_to_the_end(owner: RoundRunner) -> None:
    owner.take_over()
    while (outcome := owner.run_round()) is not None:
        assert outcome.written == {"out": outcome.records_in}


def append(namespace: LogNamespace, log: str, values: Sequence[dict[str, Any]]) -> None:
    payloads = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    with namespace.open_writer(log) as writer:
        writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)
