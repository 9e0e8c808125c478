"""Functions of a transformation that raise on some records: which, is found by one look, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.dataflow.round.bad_records import SUSPECTS_TRIED, Isolated, Piece, isolate
from scribengin.spark.transform.transformation import InputSpec, Transformation
from tests.integration.spark_samples import json_input, payloads, records, spec

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_plans")]

COUNT = 5_000
FORTY = [0, 1, 2, *range(100, 100 + 36 * 130, 130), COUNT - 1]
VALUES = """
    @F.udf("string")
    def strict(payload):
        if payload.startswith(b"bad"):
            raise ValueError(payload.decode())
        return payload.decode().upper()

    def transform(inputs, context):
        return inputs["src"].select(strict("payload").alias("payload"))
"""
PICKLED = VALUES.replace('"string"', '"string", useArrow=False')
COLUMNS = """
    import pandas as pd

    @F.pandas_udf("string")
    def strict(column: pd.Series) -> pd.Series:
        if column.map(lambda payload: payload.startswith(b"bad")).any():
            raise ValueError("bad")
        return column.map(lambda payload: payload.decode().upper())

    def transform(inputs, context):
        return inputs["src"].select(strict("payload").alias("payload"))
"""
BATCHES_OF_COLUMNS = """
    import pandas as pd
    from typing import Iterator

    @F.pandas_udf("string")
    def strict(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for column in columns:
            if column.map(lambda payload: payload.startswith(b"bad")).any():
                raise ValueError("bad")
            yield column.map(lambda payload: payload.decode().upper())

    def transform(inputs, context):
        return inputs["src"].select(strict("payload").alias("payload"))
"""
BATCHES = """
    import pyarrow.compute as pc

    def strict(batches):
        for batch in batches:
            if pc.any(pc.starts_with(batch.column("payload"), b"bad")).as_py():
                raise ValueError("bad")
            yield batch.select(["payload"])

    def transform(inputs, context):
        frame = inputs["src"].select("payload").mapInArrow(strict, "payload binary")
        return frame.select(F.upper(F.col("payload").cast("string")).alias("payload"))
"""
FILTERED = VALUES.replace('inputs["src"]', 'inputs["src"].where("txid % 2 = 0")')
FILTERED_BATCHES = BATCHES.replace('inputs["src"].select("payload")', 'inputs["src"].where("txid % 2 = 0")')
DROPPED = VALUES.replace('inputs["src"]', 'inputs["src"].select("payload")')
DROPPED_AND_FILTERED = DROPPED.replace('select("payload")', 'where("txid % 2 = 0").select("payload")')
REGISTERED = """
    def strict(payload):
        if payload.startswith(b"bad"):
            raise ValueError(payload.decode())
        return payload.decode().upper()

    def transform(inputs, context):
        context.spark.udf.register("strict", strict, "string")
        inputs["src"].createOrReplaceTempView("src")
        return context.spark.sql("SELECT strict(payload) AS payload FROM src")
"""
CAST = """
    def transform(inputs, context):
        text = F.col("payload").cast("string")
        return inputs["src"].select(F.when(text.startswith("bad"), text.cast("int").cast("string")).otherwise(
            F.upper(text)).alias("payload"))
"""


def loaded(package: Callable[..., Path], spark: SparkSession, code: str, *sources: str) -> Transformation:
    directory = package(flows=f"from pyspark.sql import functions as F\n{_dedented(code)}")
    inputs = [InputSpec(source, RECORD_SCHEMA) for source in sources or ("src",)]
    return Transformation.load(spec("flows:transform", package=directory, inputs=inputs), spark)


def _dedented(code: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in code.splitlines())


def made(bad: Sequence[int], count: int = COUNT) -> pa.Table:
    return records([b"%s %d" % (b"bad" if n in set(bad) else b"good", n) for n in range(count)])


class Counted:
    """The runs of a transformation, by the records of each."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation
        self.runs: list[int] = []

    def __call__(self, tables: Mapping[str, pa.Table]) -> Any:
        self.runs.append(sum(table.num_rows for table in tables.values()))
        return self._transformation.run_tables(tables)


def isolated(transformation: Transformation, run: Counted, pieces: list[Piece], *, believed: bool = False) -> Isolated:
    return isolate(
        pieces,
        run,
        transformation.undecodable,
        100,
        raising=transformation.raising,
        stop_at_first=False,
        believed=believed,
    )


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        (VALUES, [3_333]),
        pytest.param(VALUES, [0, 2_500, COUNT - 1], marks=pytest.mark.full),
        (VALUES, FORTY),
        (PICKLED, [7, 8]),
        (COLUMNS, [7, 8, COUNT - 1]),
        (BATCHES_OF_COLUMNS, [7, 8, COUNT - 1]),
        (BATCHES, [7, 8, COUNT - 1]),
        (DROPPED, [7, 8, COUNT - 1]),
        (REGISTERED, [7, 8, COUNT - 1]),
    ],
    ids=["one", "three", "forty", "pickled", "columns", "batches of columns", "batches", "dropped", "registered"],
)
def test_records_on_which_a_function_raises_cost_two_runs_and_where_they_were_counted_one_each(
    spark: SparkSession, package: Callable[..., Path], code: str, bad: list[int]
) -> None:
    transformation = loaded(package, spark, code)
    run = Counted(transformation)
    piece = Piece("src", "0", {"at": 0}, made(bad))
    result = isolated(transformation, run, [piece])
    assert [found.index for found in result.bad] == bad
    assert payloads(result.outputs["out"]) == [b"GOOD %d" % n for n in range(COUNT) if n not in set(bad)]
    assert all(found.reason.startswith("ValueError: bad") for found in result.bad)
    alone = len(bad) if code is DROPPED else min(len(bad), SUSPECTS_TRIED)
    assert sorted(run.runs) == [*[1] * alone, COUNT - len(bad)]
    assert result.believed is (code is not DROPPED and len(bad) >= SUSPECTS_TRIED)
    if result.believed:
        run = Counted(transformation)
        again = isolated(transformation, run, [piece], believed=True)
        assert ([found.index for found in again.bad], run.runs) == (bad, [COUNT - len(bad)])
        assert payloads(again.outputs["out"]) == payloads(result.outputs["out"])


def test_so_it_is_with_several_sources_and_streams(spark: SparkSession, package: Callable[..., Path]) -> None:
    code = VALUES.replace('inputs["src"]', 'inputs["a"].select("payload").union(inputs["b"].select("payload"))')
    transformation = loaded(package, spark, code, "a", "b")
    run = Counted(transformation)
    pieces = [
        Piece(source, stream, {"at": 0}, made([n], 100))
        for source, stream, n in (("a", "0", 99), ("b", "1", 0), ("a", "2", 5))
    ]
    result = isolated(transformation, run, pieces)
    assert [(found.stream, found.index) for found in result.bad] == [("0", 99), ("1", 0), ("2", 5)]
    assert len(payloads(result.outputs["out"])) == 297
    assert sorted(run.runs) == [1, 1, 1, 297]


@pytest.mark.parametrize("code", [FILTERED, FILTERED_BATCHES], ids=["values", "batches"])
def test_so_it_is_behind_a_filter(spark: SparkSession, package: Callable[..., Path], code: str) -> None:
    bad = [100, 700, 998]
    transformation = loaded(package, spark, code)
    run = Counted(transformation)
    result = isolated(transformation, run, [Piece("src", "0", {"at": 0}, made([*bad, 701], 1_000))])
    assert [found.index for found in result.bad] == bad
    assert payloads(result.outputs["out"]) == [b"GOOD %d" % n for n in range(0, 1_000, 2) if n not in bad]
    assert sorted(run.runs) == [1, 1, 997]


@pytest.mark.parametrize(("code", "step"), [(DROPPED_AND_FILTERED, 2), (CAST, 1)], ids=["filter", "cast"])
def test_where_that_cannot_be_told_they_are_found_all_the_same(
    spark: SparkSession, package: Callable[..., Path], code: str, step: int
) -> None:
    transformation = loaded(package, spark, code)
    run = Counted(transformation)
    result = isolated(transformation, run, [Piece("src", "0", {"at": 0}, made([20], 40))])
    assert [found.index for found in result.bad] == [20]
    assert payloads(result.outputs["out"]) == [b"GOOD %d" % n for n in range(0, 40, step) if n != 20]


def test_the_number_of_a_record_stands_beside_documents_too(spark: SparkSession, package: Callable[..., Path]) -> None:
    code = VALUES.replace("payload.startswith(b", "payload.startswith(").replace("payload.decode()", "payload")
    code = code.replace('inputs["src"]', 'inputs["src"].where("n % 2 = 0")')
    directory = package(flows=f"from pyspark.sql import functions as F\n{_dedented(code)}")
    inputs = [json_input("n INT, payload STRING")]
    transformation = Transformation.load(spec("flows:transform", package=directory, inputs=inputs), spark)
    rows = records([b'{"n": %d, "payload": "%s"}' % (n, b"bad" if n in (4, 5, 8) else b"good") for n in range(10)])
    assert transformation.raising({"src": rows}) == {"src": dict.fromkeys((4, 8), "ValueError: bad")}


def test_watching_leaves_the_functions_of_rounds_as_they_are(spark: SparkSession, package: Callable[..., Path]) -> None:
    transformation = loaded(package, spark, VALUES)
    raised = {n: f"ValueError: bad {n}" for n in range(10)}
    assert transformation.raising({"src": made([3, 7], 10)}) == {"src": {3: raised[3], 7: raised[7]}}
    assert transformation.raising({"src": made([4], 10)}) == {"src": {4: raised[4]}}
    assert transformation.raising({"src": made([], 10)}) == {"src": {}}
    another = Transformation.load(transformation.spec, spark)
    with pytest.raises(Exception, match="bad 3"):
        another.run_tables({"src": made([3], 10)})
