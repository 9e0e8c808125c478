"""Transformations that cannot work: refused before anything runs, in the words of whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.errors import ConfigInvalid, PackageInvalid
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, Transformation
from tests.integration.spark_samples import UPPER, spec

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC payload FROM src", "PARSE_SYNTAX_ERROR"),
        ("SELECT paylod FROM src", "UNRESOLVED_COLUMN"),
        ("SELECT payload FROM other", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT key FROM src", "no column 'payload'"),
        ("SELECT txid AS payload FROM src", "'payload' is bigint"),
        ("SELECT payload, key, key FROM src", "two columns named 'key'"),
    ],
)
def test_sql_that_cannot_work_is_refused_in_one_line(spark: SparkSession, sql: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said) as refused:
        Transformation.load(spec(sql={"out": sql}), spark).check()
    assert "'out'" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT named_struct('a', 1, 'a', 2) AS s FROM src",
        "SELECT 1 AS b, array(map('k', named_struct('b', named_struct('a', 1, 'a', 2)))) AS s FROM src",
    ],
)
def test_a_struct_that_has_a_field_twice_is_no_column(spark: SparkSession, sql: str) -> None:
    """Spark would say so in the job of each round."""
    with pytest.raises(ConfigInvalid, match="its column 's' has a struct with two fields named 'a': rename or drop"):
        Transformation.load(spec(sql={"out": sql}, outputs=[OutputSpec("out", "columns")]), spark).check()


@pytest.mark.parametrize(
    ("ddl", "said"), [(None, "needs a schema_ddl"), ("id INTT", "schema_ddl"), ("_key INT", "_key")]
)
def test_a_schema_that_cannot_work_is_refused(spark: SparkSession, ddl: str | None, said: str) -> None:
    source = InputSpec("src", RECORD_SCHEMA, "json", ddl)
    with pytest.raises(ConfigInvalid, match=said):
        Transformation.load(spec(sql={"out": UPPER}, inputs=[source]), spark).check()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "returns NoneType"),
        ("return {'out': src, 'aut': src}", "'aut', which is none of the sinks"),
        ("return {}", "nothing for sink 'out'"),
        ("return {'out': None}", "None for every sink"),
        ("return {'out': 3}", "returns int for 'out'"),
        ("return src.select('nope')", "UNRESOLVED_COLUMN"),
        ("raise KeyError('limit')", "KeyError: 'limit'"),
        ("return context.settings['limt']", r"KeyError: .settings has no 'limt' \(it has: nothing\)"),
        ("return inputs['scr']", r"KeyError: .no source is called 'scr' \(there are: src\): did you mean 'src'\?"),
        ("src.count(); return src", "must only describe"),
        ("return context.spark.read.csv(context.path('no.csv'))", "holds no 'no.csv'"),
    ],
)
def test_a_function_that_cannot_work_is_refused(
    spark: SparkSession, package: Callable[..., Path], body: str, said: str
) -> None:
    directory = package(flow=f"def transform(inputs, context):\n    src = inputs['src']\n    {body}\n")
    with pytest.raises(PackageInvalid, match=said) as refused:
        Transformation.load(spec("flow:transform", package=directory), spark).check()
    assert "JVM stacktrace" not in str(refused.value)
