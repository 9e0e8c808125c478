"""Users' packages: modules of the same name side by side, helpers in Spark's workers, static tables, bad packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.errors import PackageInvalid
from scribengin.spark.transform.transformation import InputSpec, OutputSpec, Transformation, TransformationSpec

pytestmark = pytest.mark.spark

FLOW = """
import helpers
from pyspark.sql import functions as F

@F.udf("string")
def mark(payload):
    from lazily import SUFFIX
    return helpers.prefix() + payload.decode() + SUFFIX

def transform(inputs, context):
    import late
    return inputs["src"].select(F.concat(mark("payload"), F.lit(late.END)).alias("payload"))
"""
RECORDS = pa.table([[0], ["c"], [b"k"], [b"1"]], schema=RECORD_SCHEMA)


def write(directory: Path, **modules: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def spec(directory: Path | None, function: str = "flow:transform") -> TransformationSpec:
    inputs, outputs = {"src": InputSpec("src", RECORD_SCHEMA)}, {"out": OutputSpec("out")}
    return TransformationSpec("flow", function, None, directory, {}, inputs, outputs)


def payloads(transformation: Transformation) -> list[bytes]:
    return [
        value for batch in transformation.run_tables({"src": RECORDS})["out"] for value in batch["payload"].to_pylist()
    ]


def test_packages_with_modules_of_the_same_names_do_not_meet(spark: SparkSession, tmp_path: Path) -> None:
    loaded = []
    for name in ("one", "two"):
        helpers = f"WHO = '{name}'\ndef prefix():\n    return WHO\n"
        # What a function imports in a worker is the worker's own affair: the same in both packages.
        package = write(tmp_path / name, flow=FLOW, helpers=helpers, late=f"END = '{name}'", lazily="SUFFIX = '-'")
        loaded.append(Transformation.load(spec(package), spark))
    assert [payloads(transformation) for transformation in loaded] == [[b"one1-one"], [b"two1-two"]]
    assert [payloads(transformation) for transformation in loaded] == [[b"one1-one"], [b"two1-two"]]


def test_what_is_warmed_up_has_run_everything_but_a_record(spark: SparkSession, tmp_path: Path) -> None:
    simple = "def transform(inputs, context):\n    return inputs['src'].select('payload')\n"
    package = write(tmp_path / "simple", flow=simple)
    transformation = Transformation.load(spec(package), spark)
    transformation.warm_up()
    assert payloads(transformation) == [b"1"]
    large = pa.concat_tables([RECORDS] * 30_000)
    assert sum(batch.num_rows for batch in transformation.run_tables({"src": large})["out"]) == 30_000
    assert transformation._plans._made == 2, "the rounds found the plans that were made for them"


def test_loading_leaves_imports_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    package = write(
        tmp_path / "p", flow=FLOW, helpers="def prefix():\n    return ''\n", late="END = ''", lazily="SUFFIX = ''"
    )
    payloads(Transformation.load(spec(package), spark))
    assert sys.path == path
    assert not {"flow", "helpers", "late", "lazily"} & (set(sys.modules) - modules)


@pytest.fixture
def hdfs_by_default(spark: SparkSession) -> Iterator[None]:
    """What HADOOP_CONF_DIR does: a path without a scheme is one of the cluster's file system."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://localhost:1")
    yield
    hadoop.set("fs.defaultFS", before)


@pytest.mark.usefixtures("hdfs_by_default")
def test_a_static_table_is_read_from_the_package_and_joined(spark: SparkSession, tmp_path: Path) -> None:
    text = """
def transform(inputs, context):
    names = context.spark.read.csv(context.path("tables/names.csv"), header=True)
    src = inputs["src"].withColumn("id", inputs["src"].payload.cast("string"))
    return src.join(names, "id", "left").selectExpr("name AS payload")
"""
    package = write(tmp_path / "a package", flow=text)
    (package / "tables").mkdir()
    (package / "tables" / "names.csv").write_text("id,name\n1,one\n2,two\n")
    transformation = Transformation.load(spec(package), spark)
    assert "BroadcastHashJoin" in transformation.check().operators
    assert [payloads(transformation) for _ in range(3)] == [[b"one"]] * 3


@pytest.mark.parametrize(
    ("text", "function", "said"),
    [
        ("", "flwo:transform", "there is no module 'flwo'"),
        ("", "flow.deep:transform", "there is no module 'flow.deep'"),
        ("def run(): ...", "flow:transform", "no function 'transform' .it has run."),
        ("import no_such_library", "flow:transform", "No module named 'no_such_library'"),
        ("limit = 1 / 0", "flow:transform", r"flow.py., line 1.*\n.*limit = 1 / 0(.|\n)*ZeroDivisionError"),
        ("def transform(:", "flow:transform", "SyntaxError"),
    ],
)
def test_a_package_that_does_not_import_is_refused(
    spark: SparkSession, tmp_path: Path, text: str, function: str, said: str
) -> None:
    package = write(tmp_path / "p", flow=text)
    with pytest.raises(PackageInvalid, match=said) as refused:
        Transformation.load(spec(package, function), spark)
    assert "importlib" not in str(refused.value)


def test_a_package_that_does_not_exist_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PackageInvalid, match="is not a directory"):
        Transformation.load(spec(tmp_path / "gone"), spark)
