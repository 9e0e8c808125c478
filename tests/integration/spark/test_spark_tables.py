"""`kind: spark`: tables of any Spark format as sources and sinks, with Parquet files and a real database (Derby)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors import Environment, open_sink, open_source
from scribengin.connectors.contract import RECORD_SCHEMA, Attempt, PlannedRange, RoundLimits, SinkStreamWriter
from scribengin.connectors.spark import SparkSink, SparkSinkConfig, SparkSource, SparkSourceConfig
from scribengin.connectors.spark.contract import RowSpan, SparkTable
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, DataflowError, SystemUnreachable, TableFailed
from scribengin.spark.session.session import scratch_directory
from scribengin.spark.tables import SessionTables
from scribengin.testing import check_source
from scribengin_registry.contract import Registry

pytestmark = pytest.mark.spark

ALL = RoundLimits(1_000_000, 1_000_000_000)
ATTEMPT = Attempt("worker", 1, "/commit-log")


class Database:
    """A Derby database in the session's own JVM, spoken to through java.sql: nothing of the engine."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url
        jvm: Any = spark._jvm
        self._connection = jvm.java.sql.DriverManager.getConnection(f"{url};create=true")

    def run(self, statement: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
        prepared = self._connection.prepareStatement(statement)
        for row in rows:
            for place, value in enumerate(row, 1):
                prepared.setBytes(place, value) if isinstance(value, bytes) else prepared.setObject(place, value)
            prepared.executeUpdate()
        prepared.close()

    def close(self) -> None:
        self._connection.close()

    def options(self, table: str) -> dict[str, Any]:
        return {"url": self.url, "dbtable": table}


@pytest.fixture(scope="module")
def database(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with closing(Database(spark, f"jdbc:derby:{tmp_path_factory.mktemp('derby') / 'db'}")) as database:
        yield database


@pytest.fixture
def flights(database: Database) -> str:
    """A new table; its rows are added with `add`."""
    table = f"flights_{uuid.uuid4().hex[:8]}"
    database.run(f"CREATE TABLE {table} (id BIGINT, carrier VARCHAR(10), dep TIMESTAMP, fare DECIMAL(8,2))")
    return table


def add(database: Database, table: str, ids: Sequence[int | None]) -> None:
    """Rows of these ids; those of the same hundred have the same time."""
    rows = [(i, f"c{i}", f"2013-01-01 00:{(i or 0) // 100:02}:00.123456", f"{i or 0}.50") for i in ids]
    database.run(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)


def source(increasing: str | None, spark_format: str, options: dict[str, Any]) -> SparkSource:
    config = {"kind": "spark", "spark_format": spark_format, "options": options, "increasing": increasing}
    return SparkSource("src", SparkSourceConfig.parse({**config, "poll_s": 0.001}, source="a test"), SYSTEM_CLOCK)


def rows_of(plan: PlannedRange | None) -> list[dict[str, Any]]:
    assert plan is not None
    found = [row for split in plan.splits for batch in split.read() for row in batch.to_pylist()]
    assert len(found) == plan.records == sum(split.records for split in plan.splits)
    return found


def ids_of(plan: PlannedRange | None) -> list[Any]:
    return [row["ID"] for row in rows_of(plan)]


# -- sources


def test_a_table_is_read_once_whole(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array(range(200_000), pa.int64()), "text": ["x" * 100] * 200_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50_000)
    with closing(source(None, "parquet", {"path": str(tmp_path)})) as opened:
        assert opened.schema == table.schema
        [stream] = opened.streams()
        reader = opened.open_reader(stream)
        start = reader.initial_position()
        assert (reader.lag(start), reader.ended(start), reader.wait(start, 0)) == (200_000, False, True)
        plan = reader.plan(start, RoundLimits(10, 10))  # there is no place in it from which another round could go on
        assert plan is not None
        assert len(plan.splits) > 1
        assert sorted(row["n"] for row in rows_of(plan)) == list(range(200_000))
        assert (reader.plan(plan.end, ALL), reader.lag(plan.end), reader.ended(plan.end)) == (None, 0, True)
        assert not reader.wait(plan.end, 0)
        again = opened.open_reader(stream)
        assert len(rows_of(again.plan(start, ALL))) == 200_000


def test_an_empty_table_is_at_its_end(spark: SparkSession, database: Database, flights: str) -> None:
    with closing(source(None, "jdbc", database.options(flights))) as opened:
        reader = opened.open_reader(opened.streams()[0])
        assert reader.plan(reader.initial_position(), ALL) is None
        assert reader.ended(reader.initial_position())


def test_a_growing_table_is_read_round_by_round(spark: SparkSession, database: Database, flights: str) -> None:
    add(database, flights, [*range(20, 40), *range(20)])
    with closing(source("ID", "jdbc", database.options(flights))) as opened:
        reader = opened.open_reader(opened.streams()[0])
        position = reader.initial_position()
        assert reader.lag(position) == 40
        first = reader.plan(position, RoundLimits(25, 1_000_000))
        assert ids_of(first) == list(range(25))
        assert first is not None
        assert first.end == {"increasing": "ID", "last": "24"}
        second = reader.plan(first.end, ALL)
        assert ids_of(second) == list(range(25, 40))
        assert second is not None
        assert reader.plan(second.end, ALL) is None
        assert not reader.wait(second.end, 0.0)
        add(database, flights, [41, 40])
        assert reader.wait(second.end, 60.0)
        departure = datetime(2013, 1, 1, 0, 0, 0, 123456, UTC)
        assert rows_of(reader.plan(second.end, ALL)) == [
            {"ID": i, "CARRIER": f"c{i}", "DEP": departure, "FARE": Decimal(f"{i}.50")} for i in (40, 41)
        ]
        assert ids_of(opened.open_reader(opened.streams()[0]).plan(first.end, ALL)) == list(range(25, 42))


def test_rows_of_one_value_are_never_parted(spark: SparkSession, database: Database, flights: str) -> None:
    add(database, flights, [*range(150), *range(200, 230)])
    for limits in (RoundLimits(110, 1_000_000), RoundLimits(1_000, 4_000)):
        with closing(source("DEP", "jdbc", database.options(flights))) as opened:
            reader = opened.open_reader(opened.streams()[0])
            position, found, ends = reader.initial_position(), [], []
            while (plan := reader.plan(position, limits)) is not None:
                found += ids_of(plan)
                ends.append(plan.end["last"])
                position = plan.end
        assert sorted(found) == [*range(150), *range(200, 230)]
        assert ends == [f"2013-01-01 00:0{minute}:00.123456" for minute in (0, 1, 2)][-len(ends) :]
        assert len(ends) >= 2


@pytest.mark.parametrize(
    ("kind", "values", "last"),
    [
        ("DECIMAL(20,3)", ["1.005", "12345678901234567.001"], "12345678901234567.001"),
        ("DATE", ["2013-01-01", "2013-12-31"], "2013-12-31"),
        ("INT", ["-5", "7"], "7"),
    ],
)
def test_positions_of_every_kind_go_there_and_back(
    spark: SparkSession, database: Database, kind: str, values: list[str], last: str
) -> None:
    table = f"kinds_{uuid.uuid4().hex[:8]}"
    database.run(f"CREATE TABLE {table} (v {kind})")
    database.run(f"INSERT INTO {table} VALUES (?)", [(value,) for value in values])
    with closing(source("V", "jdbc", database.options(table))) as opened:
        reader = opened.open_reader(opened.streams()[0])
        first = reader.plan(reader.initial_position(), RoundLimits(1, 1_000_000))
        assert first is not None
        plan = reader.plan(first.end, ALL)
        assert plan is not None
        assert plan.records == 1
        assert plan.end["last"] == last
        assert opened.open_reader(opened.streams()[0]).plan(plan.end, ALL) is None


def test_null_in_the_increasing_column_is_refused(spark: SparkSession, database: Database, flights: str) -> None:
    add(database, flights, [1, None])
    with closing(source("ID", "jdbc", database.options(flights))) as opened:
        reader = opened.open_reader(opened.streams()[0])
        with pytest.raises(DataflowError, match="source 'src': the column 'ID' is null in some rows"):
            reader.plan(reader.initial_position(), ALL)


@pytest.mark.parametrize(
    ("increasing", "said"), [("NO", "the table has no column 'NO'"), ("CARRIER", "the column 'CARRIER' is string")]
)
def test_a_column_that_cannot_serve_is_refused(
    spark: SparkSession, database: Database, flights: str, increasing: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        _ = source(increasing, "jdbc", database.options(flights)).schema


@pytest.mark.parametrize("position", [{}, {"increasing": "DEP", "last": "1"}, {"read": True}])
def test_a_position_of_another_kind_is_refused(
    spark: SparkSession, database: Database, flights: str, position: Position
) -> None:
    with closing(source("ID", "jdbc", database.options(flights))) as opened:
        reader = opened.open_reader(opened.streams()[0])
        with pytest.raises(DataflowError, match="source 'src'"):
            reader.plan(position, ALL)


def test_a_growing_table_of_records_keeps_every_promise_of_a_source(spark: SparkSession, database: Database) -> None:
    table = f"records_{uuid.uuid4().hex[:8]}"
    columns = '"txid" BIGINT GENERATED ALWAYS AS IDENTITY, "channel" VARCHAR(9), "key" BLOB, "payload" BLOB'
    database.run(f"CREATE TABLE {table} ({columns})")
    options = database.options(table)
    assert source("txid", "jdbc", options).schema == RECORD_SCHEMA

    def append(_: str, payloads: Sequence[bytes]) -> None:
        database.run(f'INSERT INTO {table} ("payload") VALUES (?)', [(payload,) for payload in payloads])

    check_source(lambda: source("txid", "jdbc", options), append)


def test_without_shared_files_rows_travel_with_their_splits(
    spark: SparkSession, database: Database, flights: str
) -> None:
    add(database, flights, list(range(10)))
    tables = SessionTables(spark, scratch_directory(), files_are_shared=False)
    table = SparkTable.of("jdbc", database.options(flights))
    stored = tables.read(table, tables.schema(table), RowSpan("ID", "3", "8"))
    [split] = stored.splits(4)
    assert [row["ID"] for batch in split.read() for row in batch.to_pylist()] == [4, 5, 6, 7]
    assert split.records == 4


# -- sinks


def writer_of(spark_format: str, options: dict[str, Any]) -> tuple[SparkSink, SinkStreamWriter]:
    config = SparkSinkConfig.parse({"kind": "spark", "spark_format": spark_format, "options": options}, source="a test")
    sink = SparkSink("out", config)
    streams = sink.streams(2)
    sink.create(streams)
    writer = sink.open_writer(streams[1], ATTEMPT)
    writer.recover(None)
    return sink, writer


def batch(*ids: int) -> pa.RecordBatch:
    at = [datetime(2013, 1, 1, tzinfo=UTC)] * len(ids)
    return pa.record_batch({"ID": pa.array(ids, pa.int64()), "AT": pa.array(at, pa.timestamp("us", tz="UTC"))})


@pytest.mark.parametrize("spark_format", ["parquet", "jdbc"])
def test_a_round_is_written_when_it_is_prepared(
    spark: SparkSession, database: Database, tmp_path: Path, spark_format: str
) -> None:
    table = f"out_{uuid.uuid4().hex[:8]}"
    options = {"path": str(tmp_path / "out")} if spark_format == "parquet" else database.options(table)
    sink, writer = writer_of(spark_format, options)
    assert writer.prepare_commit() is None
    writer.write(batch(1, 2))
    writer.rollback()
    assert writer.prepare_commit() is None
    for ids in ((3,), (4, 5)):
        writer.write(batch(*ids))
    committed = writer.prepare_commit()
    assert committed is not None
    assert committed.records == 3
    writer.complete_commit(committed)
    writer.recover(committed)
    writer.write(batch(6))
    assert writer.prepare_commit() is not None
    rows = spark.read.format(spark_format).options(**options).load().orderBy("ID").collect()
    assert [(row["ID"], row["AT"]) for row in rows] == [
        (i, datetime(2013, 1, 1, tzinfo=UTC).astimezone().replace(tzinfo=None)) for i in (3, 4, 5, 6)
    ]
    stream = sink.streams(1)[0]
    assert sorted(i for b in sink.committed(stream) for i in b.column("ID").to_pylist()) == [3, 4, 5, 6]


def test_what_the_table_refuses_is_said_in_one_line(spark: SparkSession, database: Database, flights: str) -> None:
    _, writer = writer_of("jdbc", database.options(flights))
    writer.write(pa.record_batch({"NO": [1]}))
    with pytest.raises(TableFailed, match=r"Spark's format jdbc: it cannot be written: .*NO.*correct the dataflow's"):
        writer.prepare_commit()


def test_a_format_that_is_not_there_is_said_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(TableFailed, match=r"its columns cannot be read: .*no_such_format") as failed:
        _ = source(None, "no_such_format", {}).schema
    assert "\n" not in str(failed.value)


def test_a_system_that_does_not_answer_is_waited_for(spark: SparkSession) -> None:
    options = {"url": "jdbc:hive2://127.0.0.1:1/db", "dbtable": "t", "driver": "org.apache.hive.jdbc.HiveDriver"}
    with pytest.raises(SystemUnreachable, match="a task tries again until its system answers"):
        _ = source(None, "jdbc", options).schema


def test_the_guarantee_is_said_and_a_resource_tells_no_secret(registry: Registry) -> None:
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    url = "jdbc:postgresql://me:secret@host/db?password=secret"
    options: dict[str, Any] = {"url": url, "dbtable": "t", "password": "secret", "numPartitions": 2, "truncate": True}
    config = SparkSinkConfig.parse({"kind": "spark", "spark_format": "jdbc", "options": options}, source="a test")
    sink = open_sink("out", config, environment)
    assert sink.guarantee == "at least once"
    assert sink.resource == "spark:jdbc:dbtable=t url=jdbc:postgresql://host/db"
    elastic = config.model_copy(
        update={"spark_format": "es", "options": {"es.resource": "i", "es.net.http.auth.pass": "secret"}}
    )
    assert open_sink("out", elastic, environment).resource == "spark:es:es.resource=i"
    unknown = config.model_copy(update={"spark_format": "x", "options": {"secret": "secret"}})
    assert "secret" not in open_sink("out", unknown, environment).resource
    named = unknown.model_copy(update={"resource": "mine"})
    assert open_sink("out", named, environment).resource == "spark:x:mine"
    table = SparkSourceConfig.parse({"kind": "spark", "spark_format": "x"}, source="a test")
    assert [stream.name for stream in open_source("in", table, environment).streams()] == ["0"]
