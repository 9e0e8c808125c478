"""Files on a real HDFS through real Spark into a log: every format in one task, and everything exactly once."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.config import DataflowConfig
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin.log import LogNamespace
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.contract import Registry
from tests.integration.one_owner import run_until_drained

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROUND = {"records_max": 700}
SQL = "SELECT id, name FROM lines UNION ALL SELECT id, name FROM columns UNION ALL SELECT size, 'frame' FROM frames"


def write(files: DurableFileSystem, path: str, data: bytes) -> None:
    files.make_directories(path.rpartition("/")[0])
    file = files.create(path)
    file.append(data)
    file.sync()
    file.close()


def documents(first: int, end: int) -> bytes:
    return b"".join(json.dumps({"id": n, "name": f"line {n}"}).encode() + b"\n" for n in range(first, end))


def parquet(first: int, end: int) -> bytes:
    ids = list(range(first, end))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids, "name": [f"row {n}" for n in ids]}), sink, row_group_size=300)
    return bytes(sink.getvalue())


def fill(files: DurableFileSystem, root: str) -> None:
    write(files, f"{root}/lines/b.jsonl", documents(0, 1000))
    write(files, f"{root}/lines/sub/c.jsonl.gz", gzip.compress(documents(1000, 2000)))
    write(files, f"{root}/columns/a.parquet", parquet(0, 1000))
    write(files, f"{root}/frames/a.bin", b"".join(n.to_bytes(4, "big") + bytes(n) for n in range(100)))


def config(url: str) -> DataflowConfig:
    files = {"kind": "hdfs", "settle_s": 0}
    return DataflowConfig.parse(
        {
            "name": "files",
            "sources": {
                "lines": {**files, "path": f"{url}/lines", "format": "json", "schema_ddl": "id BIGINT, name STRING"},
                "columns": {**files, "path": f"{url}/columns/*.parquet", "file_format": "parquet"},
                "frames": {**files, "path": f"{url}/frames", "file_format": "binary"},
            },
            "sinks": {"out": {"kind": "log", "log": "out", "format": "json"}},
            "sql": SQL.replace("FROM frames", "FROM (SELECT octet_length(payload) AS size FROM frames)"),
            "round": ROUND,
        },
        source="the test",
    )


def run(registry: Registry, spark: SparkSession, flow: DataflowConfig, generation: int) -> list[tuple[int, str]]:
    """Run the dataflow until nothing is left, as a new owner: all that its log holds then."""
    with run_until_drained(registry, spark, flow, generation):
        pass
    with LogNamespace.open("/logs", registry=registry) as namespace, namespace.open_reader("out/0") as reader:
        found = []
        while (batch := reader.read_batch()) is not None:
            found += [json.loads(payload) for payload in batch.column("payload").to_pylist()]
    return sorted((record["id"], record["name"]) for record in found)


def expected(lines: int, rows: int, frames: int) -> list[tuple[int, str]]:
    found = [(n, f"line {n}") for n in range(lines)] + [(n, f"row {n}") for n in range(rows)]
    return sorted(found + [(n, "frame") for n in range(frames)])


def test_every_format_on_hdfs_arrives_once_and_late_files_too(
    registry: Registry, spark: SparkSession, hdfs: HdfsServers, tmp_path: Path
) -> None:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    url = f"{hdfs.url}/files-flow/{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    fill(files, root)
    flow = config(url)
    assert run(registry, spark, flow, 1) == expected(2000, 1000, 100)
    write(files, f"{root}/lines/a.jsonl", documents(2000, 2010))  # sorts before what was read
    write(files, f"{root}/columns/0.parquet", parquet(1000, 1010))
    assert run(registry, spark, flow, 2) == expected(2010, 1010, 100)


def test_a_line_on_hdfs_that_nobody_can_take_goes_to_the_error_route(
    registry: Registry, spark: SparkSession, hdfs: HdfsServers, tmp_path: Path
) -> None:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    url = f"{hdfs.url}/files-flow/{uuid.uuid4().hex}"
    files, root = durable_file_system(url)
    write(files, f"{root}/lines/a.jsonl.gz", gzip.compress(documents(0, 50) + b'{"id": 5' + b"\n" + documents(50, 60)))
    whole = config(url).model_dump()
    value = {
        **whole,
        "sources": {"lines": whole["sources"]["lines"]},
        "sinks": {**whole["sinks"], "bad": {"kind": "log", "log": "bad"}},
        "sql": {"out": "SELECT id, name FROM lines"},
        "errors": {"action": "route", "sink": "bad"},
    }
    assert run(registry, spark, DataflowConfig.parse(value, source="the test"), 1) == expected(60, 0, 0)
    with LogNamespace.open("/logs", registry=registry) as namespace, namespace.open_reader("bad/0") as reader:
        batch = reader.read_batch()
        assert batch is not None
        (bad,) = [json.loads(payload) for payload in batch.column("payload").to_pylist()]
    assert (bad["index"], bad["payload"]) == (50, '{"id": 5')
