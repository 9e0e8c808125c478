"""Kafka -> state -> Kafka on a real broker, with Spark: windows come out once, though owners die around every decision.

All steps of such rounds, with Kafka in memory: `tests/crash/test_stateful_crashes.py`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.testing.failpoints import at_failpoint
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_stateful_rounds import COUNTS, END, EVENTS, told, windows
from tests.integration.state_flow import SCHEMA, Died, StateFlow, die, own_to_the_end, payloads_of
from tests.servers.kafka_clients import committed_records
from tests.servers.kafka_side import KafkaSide

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DECIDED = "kafka.commit:after"
STOPS = ("round.prepare:after", DECIDED, "round.commit:after")
"""Where one owner after the other dies: the round is prepared, decided, committed."""


@pytest.fixture
def side(kafka: KafkaServer) -> Iterator[KafkaSide]:
    with closing(KafkaSide(kafka.bootstrap)) as opened:
        yield opened


@pytest.mark.parametrize("stops", [(DECIDED,), pytest.param(STOPS, marks=pytest.mark.full)], ids=["decided", "each"])
def test_windows_over_a_topic_come_out_in_a_topic_once_whoever_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, side: KafkaSide, stops: tuple[str, ...]
) -> None:
    read, written = f"in-{uuid.uuid4().hex}", f"out-{uuid.uuid4().hex}"
    side.create(read, partitions=2)
    where = {"kind": "kafka", "bootstrap": side.bootstrap, "format": "json"}
    flow = StateFlow(
        memory_registry,
        spark,
        tmp_path,
        sql=COUNTS,
        sources={"src": {**where, "topics": read, "schema_ddl": SCHEMA}},
        sinks={"out": {**where, "topic": written, "partition_by": "stream", "create": {"partitions": 1}}},
        round={"records_max": 20},
    )
    for partition in range(2):
        side.send(read, payloads_of([*EVENTS[:20], *END]), partition=partition)
    for stop in stops:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    flow.run_to_the_end()
    found = [json.loads(record.value) for record in committed_records(side.bootstrap, written)]
    assert told(found) == windows(EVENTS[:20] * 2), f"{found}"
