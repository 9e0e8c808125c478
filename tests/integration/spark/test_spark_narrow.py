"""What is narrow and what is refused, by the plan that Spark would execute."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.errors import NotNarrow
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, Transformation, TransformationSpec

pytestmark = pytest.mark.spark


def check(spark: SparkSession, package: Path, text: str, outputs: tuple[str, ...] = ("out",)) -> tuple[str, ...]:
    """Check a function that sees two sources, `a` and `b`, and a small CSV file `table` with columns id, name."""
    lines = [
        "from pyspark.sql import functions as F",
        "from pyspark.sql.window import Window",
        "def transform(inputs, context):",
        "    a, b, spark = inputs['a'], inputs['b'], context.spark",
        "    table = spark.read.csv(context.path('table.csv'), header=True, schema='id long, name string')",
        *(f"    {line}" for line in text.splitlines()),
    ]
    (package / "flow.py").write_text("\n".join(lines))
    (package / "table.csv").write_text("id,name\n1,one\n2,two\n")
    sources = {name: InputSpec(name, RECORD_SCHEMA) for name in "ab"}
    sinks = {name: OutputSpec(name, "json") for name in outputs}
    spec = TransformationSpec("flow", "flow:transform", None, package, {}, sources, sinks)
    return Transformation.load(spec, spark).check().operators


@pytest.mark.parametrize(
    "text",
    [
        "return a.where(a.txid > 3).select('txid')",
        "return a.union(b)",
        "return a.select(F.explode(F.split(a.payload.cast('string'), ',')).alias('word'))",
        "return a.join(table, a.txid == table.id)",
        "return a.join(table, a.txid == table.id, 'left')",
        "return a.join(table, a.txid == table.id, 'left_anti')",
        "return table.join(a, a.txid == table.id, 'right')",
        "return a.join(F.broadcast(table.groupBy('name').agg(F.max('id').alias('id'))), a.txid > F.col('id'))",
        "return a.crossJoin(table)",
        "return a.join(F.broadcast(spark.createDataFrame([(1, 'x')], 'id long, name string')), a.txid == F.col('id'))",
        "return a.join(table.cache(), a.txid == table.id)",
        "return a.mapInArrow(lambda batches: batches, a.schema)",
        "return a.select(F.udf(lambda x: 'y', 'string')('payload').alias('y'))",
        "return a.withColumn('now', F.current_timestamp()).withColumn('r', F.rand())",
        "return a.coalesce(1)",
        "a.createOrReplaceTempView('a'); table.createOrReplaceTempView('t')\n"
        "return spark.sql('SELECT * FROM a WHERE txid > (SELECT max(id) FROM t)')",
    ],
)
def test_narrow(spark: SparkSession, tmp_path: Path, text: str) -> None:
    assert "BatchScan" in check(spark, tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("return a.groupBy('key').count()", "an aggregate"),
        ("return a.coalesce(1).groupBy('key').count()", "an aggregate"),
        ("return a.distinct()", "an aggregate"),
        ("return a.dropDuplicates(['key'])", "an aggregate"),
        ("return a.limit(5)", "a limit"),
        ("return a.orderBy('txid')", "a sort"),
        ("return a.sortWithinPartitions('txid')", "a sort"),
        ("return a.orderBy('txid').limit(3)", "an ordered limit"),
        ("return a.repartition(3)", "an exchange"),
        ("return a.sample(0.5)", "a sample"),
        ("w = Window.partitionBy('key').orderBy('txid')\nreturn a.withColumn('n', F.row_number().over(w))", "a window"),
        ("return a.groupBy('key').applyInPandas(lambda x: x, a.schema)", "a grouped function"),
        ("return a.cache()", "a cached input"),
        ("return a.join(F.broadcast(b.select('txid').cache()), 'txid')", "records with records"),
        ("return a.select('txid').join(b.select('txid'), 'txid')", "records with records"),
        ("return a.select('txid').join(F.broadcast(b.select('txid')), 'txid')", "records with records"),
        ("return a.select('txid').intersect(b.select('txid'))", "records with records"),
        ("return F.broadcast(a).join(table, a.txid == table.id)", "broadcasts the records"),
        ("return table.join(F.broadcast(a), a.txid == table.id, 'left_semi')", "broadcasts the records"),
        ("return table.join(a, a.txid > table.id, 'left')", "keeps the static table's rows"),
        ("return a.join(table.hint('merge'), a.txid == table.id)", "not broadcast"),
        ("return a.select('txid').union(table.select('id'))", "unites the records with a static table"),
        ("return table", "reads none of the sources"),
        ("return a.withColumn('n', F.monotonically_increasing_id())", "monotonically_increasing_id"),
        ("return a.withColumn('n', F.spark_partition_id())", "spark_partition_id"),
        (
            "a.createOrReplaceTempView('a')\n"
            "return spark.sql('SELECT * FROM a WHERE txid > (SELECT avg(txid) FROM a)')",
            "in a subquery",
        ),
    ],
)
def test_not_narrow(spark: SparkSession, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NotNarrow, match=said) as refused:
        check(spark, tmp_path, text)
    assert str(refused.value).startswith("output 'out' ")
    assert "\n" not in str(refused.value)


def test_the_output_that_is_not_narrow_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotNarrow, match=r"output 'counts' needs an aggregate"):
        check(spark, tmp_path, "return {'all': a, 'counts': a.groupBy('key').count()}", ("all", "counts"))


def test_something_random_is_refused_beside_other_outputs(spark: SparkSession, tmp_path: Path) -> None:
    text = "r = a.withColumn('r', F.rand())\nreturn {'low': r.where('r < 0.5'), 'high': r.where('r >= 0.5')}"
    with pytest.raises(NotNarrow, match="something random"):
        check(spark, tmp_path, text, ("low", "high"))
