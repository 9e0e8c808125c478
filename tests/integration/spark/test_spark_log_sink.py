"""Writing logs from any Spark session: `df.write` and `df.writeStream` to the format `scribengin-log`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ConfigInvalid, LogNotFound
from scribengin.log import LogConfig, LogNamespace, LogRecord
from scribengin.log.clients.partitioners import hash_partitioner
from scribengin.spark.log_format.format import LogDataSource, register
from scribengin.spark.log_format.options import LogWriteOptions
from scribengin.spark.log_format.sink import TaskFiles, remove_abandoned, writer_id
from scribengin.spark.session.session import activate
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin_registry.contract import Registry
from scribengin_registry.java.runtime import find_java

pytestmark = pytest.mark.spark

LOG = "out"
FORMAT = "scribengin-log"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store")


@pytest.fixture
def uri(registry_hosts: str) -> str:
    return f"distributedlog-file://{registry_hosts}/logs"


def save(frame: DataFrame, uri: str, **options: str) -> None:
    frame.write.format(FORMAT).mode("append").options(**{"namespace": uri, "log": LOG, **options}).save()


def records(namespace: LogNamespace, log: str = LOG) -> list[LogRecord]:
    with namespace.open_reader(log) as reader:
        return reader.read(100_000)


def left_in_store(namespace: LogNamespace) -> list[Path]:
    """What jobs have left there, but the folder that all streams share."""
    found = Path(namespace.descriptor.location).glob(".spark/**/*")
    return [path for path in found if path.is_file() or path.name != "streams"]


def test_a_job_appends_its_rows_in_the_order_of_its_partitions(
    log_session: SparkSession, namespace: LogNamespace, uri: str
) -> None:
    frame = log_session.range(1000, numPartitions=4).selectExpr(
        "id AS txid", "string(id) AS key", "if(id % 2 = 0, 'even', null) AS channel", "concat('row ', id) AS payload"
    )
    save(frame, uri)
    found = records(namespace)
    assert [record.txid for record in found] == list(range(1000))
    assert (found[7].key, found[7].channel, found[7].payload) == (b"7", None, b"row 7")
    assert found[8].channel == "even"
    assert left_in_store(namespace) == []
    save(log_session.createDataFrame([(bytearray(b"\x00binary"),)], "payload binary"), uri)
    last = records(namespace)[-1]
    assert (last.payload, last.key, last.channel) == (b"\x00binary", None, None)
    assert last.txid > 1000


def test_the_format_is_found_though_another_session_was_the_active_one(
    log_session: SparkSession, namespace: LogNamespace, uri: str
) -> None:
    activate(log_session.newSession())
    register(log_session)
    save(log_session.range(3).selectExpr("string(id) AS payload"), uri)
    assert len(payloads_read(namespace, LOG)) == 3


def test_what_is_written_is_read_back(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    save(log_session.range(100).selectExpr("id AS txid", "string(id * id) AS payload"), uri)
    back = log_session.read.format(FORMAT).options(namespace=uri, log=LOG).load()
    total = back.where("txid >= 98").selectExpr("sum(int(string(payload)))").collect()[0][0]
    assert total == 98 * 98 + 99 * 99


def test_rows_go_to_the_log_of_their_key(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    frame = log_session.range(60, numPartitions=2).selectExpr("string(id % 7) AS key", "string(id) AS payload")
    save(frame, uri, streams="3")
    assert namespace.names() == ["out/0", "out/1", "out/2"]
    found = {int(record.payload): number for number in range(3) for record in records(namespace, f"out/{number}")}
    assert sorted(found) == list(range(60))
    for row, number in found.items():
        assert hash_partitioner(pa.array([b"%d" % (row % 7)]), 3).to_pylist() == [number]
    in_one = [int(record.payload) for record in records(namespace, f"out/{found[0]}")]
    assert in_one == sorted(in_one)


def test_rows_without_a_key_are_dealt_out(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    save(log_session.range(60, numPartitions=2).selectExpr("string(id) AS payload"), uri, streams="3")
    assert [len(records(namespace, f"out/{number}")) for number in range(3)] == [20, 20, 20]


def test_a_job_without_rows_writes_nothing(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    save(log_session.range(0).selectExpr("string(id) AS payload"), uri)
    assert records(namespace) == []


def test_a_job_that_fails_writes_nothing(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    broken = log_session.range(100, numPartitions=4).selectExpr(
        "string(if(id = 99, raise_error('bad'), id)) AS payload"
    )
    with pytest.raises(PySparkException, match="bad"):
        save(broken, uri, streams="2")
    assert payloads_read(namespace, "out/0") == payloads_read(namespace, "out/1") == []
    assert left_in_store(namespace) == []


def test_a_job_that_a_log_refuses_writes_nothing(log_session: SparkSession, namespace: LogNamespace, uri: str) -> None:
    namespace.create(LOG, LogConfig(record_bytes_max=2))
    with pytest.raises(PySparkException, match="RecordTooLarge: log 'out'"):
        save(log_session.range(200).selectExpr("string(id) AS payload"), uri)
    descending = log_session.range(5).selectExpr("10 - id AS txid", "'' AS payload").coalesce(1)
    with pytest.raises(PySparkException, match="TransactionIdOutOfOrder"):
        save(descending, uri)
    assert records(namespace) == []
    assert left_in_store(namespace) == []


def test_a_failed_task_leaves_no_files(tmp_path: Path) -> None:
    def batches() -> Any:
        yield pa.record_batch({"payload": [b"1", b"2"]})
        raise ValueError("the job was cancelled")

    (tmp_path / "job").mkdir()
    files = TaskFiles(str(tmp_path / "job"), 2)
    with pytest.raises(ValueError, match="cancelled"):
        files.write(batches())
    assert list((tmp_path / "job").iterdir()) == []
    files.remove()
    files.remove()
    with pytest.raises(FileNotFoundError):  # a task that still runs when its job is over
        files.write(iter([pa.record_batch({"payload": [b"1"]})]))
    assert not (tmp_path / "job").exists()


def test_what_killed_jobs_left_is_removed_after_a_week(tmp_path: Path) -> None:
    old, new = tmp_path / "job-1" / "a.arrow", tmp_path / "streams" / "b.arrow"
    for path in (old, new, tmp_path / "streams" / "c.arrow"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    week_ago_s = SYSTEM_CLOCK.now_ms() / 1000 - 8 * 24 * 3600
    for path in (old, old.parent, tmp_path / "streams" / "c.arrow"):
        os.utime(path, (week_ago_s, week_ago_s))
    remove_abandoned(tmp_path, SYSTEM_CLOCK)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b.arrow", "job-1", "streams"]
    os.utime(old.parent, (week_ago_s, week_ago_s))
    remove_abandoned(tmp_path, SYSTEM_CLOCK)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "streams", new]


def stream(log_session: SparkSession, uri: str, source: Path, checkpoint: Path, **options: str) -> StreamingQuery:
    frame = log_session.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(source))
    writer = frame.selectExpr("value AS payload").writeStream.format(FORMAT).outputMode("append")
    settings = {"namespace": uri, "log": LOG, "checkpointLocation": str(checkpoint), **options}
    return writer.options(**settings).trigger(availableNow=True).start()


def test_a_stream_writes_every_micro_batch_once(
    log_session: SparkSession, namespace: LogNamespace, uri: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text(f"{number}-a\n{number}-b\n")
        assert stream(log_session, uri, source, checkpoint).awaitTermination(60)
    expected = [b"%d-%s" % (number, letter) for number in range(3) for letter in (b"a", b"b")]
    assert payloads_read(namespace, LOG) == expected
    for said in (checkpoint / "commits").iterdir():  # Spark forgets that it wrote the last one, and writes it again
        if said.name.strip(".").startswith("2"):
            said.unlink()
    assert stream(log_session, uri, source, checkpoint).awaitTermination(60)
    assert payloads_read(namespace, LOG) == expected
    assert left_in_store(namespace) == []
    assert stream(log_session, uri, source, tmp_path / "another").awaitTermination(
        60
    )  # another stream writes it all again
    assert sorted(payloads_read(namespace, LOG)) == sorted(expected * 2)


def test_a_stream_whose_checkpoint_is_lost_is_refused_and_drops_nothing(
    log_session: SparkSession, namespace: LogNamespace, uri: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    (source / "0.txt").write_text("Grüße\n")
    assert stream(log_session, uri, source, checkpoint, writerId="flights").awaitTermination(60)
    shutil.rmtree(checkpoint)
    (source / "0.txt").write_text("what nobody has written yet\n")
    with pytest.raises(StreamingQueryException, match=r"'flights' is query .* another checkpoint.*another writerId"):
        stream(log_session, uri, source, checkpoint, writerId="flights").awaitTermination(60)
    assert payloads_read(namespace, LOG) == ["Grüße".encode()]
    assert stream(log_session, uri, source, checkpoint, writerId="flights.2").awaitTermination(60)
    assert payloads_read(namespace, LOG) == ["Grüße".encode(), b"what nobody has written yet"]


def test_a_stream_is_known_by_its_checkpoint_or_by_the_id_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"7d6c"}')
    options = {"namespace": "distributedlog-file://h/logs", "log": LOG}

    def name(**more: str) -> str:
        return writer_id(LogWriteOptions.of({**options, **more}))

    assert name(checkpointLocation=str(tmp_path)) == "query-7d6c"
    assert name(checkpointLocation=tmp_path.as_uri()) == "query-7d6c"
    assert name(checkpointLocation="hdfs://h/c", writerId="flights.v2") == "flights.v2"
    for bad in ({}, {"checkpointLocation": "hdfs://h/c"}, {"checkpointLocation": str(tmp_path / "nothing")}):
        with pytest.raises(ConfigInvalid, match=r"'checkpointLocation'.*'writerId'"):
            name(**bad)


@pytest.mark.parametrize(
    ("ddl", "options", "said"),
    [
        ("payload string, body string", {}, "has no place for the column 'body'"),
        ("key string", {}, r"needs a column 'payload', binary or string; there are: \['key'\]"),
        ("payload struct<a:int>", {}, "'payload' is struct<a:int>, not binary or string: cast it, or .*to_json"),
        ("payload string", {"log": "out/*"}, r"'out/\*' is a pattern"),
        ("payload string", {"start": "latest"}, "has no option 'start'; there are: checkpointLocation, create"),
        ("payload string", {"streams": "0"}, "streams: 0 is too low: 1 or more"),
        ("payload string", {"writerId": "a"}, "'writerId' .* is for df.writeStream"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    namespace: LogNamespace, uri: str, ddl: str, options: dict[str, str], said: str
) -> None:
    source, schema = LogDataSource({"namespace": uri, "log": LOG, **options}), StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    with pytest.raises(ConfigInvalid, match=said):
        source.writer(schema, overwrite=False)
    assert namespace.names() == []


def test_logs_only_grow_and_are_created_unless_told_otherwise(
    log_session: SparkSession, namespace: LogNamespace, uri: str
) -> None:
    frame = log_session.range(1).selectExpr("string(id) AS payload")
    with pytest.raises(PySparkException, match="only appends"):
        frame.write.format(FORMAT).mode("overwrite").options(namespace=uri, log=LOG).save()
    source = LogDataSource({"namespace": uri, "log": LOG, "create": "false"})
    with pytest.raises(LogNotFound, match="option 'create' is false"):
        source.writer(frame.schema, overwrite=False)
    assert namespace.names() == []


NOTEBOOK = """
import sys
from pyspark.sql import SparkSession
from scribengin.spark.log_format.format import register

spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
uri = sys.argv[1]
rows = spark.range(10).selectExpr("id AS txid", "string(id) AS payload")
rows.write.format("scribengin-log").mode("append").option("namespace", uri).option("log", "squares").save()
logs = spark.read.format("scribengin-log").option("namespace", uri).option("log", "*").load()
print(logs.where("txid >= 7").selectExpr("log", "txid", "string(payload)").orderBy("txid").collect())
assert not [name for name in sys.modules if name.startswith(("scribengin.master", "scribengin.worker"))]
"""


def test_a_notebook_needs_a_plain_session_and_no_engine(namespace: LogNamespace, uri: str, tmp_path: Path) -> None:
    light = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")  # say how the JVM runs, and nothing of what Spark does in it
    ours = ("SPARK_", "PYSPARK_")
    environment = {
        **{name: value for name, value in os.environ.items() if name in light or not name.startswith(ours)},
        "JAVA_HOME": str(find_java().home),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, uri],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = ", ".join(f"Row(log='squares', txid={n}, payload='{n}')" for n in (7, 8, 9))
    assert done.stdout.strip() == f"[{expected}]"
    assert len(records(namespace, "squares")) == 10
