"""What a transformation with state is told before anything starts: what keeps state, and what cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RECORD_SCHEMA, SIDE_COLUMNS
from scribengin.connectors.kafka.sink.records import SIDE_COLUMNS as OF_TOPICS
from scribengin.errors import CheckpointMismatch, ConfigInvalid, PackageInvalid
from scribengin.spark.session.session import scratch_directory
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.spark.transform.encoding import late_records
from scribengin.spark.transform.input import WATERMARK
from scribengin.spark.transform.spec import (
    CheckedPlan,
    InputSpec,
    OutputSpec,
    StateSpec,
    TransformationSpec,
    WatermarkSpec,
)
from tests.integration.processors import BY_FRAME, BY_RECORD, CLOCK, transforming
from tests.integration.spark_samples import spec

pytestmark = pytest.mark.spark
SOURCE = InputSpec("src", RECORD_SCHEMA, "json", "at TIMESTAMP, who STRING, n INT")


def stateful(column: str | None = "at", unbounded: tuple[str, ...] = (), **given: object) -> TransformationSpec:
    watermarks = {} if column is None else {"src": WatermarkSpec(column, 1.5)}
    made = spec(inputs=[SOURCE], outputs=[OutputSpec("out", "json")], **given)  # type: ignore[arg-type]
    return replace(made, state=StateSpec(2, 64, watermarks, unbounded))


def checked(spark: SparkSession, sql: str, column: str | None = "at", unbounded: tuple[str, ...] = ()) -> CheckedPlan:
    return StatefulTransformation.load(stateful(column, unbounded, sql={"out": sql}), spark).check()


def test_what_keeps_state_is_named(spark: SparkSession) -> None:
    plan = checked(spark, "SELECT window.start AS start, count(*) AS many FROM src GROUP BY window(at, '10 seconds')")
    assert plan.operators == ("aggregate",)
    [kept] = plan.state
    assert (kept.key, kept.spark) == (("window",), "stateStoreSave")
    assert kept.bound == "the watermark of window: a group is given out when it has passed"
    assert kept.partitions == 2
    assert "spark.sql.shuffle.partitions" not in kept.pinned, "it may be changed"
    assert kept.pinned["spark.sql.streaming.aggregation.stateFormatVersion"] == "2"
    assert plan.outputs == {"out": "start TIMESTAMP,many BIGINT"}
    assert checked(spark, "SELECT n + 1 AS n FROM src").state == ()


def test_what_is_only_looked_at_or_cannot_start_leaves_no_directory(spark: SparkSession, tmp_path: Path) -> None:
    before = sorted(scratch_directory().iterdir())
    transformation = StatefulTransformation.load(stateful(sql={"out": "SELECT n FROM src"}), spark)
    transformation.check()
    with pytest.raises(CheckpointMismatch, match="has read other, in this order"):
        transformation.start(f"file:{tmp_path}/query", {}, read=["other"])
    assert sorted(scratch_directory().iterdir()) == before


def test_state_is_on_disk_no_failed_batch_touches_it_and_its_memory_is_bounded(
    spark: SparkSession, package: Callable[..., Path]
) -> None:
    """By the settings of its query. Spark's own are otherwise: all state in the heap, and files that are replaced."""
    where = package(
        settings_case="""
        KEYS = (
            "stateStore.providerClass",
            "stateStore.rocksdb.changelogCheckpointing.enabled",
            "stateStore.checkpointFormatVersion",
            "stateStore.rocksdb.boundedMemoryUsage",
            "stateStore.rocksdb.maxMemoryUsageMB",
            "multipleWatermarkPolicy",
        )

        def transform(inputs, context):
            get = inputs["src"].sparkSession.conf.get
            raise ValueError(" ".join(get(f"spark.sql.streaming.{key}") for key in KEYS))
        """
    )
    with pytest.raises(PackageInvalid, match=r"RocksDBStateStoreProvider true 2 true 64 min$"):
        StatefulTransformation.load(stateful(function="settings_case:transform", package=where), spark).check()


def late_to(output: OutputSpec, **given: object) -> TransformationSpec:
    made = stateful(**given)  # type: ignore[arg-type]
    assert made.state is not None
    return replace(made, state=replace(made.state, late=output))


def test_late_records_change_nothing_of_what_is_kept(spark: SparkSession) -> None:
    sql = {"out": "SELECT window.start AS start, count(*) AS many FROM src GROUP BY window(at, '10 seconds')"}
    kept = StatefulTransformation.load(stateful(sql=sql), spark).check()
    for output in (OutputSpec("late"), OutputSpec("late", "json"), OutputSpec("late", "columns")):
        made = late_to(output, sql=sql)
        assert StatefulTransformation.load(made, spark).check() == kept
    assert made.state is not None
    silent = replace(made.state, watermarks={"src": WatermarkSpec("at", 1.5, beats=True)})
    assert StatefulTransformation.load(replace(made, state=silent), spark).check() == kept


def test_what_cannot_be_late_is_refused(spark: SparkSession) -> None:
    columns = InputSpec("src", pa.schema([("at", pa.timestamp("us", "UTC"))]))
    taken = InputSpec("src", RECORD_SCHEMA, "json", "at TIMESTAMP, late_source STRING")
    untimely = InputSpec("src", RECORD_SCHEMA, "json", "at BIGINT")
    sql = {"out": "SELECT at FROM src"}
    for source, output, why in (
        (columns, OutputSpec("late"), r"source 'src' are columns [(]at[)], and sink 'late' takes payloads: set format"),
        (taken, OutputSpec("late", "json"), "output 'late' has two columns named 'late_source'"),
        (untimely, OutputSpec("late"), "^state.watermarks.src: column 'at' is bigint, and state.late goes by a timest"),
    ):
        made = replace(late_to(output, sql=sql), inputs={"src": source})
        with pytest.raises(ConfigInvalid, match=why) as refusal:
            StatefulTransformation.load(made, spark).check()
        assert "\n" not in str(refusal.value)
    unread = replace(late_to(OutputSpec("late"), sql={"out": "SELECT at FROM x"}), inputs={"src": SOURCE})
    unread = replace(unread, inputs={**unread.inputs, "x": replace(SOURCE, name="x")})
    with pytest.raises(ConfigInvalid, match="source 'src' is read by no output"):
        StatefulTransformation.load(unread, spark).check()
    written = late_to(OutputSpec("late"), sql={**sql, "late": "SELECT n FROM src"})
    with pytest.raises(ConfigInvalid, match=r"sql gives 'late', which takes the late records [(]state.late[)]"):
        StatefulTransformation.load(written, spark).check()


def test_late_records_of_several_sources_have_one_type_a_column(spark: SparkSession) -> None:
    sql = {"out": "SELECT at FROM src UNION ALL SELECT at FROM other"}
    watermarks = {name: WatermarkSpec("at", 1.5) for name in ("src", "other")}

    def to_one_sink(ddl: str, output: OutputSpec) -> CheckedPlan:
        made = late_to(output, sql=sql)
        assert made.state is not None
        other = replace(SOURCE, name="other", schema_ddl=ddl)
        inputs, state = {"src": SOURCE, "other": other}, replace(made.state, watermarks=watermarks)
        return StatefulTransformation.load(replace(made, inputs=inputs, state=state), spark).check()

    columns = OutputSpec("late", "columns")
    with pytest.raises(ConfigInvalid, match="column 'N' is int in source 'src' and string in 'other', and one sink"):
        to_one_sink("at TIMESTAMP, N STRING", columns)
    assert to_one_sink("at TIMESTAMP, N INT, more STRING", columns).operators == ()
    assert to_one_sink("at TIMESTAMP, N STRING", OutputSpec("late", "json")).operators == ()


def test_a_late_record_takes_along_what_does_not_depend_on_where_it_was(spark: SparkSession) -> None:
    topic = pa.schema([*RECORD_SCHEMA, *(field for field in OF_TOPICS if field.name != "key")])
    schema = pa.schema([*topic, pa.field(WATERMARK, pa.timestamp("us", "UTC"))])
    at, mark = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
    row = {"payload": b'{"at": "2013-01-01T00:00:00Z"}', "key": b"k", "txid": 7, "partition": 3, "timestamp": at}
    frame = spark.createDataFrame(pa.Table.from_pylist([{**row, "channel": "c", WATERMARK: mark}], schema))
    source = replace(SOURCE, schema=topic, schema_ddl="at TIMESTAMP")
    for beside, carried in ((SIDE_COLUMNS, ["key", "channel"]), (OF_TOPICS, ["key", "headers"])):
        for form in ("raw", "json"):
            late = late_records(frame, source, "at", OutputSpec("late", form, beside))
            assert sorted(late.columns) == sorted(["payload", *carried])
    document = json.loads(late.collect()[0]["payload"])
    assert (document["_txid"], document["_partition"], document["_channel"]) == (7, 3, "c")


@pytest.mark.parametrize(
    ("column", "sql", "keeping"),
    [
        (
            "AT",
            "WITH x AS (SELECT at, n FROM src) SELECT n FROM x WHERE n > 1 UNION ALL SELECT n FROM x WHERE n > 2",
            (),
        ),
        (
            "`at`",
            "SELECT l.n FROM src l JOIN src r ON l.who = r.who AND r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR",
            ("join",),
        ),
    ],
)
def test_a_source_that_may_be_silent_is_read_as_any_other(
    spark: SparkSession, column: str, sql: str, keeping: tuple[str, ...]
) -> None:
    asked = stateful(column, sql={"out": sql})
    assert asked.state is not None
    state = replace(asked.state, watermarks={"src": WatermarkSpec(column, 1.5, beats=True)})
    assert StatefulTransformation.load(replace(asked, state=state), spark).check().operators == keeping


@pytest.mark.parametrize("beats", [True, False])
def test_what_is_random_is_refused_beside_beats_too(spark: SparkSession, beats: bool) -> None:
    asked = stateful(sql={"out": "SELECT n FROM src WHERE rand() < 0.5"})
    assert asked.state is not None
    state = replace(asked.state, watermarks={"src": WatermarkSpec("at", 1.5, beats=beats)})
    with pytest.raises(ConfigInvalid, match="uses something random"):
        StatefulTransformation.load(replace(asked, state=state), spark).check()


def test_a_source_that_no_output_reads_is_refused(spark: SparkSession) -> None:
    asked = stateful(sql={"out": "SELECT n FROM src"})
    other = {**asked.inputs, "other": replace(SOURCE, name="other")}
    with pytest.raises(ConfigInvalid, match="source 'other' is read by no output"):
        StatefulTransformation.load(replace(asked, inputs=other), spark).check()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT who, count(*) AS many FROM src GROUP BY who", "Instead: group by window"),
        ("SELECT DISTINCT who FROM src", "Instead: group by window"),
        (
            "SELECT window.start, count(DISTINCT n) AS many FROM src GROUP BY window(at, '1 hour')",
            "Instead: .* approx_count_distinct",
        ),
        ("SELECT n, row_number() OVER (PARTITION BY who ORDER BY at) AS place FROM src", "Instead: take max_by"),
        ("SELECT n FROM src ORDER BY n", "Instead: leave the order out"),
        ("SELECT n FROM src LIMIT 3 OFFSET 2", "Instead: leave it out"),
        ("SELECT n FROM src INTERSECT SELECT n FROM src", "Instead: join the streams"),
        ("SELECT l.n FROM src l LEFT JOIN src r ON l.who = r.who", "Instead: .* a time range"),
        (
            "SELECT l.n FROM src l LEFT ANTI JOIN src r ON l.who = r.who AND r.at = l.at",
            "Instead: .* a left join",
        ),
        ("SELECT r.n FROM (VALUES ('a')) l(who) LEFT JOIN src r ON l.who = r.who", "Instead: .* an inner join"),
        ("SELECT n FROM src EXCEPT SELECT n FROM src", "Instead: join the streams"),
        ("SELECT n FROM src WHERE who IN (SELECT who FROM src)", "Instead: .* a LEFT SEMI JOIN"),
        ("SELECT n FROM src UNION ALL SELECT 1 AS n", "Instead: write these rows to a log"),
        ("SELECT n FROM src TABLESAMPLE (10 PERCENT)", "Instead: .* a hash of the record"),
        (
            "SELECT n FROM src FULL JOIN (VALUES ('a')) r(w) ON r.w = who",
            "Instead: .* the stream on the left",
        ),
        (
            "SELECT count(*) AS many FROM src GROUP BY ROLLUP (window(at, '1 hour'), who)",
            "groups without a time, .* Instead: let each of its sets have the window",
        ),
        ("SELECT rand() AS n FROM src", "uses something random"),
        ("SELECT 1 AS n", "reads none of the sources"),
        ("SELECT nope FROM src", "UNRESOLVED_COLUMN"),
    ],
)
def test_what_cannot_run_as_a_stream_is_refused_in_one_line(spark: SparkSession, sql: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said) as refused:
        checked(spark, sql)
    assert "'out'" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT l.n FROM src l JOIN src r ON r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR",
            "Instead: give the condition something that is equal on both sides",
        ),
        (
            "SELECT session_window.start FROM src GROUP BY session_window(at, '10 seconds')",
            "Instead: group by a column beside the session",
        ),
    ],
)
def test_what_spark_refuses_when_it_plans_a_batch_is_a_mistake_of_the_transformation(
    spark: SparkSession, sql: str, said: str
) -> None:
    """It was taken for Spark's own trouble."""
    with pytest.raises(ConfigInvalid, match=f"^the transformation of flow cannot be planned: .* {said}") as refused:
        checked(spark, sql)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        ('src.groupBy("who").applyInPandas(some, "n INT")', "sees the records of one batch .* Instead: .*InPandas"),
        ('src.groupBy("who").applyInArrow(some, "n INT")', "sees the records of one batch"),
        (
            'src.groupBy("who").cogroup(src.groupBy("who")).applyInPandas(both, "n INT")',
            "sees the records of one batch",
        ),
        ('src.groupBy(F.window("at", "1 hour")).agg(mean("n").alias("n"))', "Instead: .* collect_list"),
        ('src.groupBy("who").pivot("n").count()', "Instead: take an aggregate for each column"),
        ("src if src.isEmpty() else src", "Instead: return what is to be done"),
        ('src.write.format("noop").save()', "Instead: return what is to be done"),
    ],
)
def test_what_a_function_cannot_do_to_a_stream_is_refused_with_what_it_can(
    spark: SparkSession, package: Callable[..., Path], returns: str, said: str
) -> None:
    where = package(
        streamed=f"""
        from pyspark.sql import functions as F

        def some(frame):
            return frame

        def both(left, right):
            return left

        @F.pandas_udf("double", F.PandasUDFType.GROUPED_AGG)
        def mean(column):
            return column.mean()

        def transform(inputs, context):
            src = inputs["src"]
            return {returns}
        """
    )
    with pytest.raises((ConfigInvalid, PackageInvalid), match=f"(?s){said}"):
        StatefulTransformation.load(stateful(function="streamed:transform", package=where), spark).check()


def test_a_key_that_is_not_compared_by_its_bytes_is_refused_with_one_that_is(spark: SparkSession) -> None:
    with pytest.raises(ConfigInvalid, match=r"Instead: .* lower\(name\) COLLATE UTF8_BINARY$"):
        checked(spark, "SELECT DISTINCT who COLLATE UTF8_LCASE, at FROM src")
    assert checked(spark, "SELECT DISTINCT lower(who) COLLATE UTF8_BINARY AS who, at FROM src").state


JOIN = "SELECT l.n AS n, r.n AS m FROM src l JOIN src r ON l.who = r.who"
RANGE = f"{JOIN} AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS"


@pytest.mark.parametrize(
    ("sql", "column", "names", "bound"),
    [
        (RANGE, "at", ["join"], "the watermark, through the time range of its condition"),
        (f"{JOIN} AND l.at = r.at", "at", ["join"], "the watermark, through its key"),
        (
            "SELECT session_window.start AS start FROM src GROUP BY session_window(at, '10 seconds'), who",
            "at",
            ["session"],
            "the watermark: a session is given out when it has passed its end",
        ),
        (
            "SELECT max(c) AS c FROM "
            "(SELECT window AS w, count(*) AS c FROM src GROUP BY window(at, '10 seconds'), who) "
            "GROUP BY window(window_time(w), '1 minute')",
            "at",
            ["aggregate-1", "aggregate-2"],
            "the watermark of window: a group is given out when it has passed",
        ),
    ],
)
def test_what_bounds_each_operator_is_said(
    spark: SparkSession, sql: str, column: str, names: list[str], bound: str
) -> None:
    plan = checked(spark, sql, column)
    assert [one.name for one in plan.state] == names
    assert {one.bound for one in plan.state} == {bound}


@pytest.mark.parametrize("sql", [JOIN, pytest.param(f"{JOIN} AND r.at > l.at", marks=pytest.mark.full)])
def test_what_grows_for_ever_is_allowed_by_its_name_only(spark: SparkSession, sql: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"join \(who\) keeps its records for ever: .*state.unbounded: \[join\]"):
        checked(spark, sql)
    [kept] = checked(spark, sql, unbounded=("join",)).state
    assert kept.bound is None
    with pytest.raises(ConfigInvalid, match=r"names 'nope', and .* keeps state \(these do: join\)"):
        checked(spark, sql, unbounded=("join", "nope"))


@pytest.mark.parametrize("column", ["nope", "who"])
def test_a_watermark_needs_a_time(spark: SparkSession, column: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"state\.watermarks\.src: .* in SQL, as in FROM src WATERMARK") as refused:
        checked(spark, "SELECT n FROM src", column)
    assert "\n" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


@pytest.mark.parametrize("name", ["event time", "event.time"])
@pytest.mark.parametrize("late", [None, OutputSpec("late", "json")])
def test_the_column_of_a_watermark_may_have_any_name(spark: SparkSession, name: str, late: OutputSpec | None) -> None:
    sql = {"out": f"SELECT window.start AS start, count(*) AS many FROM src GROUP BY window(`{name}`, '10 seconds')"}
    source = replace(SOURCE, schema_ddl=f"`{name}` TIMESTAMP, n INT")
    made = spec(inputs=[source], outputs=[OutputSpec("out", "json")], sql=sql)
    watermarks = {"src": WatermarkSpec(name, 1.5, beats=True)}
    [kept] = (
        StatefulTransformation.load(replace(made, state=StateSpec(2, 64, watermarks, late=late)), spark).check().state
    )
    assert kept.bound is not None


@pytest.mark.parametrize("time", ["day.at", "timestamp_seconds(n)"])
def test_a_time_that_is_no_column_is_made_one_in_sql(spark: SparkSession, time: str) -> None:
    """As what is refused for it says."""
    source = replace(SOURCE, schema_ddl="day STRUCT<at: TIMESTAMP>, n INT")
    marked = f"src WATERMARK {time} AS at DELAY OF INTERVAL 1 MINUTE"
    sql = {"out": f"SELECT window.start AS start, count(*) AS many FROM {marked} GROUP BY window(at, '10 seconds')"}
    made = spec(inputs=[source], outputs=[OutputSpec("out", "json")], sql=sql)
    [kept] = StatefulTransformation.load(replace(made, state=StateSpec(2, 64, {})), spark).check().state
    assert kept.bound is not None


def processing(spark: SparkSession, package: Callable[..., Path], column: str | None, text: str) -> CheckedPlan:
    """What is found of a processor that is allowed to grow."""
    asked = stateful(column, ("processor",), function="processor_case:transform", package=package(processor_case=text))
    return StatefulTransformation.load(asked, spark).check()


def test_a_processor_is_bounded_by_a_ttl_of_all_that_it_keeps_or_is_allowed_by_name(
    spark: SparkSession, package: Callable[..., Path]
) -> None:
    where = package(windows=transforming(BY_RECORD), clock=CLOCK)
    windows = stateful(function="windows:transform", package=where)
    with pytest.raises(ConfigInvalid, match=r"processor \(who\) may keep .* for ever: .*unbounded: \[processor\]"):
        StatefulTransformation.load(windows, spark).check()
    [kept] = processing(spark, package, "at", transforming(BY_FRAME)).state
    assert (kept.key, kept.bound, kept.by_clock) == (("who",), None, False)
    assert kept.spark == "transformWithStateInPandasExec"
    assert "spark.sql.streaming.stateStore.encodingFormat" in kept.pinned
    [clock] = StatefulTransformation.load(stateful(function="clock:transform", package=where), spark).check().state
    assert (clock.key, clock.bound, clock.by_clock) == (("who",), "the TTL of seen", True)


@pytest.mark.parametrize(
    ("column", "text", "said"),
    [
        (
            "at",
            transforming(BY_RECORD).replace('"Append"', '"Update"'),
            r"processor \(who\) has the output mode Update",
        ),
        (None, transforming(BY_RECORD), "has the time mode eventTime, and no watermark reaches it"),
        ("at", CLOCK.replace("processingTime", "eventTime"), "gives seen a TTL, which needs the time mode processingT"),
    ],
)
def test_modes_of_a_processor_that_do_not_go_together_are_refused(
    spark: SparkSession, package: Callable[..., Path], column: str | None, text: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid, match=said) as refused:
        processing(spark, package, column, text)
    assert "\n" not in str(refused.value)


def test_what_a_processor_raises_when_it_begins_is_told(spark: SparkSession, package: Callable[..., Path]) -> None:
    text = transforming(BY_RECORD).replace("self.handle = handle", 'raise ValueError("no room")')
    with pytest.raises(PackageInvalid, match=r"(?s)in init.*ValueError: no room$"):
        processing(spark, package, "at", text)


def test_state_of_the_old_kind_is_refused_with_what_to_use_instead(
    spark: SparkSession, package: Callable[..., Path]
) -> None:
    where = package(
        own_state="""
        def transform(inputs, context):
            def counted(key, frames, state):
                yield from frames
            return inputs["src"].groupBy("who").applyInPandasWithState(
                counted, "n INT", "many INT", "append", "NoTimeout"
            )
        """
    )
    with pytest.raises(ConfigInvalid, match=r"applyInPandasWithState, .* use transformWithStateInPandas"):
        StatefulTransformation.load(stateful(function="own_state:transform", package=where), spark).check()
