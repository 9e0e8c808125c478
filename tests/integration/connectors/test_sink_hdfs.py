"""A file sink on a real HDFS: what it promises, its idle timer, and what hdfs-native, pyarrow and Spark read there."""

from __future__ import annotations

import gzip
import io
import uuid
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hdfs_native import Client
from pyspark.sql import SparkSession

from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, Sink
from scribengin.connectors.files import FileSinkConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.testing import check_sink
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.contract import Registry

pytestmark = pytest.mark.timeout(900)
START = datetime(2013, 1, 1, 22)


class Output:
    """A directory on HDFS that a sink writes, and HDFS's own client looks at."""

    def __init__(self, hdfs: HdfsServers, registry: Registry) -> None:
        self.registry = registry
        self.path = f"/sinks/{uuid.uuid4().hex}"
        self.url = f"{hdfs.url}{self.path}"
        self.client = Client(hdfs.url)

    def sink(self, **settings: Any) -> Sink:
        config = FileSinkConfig.parse({"kind": "hdfs", "path": self.url, **settings}, source="a test")
        return open_sink("out", config, Environment(registry=self.registry, dataflow="hdfs", nodes=STREAM_NODES))

    def write(self, sink: Sink, *rounds: pa.RecordBatch, streams: int = 1) -> None:
        """Each batch is a round of one of the streams in turn, by one owner."""
        descriptors = sink.streams(streams)
        sink.create(descriptors)
        writers = [sink.open_writer(stream, Attempt("owner", 1, "/commit-log")) for stream in descriptors]
        for writer in writers:
            writer.recover(None)
        for number, batch in enumerate(rounds):
            writer = writers[number % streams]
            writer.write(batch)
            prepared = writer.prepare_commit()
            assert prepared is not None
            writer.complete_commit(prepared)
        for writer in writers:
            writer.close()

    def finals(self) -> dict[str, bytes]:
        """The final files by name, relative to the sink's path."""
        found = {}
        for status in self.client.list_status(self.path, True):
            name = status.path.removeprefix(f"{self.path}/")
            if not status.isdir and not name.startswith("_scribengin/"):
                found[name] = self.client.read(status.path).read()
        return found


@pytest.fixture
def output(hdfs: HdfsServers, registry: Registry) -> Output:
    return Output(hdfs, registry)


@pytest.mark.full
@pytest.mark.parametrize(
    "settings",
    [
        {"file_format": "parquet", "merge_bytes": 1000, "merge_age_s": 0},
        {"format": "json"},
        {"file_format": "binary", "codec": "zstd", "merge_bytes": 100},
        {"codec": "gzip", "merge_bytes": 100, "merge_age_s": 0},
    ],
    ids=["parquet", "lines", "frames", "gzip"],
)
def test_files_on_hdfs_keep_what_a_sink_promises(output: Output, settings: dict[str, Any]) -> None:
    check_sink(lambda: output.sink(**settings), output.registry, of_columns=settings.get("file_format") == "parquet")


def test_one_place_has_one_name_however_it_is_written(output: Output, hdfs: HdfsServers) -> None:
    resource = output.sink().resource
    assert resource == output.url
    for path in (f"{output.url}/", f"{hdfs.url}//sinks/./{output.path.rpartition('/')[2]}"):
        config = FileSinkConfig.parse({"kind": "hdfs", "path": path}, source="a test")
        again = open_sink("out", config, Environment(registry=output.registry, dataflow="hdfs", nodes=STREAM_NODES))
        assert again.resource == resource


def test_the_last_records_become_a_final_file_with_no_further_input(output: Output) -> None:
    sink = output.sink(merge_age_s=0.2)
    output.write(sink, pa.record_batch({"payload": ["the last one"]}))
    assert output.finals() == {}

    def merged() -> bool:
        sink.maintain(output.registry, idle=False)
        return bool(output.finals())

    wait_until(merged, timeout_s=60, what="the merge by age")
    assert output.finals() == {"part-00000-00000000.txt": b"the last one\n"}


def test_partitions_and_codecs_are_read_by_hdfss_own_client(output: Output) -> None:
    sink = output.sink(codec="gzip", partition={"columns": ["carrier"]})
    batches = [
        pa.record_batch({"payload": [f"{number}", f"{number}!"], "carrier": ["A/A", None]}) for number in range(4)
    ]
    output.write(sink, *batches, streams=2)
    sink.maintain(output.registry, idle=True)
    null = "carrier=__HIVE_DEFAULT_PARTITION__"
    assert {name: gzip.decompress(data).decode() for name, data in output.finals().items()} == {
        "carrier=A%2FA/part-00000-00000000.txt.gz": "0\n2\n",
        f"{null}/part-00000-00000001.txt.gz": "0!\n2!\n",
        "carrier=A%2FA/part-00001-00000000.txt.gz": "1\n3\n",
        f"{null}/part-00001-00000001.txt.gz": "1!\n3!\n",
    }


@pytest.mark.full
@pytest.mark.spark
def test_spark_finds_the_partitions_and_nothing_that_is_not_final(output: Output, spark: SparkSession) -> None:
    hours = [START + timedelta(hours=number) for number in range(4)]
    rows = pa.record_batch({"id": range(4), "carrier": ["AA", "U/A", "AA", None], "at": pa.array(hours)})
    sink = output.sink(file_format="parquet", partition={"time": "at", "pattern": "dt=%Y-%m-%d/hour=%H"})
    output.write(sink, rows.slice(0, 1), rows.slice(1, 3))
    sink.maintain(output.registry, idle=True)
    output.write(output.sink(file_format="parquet"), pa.record_batch({"id": [99]}))  # committed, and not yet merged
    found = spark.read.parquet(output.url).selectExpr("id", "carrier", "cast(dt as string)", "hour").orderBy("id")
    assert [tuple(row) for row in found.collect()] == [
        (0, "AA", "2013-01-01", 22),
        (1, "U/A", "2013-01-01", 23),
        (2, "AA", "2013-01-02", 0),
        (3, None, "2013-01-02", 1),
    ]
    (name, data), *others = sorted(output.finals().items())
    assert (name, len(others)) == ("dt=2013-01-01/hour=22/part-00000-00000000.parquet", 3)
    assert pq.read_table(io.BytesIO(data)).to_pylist() == rows.slice(0, 1).to_pylist()
