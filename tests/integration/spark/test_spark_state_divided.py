"""Several tasks with state: which transformations have all that they see together in one of them, and which records
stand where their keys belong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA, Division
from scribengin.errors import ConfigInvalid
from scribengin.log.clients import hash_partitioner
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.spark.transform.spec import InputSpec, Misplaced, OutputSpec, StateSpec, WatermarkSpec
from tests.integration.processors import BY_FRAME, BY_RECORD, WINDOWS, transforming
from tests.integration.spark_samples import records, spec

pytestmark = pytest.mark.spark

SCHEMA = "at TIMESTAMP, who STRING, id INT, n INT"
HOURS = "window(at, '1 hour')"
SOON = "r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR"
BEGUN = """
class Begun(Windows):
    def handleInitialState(self, key, initialState, timerValues):
        pass


def BEGIN(inputs):
    return inputs["src"].sparkSession.createDataFrame([("a", 1)], "who STRING, n INT").groupBy("who")


"""
NEEDS = r"{} needs records that are in several tasks, among which they are divided by {}: "


def source(name: str, *columns: str, schema: str = SCHEMA) -> InputSpec:
    return InputSpec(name, RECORD_SCHEMA, "json", schema, division=Division(4, columns))


def loaded(
    spark: SparkSession, sql: str, *inputs: InputSpec, beats: bool = False, tasks: int = 2
) -> StatefulTransformation:
    made = spec(sql={"out": sql}, inputs=inputs, outputs=[OutputSpec("out", "json")])
    watermarks = {one.name: WatermarkSpec("at", 1, beats=beats) for one in inputs if one.format == "json"}
    return StatefulTransformation.load(replace(made, state=StateSpec(2, 64, watermarks, tasks=tasks)), spark)


def operators(spark: SparkSession, sql: str, *inputs: InputSpec, beats: bool = False) -> tuple[str, ...]:
    return loaded(spark, sql, *inputs, beats=beats).check().operators


@pytest.mark.parametrize(
    ("sql", "keeping"),
    [
        (f"SELECT who, count(*) AS many FROM src GROUP BY {HOURS}, who, id", ["aggregate"]),
        (f"SELECT w, id, n FROM (SELECT who AS w, id, max(n) AS n FROM src GROUP BY {HOURS}, 1, id)", ["aggregate"]),
        ("SELECT max(n) AS n FROM src GROUP BY session_window(at, '1 hour'), who, id", ["session"]),
        (f"SELECT l.n FROM src l LEFT JOIN src r ON l.who = r.who AND l.id = r.id AND {SOON}", ["join"]),
        (
            "SELECT who, id, count(*) AS many FROM (SELECT * FROM src WHERE n > 1 UNION ALL SELECT * FROM src "
            f"WHERE n < 0) GROUP BY {HOURS}, who, id",
            ["aggregate"],
        ),
        (f"SELECT l.n FROM src l JOIN src r ON l.who = r.who AND l.id = r.id AND {SOON}", ["join"]),  # read once
        ("SELECT n + 1 AS n FROM src", []),
    ],
)
def test_what_is_kept_by_the_key_by_which_sources_are_divided_may_have_several_tasks(
    spark: SparkSession, sql: str, keeping: list[str]
) -> None:
    assert list(operators(spark, sql, source("src", "who", "id"))) == keeping


def test_a_source_that_may_be_silent_is_divided_as_any_other(spark: SparkSession) -> None:
    sql = f"SELECT who, count(*) AS many FROM src GROUP BY {HOURS}, who"
    assert operators(spark, sql, source("src", "who"), beats=True) == ("aggregate",)


def test_late_records_of_a_divided_source_have_a_sink(spark: SparkSession) -> None:
    made = loaded(spark, f"SELECT who, count(*) AS many FROM src GROUP BY {HOURS}, who", source("src", "who"))
    assert made.spec.state is not None
    state = replace(made.spec.state, late=OutputSpec("late", "json"))
    checked = StatefulTransformation.load(replace(made.spec, state=state), spark).check()
    assert checked == made.check()
    assert checked.operators == ("aggregate",)


def test_the_same_key_has_another_name_and_width_in_another_source(spark: SparkSession) -> None:
    other = source("other", "code", schema="at TIMESTAMP, code BIGINT, m INT")
    joined = f"FROM src l JOIN other r ON l.id = r.code AND {SOON}"
    assert operators(spark, f"SELECT n, m {joined}", source("src", "id"), other) == ("join",)
    counted = f"SELECT r.code, count(*) AS many {joined} GROUP BY window(r.at, '1 hour'), r.code"
    assert operators(spark, counted, source("src", "id"), other) == ("aggregate", "join")


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        pytest.param(f"SELECT count(*) AS many FROM src GROUP BY {HOURS}", "aggregate", marks=pytest.mark.full),
        (f"SELECT id, count(*) AS many FROM src GROUP BY {HOURS}, id", "aggregate"),
        (f"SELECT count(*) AS many FROM src GROUP BY {HOURS}, lower(who)", "aggregate"),
        (f"SELECT l.n FROM src l JOIN src r ON l.id = r.id AND {SOON}", "join"),
        pytest.param(
            f"SELECT l.n FROM src l JOIN src r ON l.who = cast(r.id AS STRING) AND {SOON}",
            "join",
            marks=pytest.mark.full,
        ),
        (
            # A row without a right side is in the task of its left one, whatever stands for it.
            f"SELECT r.who, count(*) AS many FROM src l LEFT JOIN src r ON l.who = r.who AND {SOON} "
            "GROUP BY window(l.at, '1 hour'), r.who",
            "aggregate",
        ),
        (
            "SELECT who, count(*) AS many FROM (SELECT at, who FROM src UNION ALL SELECT at, cast(id AS STRING) "
            f"FROM src) GROUP BY {HOURS}, who",
            "aggregate",
        ),
        (
            "SELECT x.who, count(*) AS many FROM (SELECT l.at, struct(r.who) AS x FROM src l LEFT JOIN src r ON "
            f"l.who = r.who AND {SOON}) LATERAL VIEW inline(array(x)) y AS who GROUP BY {HOURS}, x.who",
            "aggregate",
        ),
        ("SELECT n FROM src LIMIT 3", "limit"),
    ],
)
def test_what_would_give_a_result_a_task_is_refused_by_the_operators_name(
    spark: SparkSession, sql: str, name: str
) -> None:
    with pytest.raises(ConfigInvalid, match=NEEDS.format(name, "who")) as refused:
        operators(spark, sql, source("src", "who"))
    assert "\n" not in str(refused.value)


def test_sources_whose_keys_are_no_keys_or_of_two_kinds_are_refused(spark: SparkSession) -> None:
    joined = f"SELECT l.n FROM src l JOIN other r ON l.who = r.who AND {SOON}"
    with pytest.raises(ConfigInvalid, match=r"sources.src.partition_by is text, and sources.other.partition_by whole"):
        operators(spark, joined, source("src", "who"), source("other", "id"))
    alone = loaded(spark, joined, source("src", "who"), source("other", "id"), tasks=1)
    assert alone.check().operators == ("join",)
    with pytest.raises(ConfigInvalid, match=r"sources.src.partition_by names 'whom', which the source has not"):
        operators(spark, joined, source("src", "whom"), source("other", "who"))
    loose = source("src", "who", schema="at TIMESTAMP, who STRING COLLATE UTF8_LCASE, n INT")
    with pytest.raises(ConfigInvalid, match="'who' is string collate UTF8_LCASE, by which texts are equal"):
        operators(spark, f"SELECT who, max(n) AS n FROM src GROUP BY {HOURS}, who", loose)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (f"SELECT id, who, count(*) AS many FROM src GROUP BY {HOURS}, who, id", ("who", "id")),
        pytest.param(
            f"SELECT who AS w, cast(id AS BIGINT) AS i, max(n) AS n FROM src GROUP BY {HOURS}, who, id",
            ("w", "i"),
            marks=pytest.mark.full,
        ),
        (f"SELECT l.* FROM src l LEFT JOIN src r ON l.who = r.who AND l.id = r.id AND {SOON}", ("who", "id")),
        ("SELECT who, id, n FROM src UNION ALL SELECT who, id, -n FROM src", ("who", "id")),
    ],
)
def test_several_tasks_share_a_sink_that_is_divided_by_the_key_of_the_sources(
    spark: SparkSession, sql: str, columns: tuple[str, ...]
) -> None:
    assert sharing(spark, sql, *columns).check().outputs


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT who, id, n FROM src", ("id", "who")),
        pytest.param("SELECT who, id, n FROM src", ("who", "n"), marks=pytest.mark.full),
        ("SELECT upper(who) AS who, id, n FROM src", ("who", "id")),
        pytest.param("SELECT who, cast(id AS STRING) AS id FROM src", ("who", "id"), marks=pytest.mark.full),
        pytest.param("SELECT who, id FROM src UNION ALL SELECT who, n FROM src", ("who", "id"), marks=pytest.mark.full),
        (f"SELECT r.who, r.id FROM src l LEFT JOIN src r ON l.who = r.who AND l.id = r.id AND {SOON}", ("who", "id")),
    ],
)
def test_a_sink_that_is_divided_by_anything_else_has_one_task(
    spark: SparkSession, sql: str, columns: tuple[str, ...]
) -> None:
    by = ", ".join(columns)
    said = rf"sinks.out.partition_by: {by} of the output is not the key by which sources are divided .* \(who, id\)"
    with pytest.raises(ConfigInvalid, match=said) as refused:
        sharing(spark, sql, *columns).check()
    assert "\n" not in str(refused.value)
    assert sharing(spark, sql, *columns, tasks=1).check().outputs


def sharing(spark: SparkSession, sql: str, *columns: str, tasks: int = 2) -> StatefulTransformation:
    outputs = [OutputSpec("out", "json", division=Division(8, columns))]
    made = spec(sql={"out": sql}, inputs=[source("src", "who", "id")], outputs=outputs)
    state = StateSpec(2, 64, {"src": WatermarkSpec("at", 1)}, tasks=tasks)
    return StatefulTransformation.load(replace(made, state=state), spark)


@pytest.mark.parametrize(
    ("columns", "key"), [(("who",), "a{}"), (("id", "who"), "{}\x1fa{}"), (("_key",), "k{}"), (("id",), "{}")]
)
def test_the_first_record_in_a_wrong_stream_is_found(spark: SparkSession, columns: tuple[str, ...], key: str) -> None:
    """As the sink that writes them divides: what cannot be decoded has no place."""
    look = loaded(spark, "SELECT n FROM src", source("src", *columns))
    rows = records([b"nonsense" if n == 5 else f'{{"who": "a{n}", "id": {n}}}'.encode() for n in range(40)])
    keys = [key.format(*[n] * key.count("{}")) for n in range(40)]
    belongs = hash_partitioner(pa.array([one.encode() for one in keys], pa.binary()), 4).to_pylist()
    right = {number: rows.filter(pa.array([stream == number for stream in belongs])) for number in range(4)}
    assert look.misplaced("src", right) is None
    wrong = next(row for row, stream in enumerate(belongs) if stream != 3 and row != 5)
    found = Misplaced(3, wrong, keys[wrong], belongs[wrong])
    assert look.misplaced("src", {2: right[2], 3: rows, 1: right[1]}) == found


def test_records_as_they_are_have_keys_too(spark: SparkSession) -> None:
    raw = InputSpec("src", RECORD_SCHEMA, division=Division(4, ("key",)))
    look = loaded(spark, "SELECT payload FROM src", raw)
    joined = "SELECT l.payload FROM src l JOIN src r ON l.{0} = r.{0}"
    with pytest.raises(ConfigInvalid, match="join needs records that are in several tasks"):
        operators(spark, joined.format("payload"), raw)
    with pytest.raises(ConfigInvalid, match="keeps its records for ever"):
        operators(spark, joined.format("key"), raw)
    [stream] = hash_partitioner(pa.array([b"k0"], pa.binary()), 4).to_pylist()
    assert look.misplaced("src", {stream: records([b"x"])}) is None
    assert look.misplaced("src", {stream + 1: records([b"x"])}) == Misplaced(stream + 1, 0, "k0", stream)


def test_a_processor_may_have_several_tasks_where_its_key_has_that_of_the_streams(
    spark: SparkSession, package: Callable[..., Path]
) -> None:
    def keeping(module: str, does: str, module_text: str = WINDOWS) -> tuple[str, ...]:
        src = source("src", "who")
        where = package(**{module: transforming(does, module_text)})
        made = spec(f"{module}:transform", package=where, inputs=[src], outputs=[OutputSpec("out", "json")])
        state = StateSpec(2, 64, {"src": WatermarkSpec("at", 1)}, ("processor",), tasks=2)
        return StatefulTransformation.load(replace(made, state=state), spark).check().operators

    assert keeping("by_who", BY_RECORD) == ("processor",)
    begun = BY_RECORD.replace("Windows()", "Begun()").replace('"eventTime"', '"eventTime", initialState=BEGIN(inputs)')
    with pytest.raises(ConfigInvalid, match="processor begins with an initial state, which each of several tasks"):
        keeping("begun", begun, module_text=WINDOWS + BEGUN)
    with pytest.raises(ConfigInvalid, match="processor needs records that are in several tasks"):
        keeping("by_n", BY_RECORD.replace('groupBy("who")', 'groupBy("n")'))
    with_time = BY_FRAME.replace('"eventTime"', '"eventTime", eventTimeColumnName="at"')
    with pytest.raises(ConfigInvalid, match="aggregate needs records that are in several tasks"):
        keeping("counted", f"{with_time}.groupBy(F.window('at', '1 minute'), 'who').count()")  # its `who` is made anew
