"""Columns beside the payload and columns instead of payloads, through a real Spark session, in and out."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.dataflow.round.bad_records import Piece, error_batch, isolate
from scribengin.errors import ConfigInvalid, TransformationFailed
from scribengin.spark.transform import transformation as transformation_module
from scribengin.spark.transform.transformation import SMALL_RECORDS_MAX, InputSpec, OutputSpec, Transformation
from tests.integration.spark_samples import documents, payloads, records, spec

pytestmark = pytest.mark.spark

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
BESIDE = {"partition": pa.int32(), "at": pa.timestamp("ms", tz="UTC"), "headers": HEADERS}
TOPIC = pa.schema([*RECORD_SCHEMA, *(pa.field(name, kind) for name, kind in BESIDE.items())])
SIDE_COLUMNS = pa.schema([TOPIC.field(name) for name in ("key", "partition", "at", "headers")])
AT = datetime(2013, 1, 2, 3, 4, 5, 678000, UTC)
FLIGHTS = pa.schema(
    [
        pa.field("id", pa.uint32()),
        pa.field("carrier", pa.large_string()),
        pa.field("on", pa.date32()),
        pa.field("fare", pa.decimal128(8, 2)),
        pa.field("stops", pa.list_(pa.string())),
    ]
)


def topic(values: list[bytes]) -> pa.Table:
    beside = [
        pa.array([7] * len(values), pa.int32()),
        pa.array([AT] * len(values), pa.timestamp("ms", tz="UTC")),
        pa.array([[{"key": "h", "value": b"\x00"}]] * len(values), HEADERS),
    ]
    return pa.table([*records(values).columns, *beside], schema=TOPIC)


def flights(count: int) -> pa.Table:
    columns = [
        range(count),
        ["UA"] * count,
        [date(2013, 1, 1)] * count,
        [Decimal("9.50")] * count,
        [["EWR"]] * count,
    ]
    return pa.table([pa.array(c, field.type) for c, field in zip(columns, FLIGHTS, strict=True)], schema=FLIGHTS)


def test_json_shows_every_column_beside_the_payload(spark: SparkSession) -> None:
    inputs = [InputSpec("src", TOPIC, "json", "id INT")]
    outputs = [OutputSpec("out", "json", SIDE_COLUMNS)]
    transformation = Transformation.load(spec(sql={"out": "SELECT * FROM src"}, inputs=inputs, outputs=outputs), spark)
    assert transformation.check().inputs["src"].startswith("id INT,_txid BIGINT,_channel STRING,_key BINARY,_partition")
    [batch] = transformation.run_tables({"src": topic([b'{"id": 1}'])})["out"]
    # What the sink carries goes beside the document, what it does not goes into it.
    assert documents([batch]) == [{"id": 1, "_txid": 0, "_channel": "c"}]
    assert batch.schema == pa.schema([pa.field("payload", pa.binary()), *SIDE_COLUMNS])
    beside = {"key": b"k0", "partition": 7, "at": AT, "headers": [{"key": "h", "value": b"\x00"}]}
    assert batch.drop_columns(["payload"]).to_pylist() == [beside]


def test_schema_ddl_may_not_name_the_records_own_columns(spark: SparkSession) -> None:
    inputs = [InputSpec("src", TOPIC, "json", "id INT, _Partition INT")]
    outputs = [OutputSpec("out", "json")]
    with pytest.raises(ConfigInvalid, match="schema_ddl may not name _partition"):
        Transformation.load(spec(sql={"out": "SELECT id FROM src"}, inputs=inputs, outputs=outputs), spark).check()


def test_raw_carries_what_the_sink_takes_in_its_types_and_drops_the_rest(spark: SparkSession) -> None:
    sql = (
        "SELECT payload, 'k' AS key, 3L AS partition, 'x' AS channel, timestamp'2013-01-02 03:04:05.678' AS at FROM src"
    )
    outputs = [OutputSpec("out", "raw", SIDE_COLUMNS)]
    transformation = Transformation.load(spec(sql={"out": sql}, outputs=outputs), spark)
    [batch] = transformation.run_tables({"src": records([b"a"])})["out"]
    fields = [SIDE_COLUMNS.field(name) for name in ("key", "partition", "at")]
    assert batch.schema == pa.schema([pa.field("payload", pa.binary()), *fields])
    assert batch.to_pylist() == [{"payload": b"a", "key": b"k", "partition": 3, "at": AT}]


def test_a_carried_column_of_a_type_that_cannot_be_cast_is_refused(spark: SparkSession) -> None:
    outputs = [OutputSpec("out", "raw", SIDE_COLUMNS)]
    sql = {"out": "SELECT payload, array(1) AS partition FROM src"}
    with pytest.raises(ConfigInvalid, match=r"cannot be planned.*CAST"):
        Transformation.load(spec(sql=sql, outputs=outputs), spark).check()


@pytest.mark.parametrize(
    ("count", "small"),
    [
        (2, SMALL_RECORDS_MAX),
        (300, 100),
        pytest.param(60_000, SMALL_RECORDS_MAX, marks=pytest.mark.full),
    ],
    ids=["a small plan", "a large plan", "many"],
)
def test_outputs_of_every_format_come_from_one_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, count: int, small: int
) -> None:
    monkeypatch.setattr(transformation_module, "SMALL_RECORDS_MAX", small)
    sql = {
        "table": "SELECT id, fare * 2 AS key, `on` AS `a.day`, stops FROM src",
        "raw": "SELECT carrier AS payload, cast(id AS string) AS key FROM src WHERE id > 0",
        "documents": "SELECT id, id AS _txid FROM src",
        "other": "SELECT cast(id AS string) AS id FROM src WHERE id = 1",
    }
    outputs = [
        OutputSpec("table", "columns"),
        OutputSpec("raw"),
        OutputSpec("documents", "json"),
        OutputSpec("other", "columns"),
    ]
    transformation = Transformation.load(spec(sql=sql, inputs=[InputSpec("src", FLIGHTS)], outputs=outputs), spark)
    result = {name: pa.Table.from_batches(b) for name, b in transformation.run_tables({"src": flights(count)}).items()}
    assert result["table"].schema == pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("key", pa.decimal128(10, 2)),
            pa.field("a.day", pa.date32()),
            pa.field("stops", pa.list_(pa.string())),
        ]
    )
    assert result["table"].column("id").to_pylist() == list(range(count))
    assert result["table"].slice(1, 1).to_pylist() == [
        {"id": 1, "key": Decimal("19.00"), "a.day": date(2013, 1, 1), "stops": ["EWR"]}
    ]
    assert result["raw"].schema == pa.schema([pa.field("payload", pa.binary()), pa.field("key", pa.binary())])
    assert result["raw"].column("key").to_pylist() == [b"%d" % n for n in range(1, count)]
    assert documents(result["documents"].to_batches()) == [{"id": n} for n in range(count)]
    assert result["documents"].column("txid").to_pylist() == list(range(count))
    assert result["other"].to_pylist() == [{"id": "1"}]


def test_a_source_of_columns_is_seen_as_it_is(spark: SparkSession) -> None:
    inputs, outputs = [InputSpec("src", FLIGHTS)], [OutputSpec("out", "columns")]
    transformation = Transformation.load(spec(sql={"out": "SELECT * FROM src"}, inputs=inputs, outputs=outputs), spark)
    assert transformation.check().inputs == {
        "src": "id BIGINT,carrier STRING,on DATE,fare DECIMAL(8,2),stops ARRAY<STRING>"
    }
    result = pa.Table.from_batches(transformation.run_tables({"src": flights(3)})["out"])
    assert result.to_pylist() == flights(3).to_pylist()


def test_a_source_of_columns_has_no_json_to_decode(spark: SparkSession) -> None:
    inputs = [InputSpec("src", FLIGHTS, "json", "id INT")]
    with pytest.raises(ConfigInvalid, match=r"source 'src': its records are columns already \(id, carrier"):
        Transformation.load(spec(sql={"out": "SELECT id FROM src"}, inputs=inputs), spark).check()


def test_a_type_that_spark_lacks_is_named(spark: SparkSession) -> None:
    inputs = [InputSpec("src", pa.schema([pa.field("odd", pa.list_(pa.uint64()))]))]
    with pytest.raises(ConfigInvalid, match="source 'src': Spark has no type for its column 'odd', list<item: uint64>"):
        Transformation.load(spec(sql={"out": "SELECT odd FROM src"}, inputs=inputs), spark).check()


def test_a_bad_row_of_columns_is_found_and_described(spark: SparkSession, package: Callable[..., Path]) -> None:
    directory = package(
        strict="""
        from pyspark.sql import functions as F

        def transform(inputs, context):
            three = F.when(F.col("id") == 3, F.raise_error(F.lit("three")))
            return inputs["src"].withColumn("id", three.otherwise(F.col("id")))
        """
    )
    loaded = spec(
        "strict:transform",
        package=directory,
        inputs=[InputSpec("src", FLIGHTS)],
        outputs=[OutputSpec("out", "columns")],
    )
    transformation = Transformation.load(loaded, spark)
    with pytest.raises(TransformationFailed, match="three"):
        transformation.run_tables({"src": flights(10)})
    pieces = [Piece("src", "0", {"at": 0}, flights(10))]
    isolated = isolate(
        pieces,
        transformation.run_tables,
        transformation.undecodable,
        10,
        raising=transformation.raising,
        stop_at_first=False,
    )
    good = pa.Table.from_batches(isolated.outputs["out"]).column("id").to_pylist()
    assert good == [n for n in range(10) if n != 3]
    [document] = [json.loads(payload) for payload in payloads([error_batch(isolated.bad)])]
    assert (document["source"], document["index"], document["after"]) == ("src", 3, {"at": 0})
    assert document["reason"].endswith("three")
    assert document["record"] == {"id": 3, "carrier": "UA", "on": "2013-01-01", "fare": "9.50", "stops": ["EWR"]}
