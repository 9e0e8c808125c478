"""Reading logs from any Spark session: `spark.read.format("scribengin-log")`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from scribengin.errors import ConfigInvalid, DamagedEntry, PositionTruncated, SourceMissing
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.spark.log_format.format import LogDataSource
from scribengin.spark.log_format.plan import LogPartition
from scribengin.testing.log_samples import bound_namespace, damage_segment, fill_log, payload_batch
from scribengin_registry.contract import Registry

pytestmark = pytest.mark.spark

LOG = "flights/0"
Read = Callable[..., DataFrame]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


@pytest.fixture
def uri(registry_hosts: str) -> str:
    return f"distributedlog-file://{registry_hosts}/logs"


@pytest.fixture
def read(log_session: SparkSession, namespace: LogNamespace, uri: str) -> Read:
    def frame(log: str = LOG, **options: str) -> DataFrame:
        return log_session.read.format("scribengin-log").options(namespace=uri, log=log, **options).load()

    return frame


def planned(uri: str, *filters: Filter, log: str = LOG, **options: str) -> list[LogPartition]:
    """What Spark would read: planned in this process, with the filters that a query has."""
    source = LogDataSource({"namespace": uri, "log": log, **options})
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == list(filters)
    parts = [part for part in reader.partitions() if isinstance(part, LogPartition)]
    return [part for part in parts if part.splits]


def batches(reader: DataSourceReader) -> list[pa.RecordBatch]:
    """What the tasks of a query hand to the JVM."""
    return [batch for part in reader.partitions() for batch in reader.read(part) if isinstance(batch, pa.RecordBatch)]


def records(parts: list[LogPartition]) -> int:
    return sum(split.records for part in parts for split in part.splits)


def values(frame: DataFrame, column: str) -> list[Any]:
    return [row[0] for row in frame.select(column).collect()]


def test_a_log_is_a_table_of_its_records_with_their_places(read: Read, namespace: LogNamespace) -> None:
    batch = pa.record_batch(
        {"txid": [7, 7, 8], "channel": ["a", None, "b"], "key": [b"k", None, b""], "payload": [b"x", b"", b"z"]}
    )
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(batch).result(120)
        writer.write_bulk(payload_batch([b"late"]).append_column("txid", pa.array([9]))).result(120)
    rows = [row.asDict() for row in read().orderBy("sequence_id").collect()]
    assert rows[1] == {
        "log": LOG, "txid": 7, "type": 0, "channel": None, "key": None, "payload": bytearray(b""),
        "segment": 1, "entry": 0, "slot": 1, "sequence_id": 1,
    }  # fmt: skip
    assert [(row["key"], bytes(row["payload"]), row["entry"], row["slot"]) for row in rows] == [
        (b"k", b"x", 0, 0), (None, b"", 0, 1), (b"", b"z", 0, 2), (None, b"late", 1, 0),
    ]  # fmt: skip


def test_all_records_of_all_segments_are_read_once(read: Read, namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 20, rows=3)
    frame = read()
    assert [bytes(value) for value in values(frame.orderBy("sequence_id"), "payload")] == payloads
    assert values(frame.orderBy("sequence_id"), "sequence_id") == list(range(60))
    assert frame.rdd.getNumPartitions() == len(namespace.segments(LOG)) == 7


def test_neighbouring_ranges_of_a_segment_are_joined_to_partitions(
    registry: Registry, uri: str, tmp_path: Path
) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", "big")
    with namespace.open_writer("big") as writer:
        for _ in range(20):
            writer.write_bulk(payload_batch([bytes(1_000_000)])).result(120)
    assert [len(part.splits) for part in planned(uri, log="big")] == [4]
    small = planned(uri, log="big", partitionBytes=str(6_000_000))
    assert [len(part.splits) for part in small] == [2, 2]
    assert records(small) == 20
    assert all(part.size_bytes < 11_000_000 for part in small)


def test_a_pattern_reads_all_logs_that_match(read: Read, namespace: LogNamespace, uri: str) -> None:
    for log in ("flights/1", "flights/2", "other"):
        namespace.create(log)
        fill_log(namespace, log, 2)
    fill_log(namespace, LOG, 2)
    frame = read("flights/*")
    assert sorted(values(frame, "log")) == sorted([LOG, "flights/1", "flights/2"] * 2)
    assert sorted(values(frame.where("log = 'flights/1'"), "log")) == ["flights/1"] * 2
    everything = records(planned(uri, log="*"))
    assert everything == 8
    assert records(planned(uri, EqualTo(("log",), "other"), log="*")) == 2
    assert records(planned(uri, In(("log",), ("other", LOG)), log="*")) == 4
    assert records(planned(uri, StringStartsWith(("log",), "flights/"), log="*")) == 6


@pytest.mark.parametrize(
    ("filters", "where", "rows"),
    [
        ([GreaterThanOrEqual(("txid",), 150)], "txid >= 150", range(15, 20)),
        pytest.param([LessThan(("txid",), 31)], "txid < 31", range(4), marks=pytest.mark.full),
        pytest.param([EqualTo(("txid",), 40)], "txid = 40", [4], marks=pytest.mark.full),
        ([In(("txid",), (60, 80))], "txid in (60, 80)", [6, 8]),
        ([GreaterThanOrEqual(("txid",), 40), LessThanOrEqual(("txid",), 60)], "txid between 40 and 60", range(4, 7)),
        ([EqualTo(("segment",), 3)], "segment = 3", range(6, 9)),
        ([EqualTo(("sequence_id",), 10)], "sequence_id = 10", [10]),
        pytest.param([LessThan(("sequence_id",), 2)], "sequence_id < 2", range(2), marks=pytest.mark.full),
    ],
)
def test_a_filter_reads_fewer_entries_and_gives_the_right_rows(
    read: Read, namespace: LogNamespace, uri: str, filters: list[Filter], where: str, rows: range | list[int]
) -> None:
    fill_log(namespace, LOG, 20)
    assert values(read().where(where).orderBy("sequence_id"), "sequence_id") == list(rows)
    every, some = planned(uri), planned(uri, *filters)
    assert sum(part.size_bytes for part in some) < sum(part.size_bytes for part in every) / 2
    assert len(rows) <= records(some) <= rows[-1] - rows[0] + 2


def test_spark_itself_pushes_filters_down(read: Read, namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 9)
    damage_segment(namespace, LOG, 1, 100)
    assert values(read().where("txid >= 60").orderBy("txid"), "txid") == [60, 70, 80]
    assert read().where("segment > 1").count() == 6
    with pytest.raises(PySparkException, match="is damaged"):
        read().count()


def test_transaction_ids_out_of_order_are_found_all_the_same(
    registry: Registry, read: Read, namespace: LogNamespace
) -> None:
    namespace.create("loose", LogConfig(check_txids=False))
    with namespace.open_writer("loose") as writer:
        for txid in (50, 10, 90, 20, 60):
            writer.write(b"", txid=txid).result(120)
    assert sorted(values(read("loose").where("txid <= 20"), "txid")) == [10, 20]
    assert sorted(values(read("loose", start="txid:60"), "txid")) == [60, 90]


def test_channels_and_keys_are_filtered_in_the_tasks(read: Read, namespace: LogNamespace, uri: str) -> None:
    with namespace.open_writer(LOG) as writer:
        for number, channel in enumerate(["orders/a", "orders/b", "audit", None, "x"]):
            writer.write(b"", channel=channel, key=b"%d" % (number % 2)).result(120)
    assert values(read(channels="orders/, aud").orderBy("sequence_id"), "channel") == ["orders/a", "orders/b", "audit"]
    assert values(read().where("channel = 'audit'"), "sequence_id") == [2]
    assert values(read().where("channel like 'orders/%'").orderBy("sequence_id"), "sequence_id") == [0, 1]
    assert values(read().where("key = X'31'").orderBy("sequence_id"), "sequence_id") == [1, 3]
    source = LogDataSource({"namespace": uri, "log": LOG})
    reader = source.reader(source.schema())
    reader.pushFilters([EqualTo(("channel",), "audit")])
    assert [batch.num_rows for batch in batches(reader)] == [1]


def test_start_and_end_cut_to_the_record(read: Read, namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, 9, rows=2)

    def sequence_ids(**options: str) -> list[int]:
        return values(read(**options).orderBy("sequence_id"), "sequence_id")

    assert sequence_ids(start="txid:40", end="txid:60") == [8, 9, 10, 11]
    assert sequence_ids(start="time:1970-01-01T00:00:00.070Z") == [14, 15, 16, 17]
    assert sequence_ids(start="2/0/1", end=str(DLSN(2, 2, 1))) == [7, 8, 9, 10]
    assert sequence_ids(start="latest") == []
    assert sequence_ids(end="txid:0") == []
    assert sequence_ids(end="9/0/0") == list(range(18))


def test_what_a_query_reads_is_what_was_there_when_it_was_planned(read: Read, namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        frame = read()
        assert frame.count() == 1
        writer.write(b"2").result(120)
        assert frame.count() == 1
        assert read().count() == 2


def test_only_the_columns_asked_for_are_read(
    log_session: SparkSession, read: Read, namespace: LogNamespace, uri: str
) -> None:
    fill_log(namespace, LOG, 2)
    assert read(columns="txid, sequence_id").schema.names == ["txid", "sequence_id"]
    assert [tuple(row) for row in read(columns="txid, sequence_id").orderBy("txid").collect()] == [(0, 0), (10, 1)]
    source = LogDataSource({"namespace": uri, "log": LOG, "columns": "txid"})
    reader = source.reader(source.schema())
    assert {name for batch in batches(reader) for name in batch.schema.names} == {"txid"}
    by_schema = log_session.read.format("scribengin-log").options(namespace=uri, log=LOG).schema("txid bigint").load()
    assert values(by_schema.orderBy("txid"), "txid") == [0, 10]


def test_a_truncated_start_is_refused_and_the_default_begins_at_what_is_kept(
    read: Read, namespace: LogNamespace, uri: str
) -> None:
    fill_log(namespace, LOG, 9)
    namespace.truncate(LOG, DLSN(2, 1, 0))
    assert values(read().orderBy("sequence_id"), "sequence_id") == [4, 5, 6, 7, 8]
    with pytest.raises(PositionTruncated, match="the first record kept is"):
        planned(uri, start="1/2/0")
    assert records(planned(uri, GreaterThanOrEqual(("sequence_id",), 2))) == 5
    assert planned(uri, LessThan(("sequence_id",), 3)) == []
    assert read().where("sequence_id between 1 and 4").count() == 1


def test_an_empty_log_is_an_empty_table(read: Read, namespace: LogNamespace) -> None:
    assert read().count() == 0
    assert read().where("txid > 5").count() == 0


def test_damage_in_what_is_read_names_its_place(read: Read, namespace: LogNamespace, uri: str) -> None:
    fill_log(namespace, LOG, 3)
    damage_segment(namespace, LOG, 1, 1555)  # in a body: no plan sees it
    reader = LogDataSource({"namespace": uri, "log": LOG}).reader(
        LogDataSource({"namespace": uri, "log": LOG}).schema()
    )
    with pytest.raises(DamagedEntry, match="segment 1, entry 1"):
        batches(reader)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lug": "flights/0"}, "has no option 'lug'; there are: channels, columns, end"),
        ({"start": "yesterday"}, "'yesterday' is no place in a log: expected earliest, latest, txid:<number>"),
        ({"start": "time:noon"}, "'noon' is no time"),
        ({"end": "earliest"}, "nothing lies before the end"),
        ({"columns": "txid,body"}, "has no column 'body'; there are: log, txid"),
        ({"partitionBytes": "many"}, "partitionBytes: 'many' is no whole number"),
        ({"failOnDataLoss": "false"}, "option 'failOnDataLoss' .* is for spark.readStream"),
        ({"namespace": "/logs"}, "names no ZooKeeper hosts"),
        ({"log": "flihgts/*"}, "is called 'flihgts/\\*' \\(there are: flights/0\\)"),
        ({"log": "*", "start": "1/0/1"}, "matches 2 logs"),
    ],
)
def test_a_wrong_option_is_named(namespace: LogNamespace, uri: str, options: dict[str, str], said: str) -> None:
    if options.get("log") == "*":
        namespace.create("another")
    with pytest.raises((ConfigInvalid, SourceMissing), match=said):
        planned(**{"uri": uri, **options} if "namespace" not in options else {"uri": options["namespace"]})


def test_spark_shows_the_line_that_says_what_is_wrong(read: Read) -> None:
    with pytest.raises(PySparkException, match="ConfigInvalid: format 'scribengin-log' has no option 'begin'; there"):
        read(begin="now")
