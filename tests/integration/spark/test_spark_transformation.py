"""A transformation over records through a real Spark session: formats, outputs, order, errors, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA, RecordSplit
from scribengin.dataflow.round.long_records import BoundedSplit
from scribengin.errors import DamagedEntry, TransformationFailed
from scribengin.spark.transform.input import InputBinding
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, Transformation
from tests.integration.spark_samples import UPPER, documents, json_input, payloads, records, spec

pytestmark = pytest.mark.spark

# -- formats and outputs


def test_sql_transforms_raw_records(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    outputs = transformation.run_tables({"src": records([b"a", b"b"])})
    assert payloads(outputs["out"]) == [b"A", b"B"]
    assert outputs["out"][0].schema.field("payload").type == pa.binary()


def test_raw_output_carries_what_the_transformation_keeps(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": "SELECT key, txid, channel, payload FROM src"}), spark)
    batches = transformation.run_tables({"src": records([b"a", b"b"])})["out"]
    assert (
        pa.Table.from_batches(batches).to_pylist()
        == records([b"a", b"b"]).select(["payload", "txid", "channel", "key"]).to_pylist()
    )


def test_json_is_decoded_and_encoded(spark: SparkSession) -> None:
    sql = {"out": "SELECT id + 1 AS id, carrier, _txid, _channel, _key FROM src"}
    transformation = Transformation.load(
        spec(sql=sql, inputs=[json_input()], outputs=[OutputSpec("out", "json")]), spark
    )
    batches = transformation.run_tables({"src": records([b'{"id": 1, "carrier": "UA"}', b'{"id": 2}'])})["out"]
    assert documents(batches) == [{"id": 2, "carrier": "UA"}, {"id": 3, "carrier": None}]
    assert batches[0].column("txid").to_pylist() == [0, 1]
    assert batches[0].column("key").to_pylist() == [b"k0", b"k1"]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"",
        b"null",
        b"5",
        b'[{"id": 1}]',
        b'{"id": 1',
        b'{"id": "one"}',
        b'{"id": 1.5}',
        b'{"id": 99999999999}',
        b"{'id': 1}",
        b'{"id": 1} {"id": 2}',
        b'{"id": 1}, {"id": 2}',
        b'{"id": 1} and more',
        b'{"carrier": "\xff"}',
    ],
)
def test_what_is_not_one_json_object_of_the_schema_fails(
    spark: SparkSession, flights: Transformation, payload: Any
) -> None:
    with pytest.raises(TransformationFailed) as failed:
        flights.run_tables({"src": records([payload])})
    assert 0 < len(failed.value.reason) < 300
    assert "\n" not in failed.value.reason
    assert "\tat " not in str(failed.value)


def test_what_is_found_undecodable_at_once_is_exactly_what_fails_alone(
    spark: SparkSession, flights: Transformation
) -> None:
    ends = [b'{"id": %d, "carrier": "' % n + bytes([n]) + b'"}' for n in range(256)]
    odd = [
        b"", b"{}", b"null", b"[]", b"7", b'{"id": 1', b'{"id": "one"}', b'{"id": 1.5}', b'{"id": 1} {"id": 2}',
        b'{"id": 1},null]x', b'{"id": 1}, {"id": 2}', b'[{"id": 1}]', b'{"id": null}', b'{"other": [1, {"x": 2}]}',
        '{"id": 1, "carrier": "Grüße 🛫"}'.encode(), b'{"carrier": "' + b"x" * 1_000_000 + b'"}', b"x" * 1_000_000,
    ]  # fmt: skip
    payloads = [*odd, *ends, None]
    alone = set()
    for row, payload in enumerate(payloads):
        if row < len(odd) or row % 32 == 0 or payload is None:
            try:
                flights.run_tables({"src": records([payload])})
            except TransformationFailed:
                alone.add(row)
    found = flights.undecodable({"src": records(payloads)})["src"]
    looked_at = {row for row in found if row < len(odd) or row % 32 == 0 or payloads[row] is None}
    assert looked_at == alone
    assert all(why and "\n" not in why and len(why) < 300 for why in found.values())
    assert flights.undecodable({"src": records(payloads[1:2])}) == {"src": {}}


def test_a_run_that_failed_in_sql_says_at_which_record_it_stopped(spark: SparkSession) -> None:
    casting = spec(
        sql={"out": "SELECT cast(cast(payload AS string) AS int) + 0 AS n FROM src"},
        outputs=[OutputSpec("out", "json")],
    )
    transformation = Transformation.load(casting, spark)
    with pytest.raises(TransformationFailed) as failed:
        transformation.run_tables({"src": records([b"x" if n in (417, 600) else b"1" for n in range(1_000)])})
    assert failed.value.row == 417


@pytest.fixture(scope="module")
def flights(spark: SparkSession) -> Transformation:
    transformed = spec(
        sql={"out": "SELECT id, carrier FROM src WHERE id > 0"},
        inputs=[json_input()],
        outputs=[OutputSpec("out", "json")],
    )
    return Transformation.load(transformed, spark)


def test_a_failed_record_leaves_the_transformation_usable(flights: Transformation) -> None:
    good = [f'{{"id": {n}, "carrier": "UA"}}'.encode() for n in range(1, 100)]
    with pytest.raises(TransformationFailed, match="malformed JSON"):
        flights.run_tables({"src": records([*good[:50], b'{"id": x}', *good[50:]])})
    outputs = flights.run_tables({"src": records(good)})
    assert [document["id"] for document in documents(outputs["out"])] == list(range(1, 100))


def test_a_function_gives_several_outputs_in_one_round(spark: SparkSession, package: Callable[..., Path]) -> None:
    directory = package(
        split="""
        def transform(inputs, context):
            flights = inputs["src"]
            limit = context.settings["limit"]
            return {
                "late": flights.where(flights.id > limit),
                "keys": flights.selectExpr("cast(id as string) AS payload", "_key AS key"),
                "none": None,
            }
        """
    )
    outputs = [OutputSpec("late", "json"), OutputSpec("keys"), OutputSpec("none")]
    loaded = spec("split:transform", package=directory, inputs=[json_input()], outputs=outputs, settings={"limit": 3})
    transformation = Transformation.load(loaded, spark)
    result = transformation.run_tables({"src": records([b'{"id": %d}' % n for n in range(6)])})
    assert [document["id"] for document in documents(result["late"])] == [4, 5]
    assert payloads(result["keys"]) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert result["keys"][0].schema.names == ["payload", "key"]
    assert result["none"] == []


def test_check_says_what_goes_in_and_out(spark: SparkSession, flights: Transformation) -> None:
    plan = flights.check()
    assert plan.inputs == {"src": "id INT,carrier STRING,_txid BIGINT,_channel STRING,_key BINARY"}
    assert plan.outputs == {"out": "id INT,carrier STRING"}
    assert {"BatchScan", "Generate", "Filter"} <= set(plan.operators)


# -- rounds


@dataclass(frozen=True)
class TableSplit:
    """A split that carries its records."""

    table: pa.Table

    @property
    def records(self) -> int:
        return int(self.table.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.table.nbytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()


def splits_of(values: Sequence[bytes], count: int) -> list[RecordSplit]:
    table = records(values)
    size = -(-len(values) // count)
    return [TableSplit(table.slice(n * size, size)) for n in range(count)]


def test_a_large_round_keeps_the_order_of_its_splits(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    values = [b"record-%06d" % n for n in range(50_000)]
    outputs = transformation.run({"src": splits_of(values, 7)})
    assert payloads(outputs["out"]) == [value.upper() for value in values]


def test_rounds_of_any_size_follow_each_other(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    for count in (3, 30_000, 5, 40_000, 1):
        values = [b"%d-%d" % (count, n) for n in range(count)]
        assert payloads(transformation.run({"src": splits_of(values, 3)})["out"]) == values


def test_a_round_without_records_runs_no_job(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    assert transformation.run({"src": []}) == {"out": []}
    assert transformation.run_tables({"src": records([])}) == {"out": []}


def test_two_sources_meet_in_one_output_and_one_may_be_idle(spark: SparkSession) -> None:
    sql = {"out": "SELECT payload FROM a UNION ALL SELECT payload FROM b"}
    inputs = [InputSpec("a", RECORD_SCHEMA), InputSpec("b", RECORD_SCHEMA)]
    transformation = Transformation.load(spec(sql=sql, inputs=inputs), spark)
    assert payloads(transformation.run({"a": splits_of([b"1"], 1), "b": splits_of([b"2"], 1)})["out"]) == [b"1", b"2"]
    assert payloads(transformation.run({"a": [], "b": splits_of([b"3"], 1)})["out"]) == [b"3"]
    assert payloads(transformation.run({"a": splits_of([b"4"], 1)})["out"]) == [b"4"]


def test_the_time_and_random_values_are_new_in_each_round(spark: SparkSession) -> None:
    sql = {"out": "SELECT uuid() || cast(current_timestamp() as string) AS payload FROM src"}
    transformation = Transformation.load(spec(sql=sql), spark)
    first, second = (payloads(transformation.run({"src": splits_of([b"a", b"b"], 1)})["out"]) for _ in range(2))
    assert len({*first, *second}) == 4
    assert first[0][36:] == first[1][36:]
    assert first[0][36:] != second[0][36:]


def test_threads_share_a_session(spark: SparkSession) -> None:
    """Two transformations with a view of the same name, three threads each."""
    upper = Transformation.load(spec(sql={"out": UPPER}), spark)
    twice = Transformation.load(spec(sql={"out": "SELECT concat(payload, payload) AS payload FROM src"}), spark)
    wrong: list[Any] = []

    def rounds(transformation: Transformation, thread: int, expected: Callable[[bytes], bytes]) -> None:
        for turn in range(3):
            values = [b"t%d-%d-%d" % (thread, turn, n) for n in range(1 + (turn % 2) * 30_000)]
            got = payloads(transformation.run({"src": splits_of(values, 2)})["out"])
            if got != [expected(value) for value in values]:
                wrong.append((thread, turn, got[:3]))

    threads = [threading.Thread(target=rounds, args=(upper, n, bytes.upper)) for n in range(3)]
    threads += [threading.Thread(target=rounds, args=(twice, n, lambda value: value * 2)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- errors


def test_a_function_of_theirs_that_raises_is_shown_as_their_traceback(
    spark: SparkSession, package: Callable[..., Path]
) -> None:
    directory = package(
        flows="""
        from pyspark.sql import functions as F

        @F.udf("string")
        def strict(payload):
            if payload == b"bad":
                raise ValueError("no such carrier: 'ZZ'\\nsecond line")
            return payload.decode()

        def transform(inputs, context):
            return inputs["src"].select(strict("payload").alias("payload"))
        """
    )
    transformation = Transformation.load(spec("flows:transform", package=directory), spark)
    with pytest.raises(TransformationFailed) as failed:
        transformation.run_tables({"src": records([b"bad"])})
    lines = str(failed.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{directory}/flows.py"' in lines[1]
    assert failed.value.reason == "ValueError: no such carrier: 'ZZ'"
    assert failed.value.__cause__ is not None
    good = [b"good-%d" % n for n in range(99)]
    assert payloads(transformation.run_tables({"src": records(good)})["out"]) == good


def test_an_error_of_sql_is_one_line(spark: SparkSession) -> None:
    transformation = Transformation.load(
        spec(sql={"out": "SELECT cast(cast(cast(payload as string) as int) as string) AS payload FROM src"}), spark
    )
    with pytest.raises(TransformationFailed) as failed:
        transformation.run_tables({"src": records([b"abc"])})
    assert failed.value.reason.startswith("[CAST_INVALID_INPUT] The value 'abc'")
    assert str(failed.value) == failed.value.reason


def test_a_null_payload_is_no_record(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": "SELECT nullif(payload, 'x') AS payload FROM src"}), spark)
    with pytest.raises(TransformationFailed, match="the output's payload is null"):
        transformation.run_tables({"src": records([b"x"])})


def test_a_function_that_kills_its_worker_fails_its_record(spark: SparkSession, package: Callable[..., Path]) -> None:
    directory = package(
        deadly="""
        import os
        from pyspark.sql import functions as F

        @F.udf("string")
        def die(payload):
            return payload.decode() if payload != b"die" else os._exit(1)

        def transform(inputs, context):
            return inputs["src"].select(die("payload").alias("payload"))
        """
    )
    transformation = Transformation.load(spec("deadly:transform", package=directory), spark)
    with pytest.raises(TransformationFailed, match="a Python worker of Spark died"):
        transformation.run_tables({"src": records([b"die"])})
    assert payloads(transformation.run_tables({"src": records([b"live"])})["out"]) == [b"live"]


@dataclass(frozen=True)
class DamagedSplit:
    """A split whose reading fails, as a damaged log does."""

    records: int = 10
    size_bytes: int = 10

    def read(self) -> Iterator[pa.RecordBatch]:
        raise DamagedEntry("the entry at 7 does not hold", position="7")


def test_a_record_that_is_too_long_fails_the_run_as_a_bad_record_does_and_the_lane_goes_on(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    values = ["Grüße".encode(), b"x" * 5_000, b"z"]
    long, short = ([BoundedSplit(split, 1_000) for split in splits_of(some, 2)] for some in (values, values[::2]))
    for _ in range(2):
        with pytest.raises(TransformationFailed, match=r"a record of 5,\d+ bytes, and the source takes 1,000"):
            transformation.run({"src": long})
        assert payloads(transformation.run({"src": short})["out"]) == ["GRÜSSE".encode(), b"Z"]


def test_a_split_that_cannot_be_read_raises_its_own_error(spark: SparkSession) -> None:
    transformation = Transformation.load(spec(sql={"out": UPPER}), spark)
    with pytest.raises(DamagedEntry) as damaged:
        transformation.run({"src": [DamagedSplit()]})
    assert damaged.value.position == "7"
    assert payloads(transformation.run({"src": splits_of([b"a"], 1)})["out"]) == [b"A"]


# -- in the worker


def test_shares_are_contiguous_and_balanced(tmp_path: Path) -> None:
    binding = InputBinding(tmp_path, 3)
    split = binding.write(records([b"x" * 100] * 10))
    assert [part.records for part in split] == [4, 4, 2]
    assert [batch.num_rows for part in split for batch in part.read()] == [4, 4, 2]
