"""The ready dataflows with state as they run, against pandas: on two days of real flights that come out of order, from
logs and a topic, into logs, a topic and files on HDFS. One owner of each dies in a round, and the next one goes on.

As processes, and as one chain, three of them run in `dev.py demo --state` (test_demo).
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig, RoundConfig, load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace
from scribengin_dev.demo.flights import Flights, load_flights
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.dying import Died, die
from tests.integration.dev.test_state_dataflows import CASES, DATAFLOWS, FLIGHTS, in_order, rows_of
from tests.integration.owners import owner_with_state
from tests.integration.state_flow import own_to_the_end
from tests.servers.kafka_clients import committed_records
from tests.servers.kafka_side import KafkaSide

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(900)]

CLOSING = "closing"
CLOSED = {"id": -1, "time_hour": "2013-01-20T00:00:00Z", "dep_time": 1200, "dep_delay": 60, "arr_delay": 60}
CLOSED_MS = 1_358_640_000_000
"""Behind all flights, so that the watermark passes them. No window of its own ends."""
BLOCK = 300
"""So many flights leave within some hours, which is less than they may be late."""
Found = Callable[[OpenedDataflow], Sequence[bytes]]
"""What came out of a dataflow."""


@dataclass(frozen=True)
class Running:
    """A ready dataflow between places of the test's."""

    config: DataflowConfig
    found: Found
    registry: Registry

    def open(self) -> OpenedDataflow:
        environment = Environment(registry=self.registry, dataflow=self.config.name, nodes=STREAM_NODES)
        return OpenedDataflow(self.config, environment)

    def own(self, spark: SparkSession, generation: int) -> None:
        with self.open() as resources:
            transform = StatefulTransformation.load(resources.transformation_spec(), spark)
            with closing(owner_with_state(self.registry, resources, transform, generation)) as owner:
                own_to_the_end(owner)
                owner.release()

    def rows(self) -> list[dict[str, Any]]:
        """But what comes of what only closes windows."""
        with self.open() as resources:
            told = [json.loads(payload) for payload in self.found(resources)]
        return [row for row in told if CLOSING not in row.values()]


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(FLIGHTS)


@pytest.fixture
def side(request: pytest.FixtureRequest) -> Iterator[KafkaSide]:
    kafka: KafkaServer = request.getfixturevalue("kafka")
    with closing(KafkaSide(kafka.bootstrap)) as opened:
        yield opened


def come(source: str, table: pa.Table, in_order_of_time: bool) -> pa.RecordBatch:
    """The records of a source as they come, and one behind them."""
    payloads = table["payload"].to_pylist()
    txids = table["txid"].to_pylist() if in_order_of_time else [0] * len(payloads)
    if not in_order_of_time:
        chance = random.Random(source)
        blocks = [payloads[start : start + BLOCK] for start in range(0, len(payloads), BLOCK)]
        payloads = [payload for block in blocks for payload in chance.sample(block, len(block))]
    nobody = {"carrier": CLOSING, "tailnum": CLOSING, "origin": f"{CLOSING} of {source}"}
    payloads.append(json.dumps({**CLOSED, **nobody}).encode())
    return pa.record_batch({"txid": [*txids, CLOSED_MS], "payload": pa.array(payloads, pa.binary())})


def between(config: DataflowConfig, directory: Path, **changes: Mapping[str, object]) -> DataflowConfig:
    """The dataflow with other places: `changes` of sources and sinks, by name. Its rounds are small."""
    assert config.state is not None

    def changed(described: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one.model_copy(update=changes.get(name, {})) for name, one in described.items()}

    return config.model_copy(
        update={
            "sources": changed(config.sources),
            "sinks": changed(config.sinks),
            "state": config.state.model_copy(update={"checkpoints": str(directory / "state")}),
            "round": RoundConfig(records_max=500),
        }
    )


def delivered(resources: OpenedDataflow) -> list[bytes]:
    """In logs, or files."""
    [(name, streams)] = resources.sink_streams(1).items()
    batches = [batch for stream in streams for batch in resources.sinks[name].committed(stream)]
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def expect_what_pandas_makes(running: Running, spark: SparkSession, expected: Sequence[dict[str, Any]]) -> None:
    with at_failpoint("round.commit:after", die), pytest.raises(Died):
        running.own(spark, 1)
    running.own(spark, 2)
    found = in_order(running.rows())
    assert found == in_order(expected), f"{running.config.name} gave out {len(found)} of {len(expected)} rows"


@pytest.mark.parametrize("name", ["carrier_delays", "aircraft_days", "flight_weather", "carrier_delays_hdfs"])
def test_from_logs_it_gives_out_what_pandas_makes_though_its_owner_dies(
    memory_registry: Registry,
    spark: SparkSession,
    tmp_path: Path,
    flights: Flights,
    request: pytest.FixtureRequest,
    name: str,
) -> None:
    config = load_config(DATAFLOWS / name)
    changes: dict[str, dict[str, object]] = {}
    if name == "carrier_delays_hdfs":
        hdfs: HdfsServers = request.getfixturevalue("hdfs")
        changes = {"hours": {"path": f"{hdfs.url}/hours-{uuid.uuid4().hex}"}}
    tables, expected = CASES[name](flights)
    with bound_namespace(memory_registry, tmp_path / "store", *(f"{source}/0" for source in tables)) as namespace:
        for source, table in tables.items():
            with namespace.open_writer(f"{source}/0") as writer:
                writer.write_bulk(come(source, table, name == "aircraft_days")).result(120)
        running = Running(between(config, tmp_path, **changes), delivered, memory_registry)
        expect_what_pandas_makes(running, spark, rows_of(expected))


def test_between_topics_an_airlines_hours_are_in_one_partition_though_the_owner_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, flights: Flights, side: KafkaSide
) -> None:
    config = load_config(DATAFLOWS / "carrier_delays_kafka")
    tables, expected = CASES["carrier_delays_kafka"](flights)
    read, written = f"delayed-{uuid.uuid4().hex}", f"hours-{uuid.uuid4().hex}"
    side.create(read, partitions=2)
    payloads = tables["delayed"]["payload"].to_pylist()
    nobody = json.dumps({**CLOSED, "carrier": CLOSING}).encode()
    for partition in range(2):
        side.send(read, [*payloads[partition::2], nobody], partition=partition)
    places = {"delayed": {"bootstrap": side.bootstrap, "topics": [read]}, "hours": {"bootstrap": side.bootstrap}}
    changed = between(config, tmp_path, delayed=places["delayed"], hours={**places["hours"], "topic": written})

    def found(_resources: OpenedDataflow) -> list[bytes]:
        return [record.value for record in committed_records(side.bootstrap, written)]

    expect_what_pandas_makes(Running(changed, found, memory_registry), spark, rows_of(expected))
    partitions: dict[bytes, set[int]] = {}
    for record in committed_records(side.bootstrap, written):
        assert record.key == json.loads(record.value)["carrier"].encode()
        partitions.setdefault(record.key, set()).add(record.partition)
    assert all(len(of_airline) == 1 for of_airline in partitions.values())
