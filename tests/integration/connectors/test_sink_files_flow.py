"""From a log through real Spark to partitioned files of two formats in one task, read as others read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.config import DataflowConfig
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry
from tests.integration.one_owner import run_until_drained

pytestmark = pytest.mark.spark
COUNT = 300
START = datetime(2013, 1, 1, 20, 30, tzinfo=UTC)
CARRIERS = ["AA", "U/A", None]


def flight(number: int) -> dict[str, object]:
    at = START + timedelta(minutes=number)
    return {"id": number, "carrier": CARRIERS[number % 3], "at": at.isoformat()}


def config(path: Path) -> DataflowConfig:
    return DataflowConfig.parse(
        {
            "name": "flights",
            "sources": {
                "src": {
                    "kind": "log",
                    "logs": "in/*",
                    "format": "json",
                    "schema_ddl": "id BIGINT, carrier STRING, at TIMESTAMP",
                }
            },
            "sinks": {
                "hours": {
                    "kind": "hdfs",
                    "path": str(path / "hours"),
                    "file_format": "parquet",
                    "partition": {"time": "at"},
                },
                "carriers": {
                    "kind": "hdfs",
                    "path": str(path / "carriers"),
                    "format": "json",
                    "partition": {"columns": ["carrier"]},
                },
            },
            "sql": {
                "hours": "SELECT id, carrier, at FROM src",
                "carriers": "SELECT id, carrier AS _carrier, carrier AS who FROM src",
            },
            "round": {"records_max": 100},
        },
        source="the test",
    )


def run(registry: Registry, spark: SparkSession, flow: DataflowConfig) -> None:
    """Run the dataflow until nothing is left, and merge what it has written."""
    with run_until_drained(registry, spark, flow) as resources:
        for sink in resources.sinks.values():
            sink.maintain(registry, idle=True)


def test_columns_and_documents_go_to_the_directories_of_their_partitions(
    registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    payloads = [json.dumps(flight(number)).encode() for number in range(COUNT)]
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("in/0")
        with namespace.open_writer("in/0") as writer:
            writer.write_bulk(pa.record_batch({"payload": pa.array(payloads, pa.binary())})).result(timeout=120)
    run(registry, spark, config(tmp_path))

    hours = spark.read.parquet(str(tmp_path / "hours"))
    assert hours.columns == ["id", "carrier", "at", "dt", "hour"]
    found = hours.selectExpr("id", "carrier", "unix_seconds(at) AS s", "cast(dt AS string)", "hour").orderBy("id")
    wanted = []
    for number in range(COUNT):
        at = START + timedelta(minutes=number)
        wanted.append((number, CARRIERS[number % 3], int(at.timestamp()), f"{at:%Y-%m-%d}", at.hour))
    assert [tuple(row) for row in found.collect()] == wanted

    documents = {
        path.parent.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (tmp_path / "carriers").glob("carrier=*/part-*.jsonl")
    }
    assert documents == {
        directory: [{"id": number, "who": CARRIERS[n]} for number in range(n, COUNT, 3)]
        for n, directory in enumerate(["carrier=AA", "carrier=U%2FA", "carrier=__HIVE_DEFAULT_PARTITION__"])
    }
