"""Whether a transformation fits the state that is kept, found out before anything is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.errors import CheckpointMismatch, DataflowBusy
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.stateful.query_log import QueryDirectory
from scribengin.spark.stateful.stored import TIMERS, StoredState
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin_registry.contract import Registry
from tests.integration.processors import BY_FRAME, transforming
from tests.integration.state_flow import FAR, StateFlow, drain, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = "SELECT window.start AS start, who, count(*) AS n FROM src GROUP BY window(at, '10 seconds'), who"
UNITED = "(SELECT * FROM src UNION ALL SELECT * FROM other)"
TURNED = "(SELECT * FROM other UNION ALL SELECT * FROM src)"
TWICE = "(SELECT * FROM src UNION ALL SELECT * FROM other UNION ALL SELECT * FROM src)"
FIT = (COUNTS, COUNTS.replace("count(*)", "count(*) + 1"), COUNTS.replace("who,", "upper(who) AS w,"))
DO_NOT = {
    COUNTS.replace("who", "n % 7"): r"task-0 has kept for aggregate does not .*\(\[STATE_STORE_KEY_SCHEMA",
    COUNTS.replace(
        "count(*)", "count(*) + max(n)"
    ): r"task-0 has kept for aggregate does not .*\[STATE_STORE_VALUE_SCHEMA",
    COUNTS.replace(
        "window", "session_window"
    ): "has the state of aggregate, and the transformation keeps that of session",
    "SELECT who, n FROM src": "has the state of aggregate, and the transformation keeps that of none",
}


def test_what_does_not_fit_is_refused_by_the_operators_name_and_nothing_is_changed(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS)
    flow.append("in/0", [(10, "a", 1), (11, "b", 2), (12, "a", 3)])
    with flow.owner() as owner:
        owner.take_over()
        drain(owner)
        query = flow.query_directory
        before = _files(query)
        for sql in FIT:
            check(flow, sql, query)
        for sql, told in DO_NOT.items():
            with pytest.raises(CheckpointMismatch, match=told):
                check(flow, sql, query)
        assert _files(query) == before
        flow.append("in/0", [(13, "a", 4)])
        drain(owner)
        owner.release()


@pytest.mark.full
def test_of_several_operators_the_one_is_named_that_does_not_fit(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    windows = (
        "SELECT window(src.at, '10 seconds').start AS start, count(*) AS n FROM src JOIN other ON src.who = other.who "
        "AND other.at BETWEEN src.at AND src.at + INTERVAL 10 SECONDS GROUP BY window(src.at, '10 seconds')"
    )
    flow = StateFlow(memory_registry, spark, tmp_path, sql=windows)
    flow.append("in/0", [(10, "a", 1)])
    flow.append("other", [(12, "a", 7)])
    flow.run_to_the_end()
    query = flow.query_directory
    check(flow, windows, query)
    with pytest.raises(CheckpointMismatch, match="has kept for join does not fit"):
        check(flow, windows.replace("src.who = other.who", "src.n = other.n"), query)
    with pytest.raises(CheckpointMismatch, match="has kept for aggregate does not fit"):
        check(flow, windows.replace("count(*)", "max(other.n)"), query)


def test_a_processor_is_compared_variable_by_variable_and_read(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """One below which there are windows: neither is found wanting for the other."""
    grouped = f"{BY_FRAME}.groupBy(F.window('at', '1 minute'), 'who').agg(F.sum('many').alias('many'))"
    does = grouped.replace('"eventTime"', '"eventTime", eventTimeColumnName="at"')
    text = transforming(does).replace("upto - 10, upto", "upto, upto")
    (tmp_path / "frames.py").write_text(text)
    state = {"unbounded": ["processor"]}
    flow = StateFlow(memory_registry, spark, tmp_path, transformation="frames:transform", state=state)
    flow.append("in/0", [(10, "a", 1), (11, "b", 2), (12, "a", 3)])
    flow.append("in/1", [(31, "a", 4)])
    flow.run_to_the_end()
    query = flow.query_directory
    before = _files(query)
    fit = (
        text,
        text.replace("kept = handle", "new = handle.getValueState('new', 'n INT')\n        self.kept = handle"),
    )
    for changed in fit:
        check_function(flow, tmp_path / "frames.py", changed)
    do_not = {
        text.replace('"many BIGINT")', '"many STRING")'): r"kept for processor does not .*\[STATE_STORE_VALUE_SCHEMA",
        text.replace(
            'getListState("rows", ', 'getValueState("rows", '
        ): "for processor does not .*change rows to Value",
        text.replace("F.sum(", "F.max_by('at', "): r"kept for aggregate does not .*\[STATE_STORE_VALUE_SCHEMA",
    }
    for changed, told in do_not.items():
        with pytest.raises(CheckpointMismatch, match=told):
            check_function(flow, tmp_path / "frames.py", changed)
    assert _files(query) == before
    stored = StoredState(directory_of(query), spark)
    kept = {(store.operator, store.name): store for store in stored.stores()}
    assert set(kept) == {("aggregate", "default"), *(("processor", name) for name in ("kept", "rows", TIMERS))}
    of_a = {name: stored.rows(kept["processor", name], {"who": "a"}, 9) for name in ("kept", "rows", TIMERS)}
    assert {row.key for rows in of_a.values() for row in rows} == {'{"who":"a"}'}
    assert {name: [row.value for row in rows] for name, rows in of_a.items()} == {
        "kept": ['{"many":1}'],
        "rows": ['{"second":31,"n":4}'],
        TIMERS: ['{"expiration_timestamp_ms":40000}'],
    }
    elsewhere = query.rename(tmp_path / "moved")
    moved = StoredState(directory_of(elsewhere), spark)  # as by an owner who came no further than that
    assert {(store.operator, store.name) for store in moved.stores()} == set(kept)
    for state in (moved, stored):
        with pytest.raises(DataflowBusy, match="its task is being taken over, or whoever") as refused:
            state.rows(kept["processor", "kept"], {"who": "a"}, 9)
        assert "\n" not in str(refused.value)
    elsewhere.rename(query)
    for schema in query.glob(f"state/{kept['processor', 'kept'].number}/_stateSchema/*/*"):
        schema.unlink()
    with pytest.raises(CheckpointMismatch, match=f"FileNotFoundException: .*{query}/.*_stateSchema/.*: ask again, and"):
        stored.rows(kept["processor", "kept"], {"who": "a"}, 9)


def test_where_nothing_is_kept_yet_everything_fits(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    check(StateFlow(memory_registry, spark, tmp_path, sql=COUNTS), COUNTS, tmp_path / "none")


@pytest.mark.parametrize(
    ("other", "read"), [(TURNED, "other, src"), pytest.param(TWICE, "src, other, src", marks=pytest.mark.full)]
)
def test_sources_in_another_order_are_refused_before_anything_is_planned(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, other: str, read: str
) -> None:
    """Spark has no names for them: each would go on where the other one was. A batch that is planned so cannot run, and
    the transformation from before could not run it either."""
    counts = COUNTS.replace("FROM src", f"FROM {UNITED}")
    flow = StateFlow(memory_registry, spark, tmp_path, sql=counts, reads=["src", "other"])
    flow.append("in/0", [(10, "a", 1)])
    flow.append("other", [(11, "a", 1)])
    flow.run_to_the_end()
    flow.append("in/0", [(12, "a", 1), (FAR, "a", 1)])
    flow.append("other", [(13, "a", 1), (FAR, "a", 1)])
    told = "has read src, other, in this order, and the transformation reads {}: "
    sql = counts.replace(UNITED, other)
    with pytest.raises(CheckpointMismatch, match=f"task-0 {told.format(read)}"):
        check(flow, sql, flow.query_directory)
    flow.config = flow.config.model_copy(update={"sql": sql})
    with flow.owner() as owner, pytest.raises(CheckpointMismatch, match=f"query {told.format(read)}"):
        own_to_the_end(owner)
    flow.config = flow.config.model_copy(update={"sql": counts})
    flow.run_to_the_end()
    assert [row["n"] for row in flow.delivered()] == [4]


def check(flow: StateFlow, sql: str, query: Path) -> None:
    flow.config = flow.config.model_copy(update={"sql": sql})
    with flow.open() as resources:
        spec = resources.transformation_spec()
        StatefulTransformation.load(spec, flow.spark).check({"task-0": directory_of(query)})


def check_function(flow: StateFlow, module: Path, text: str) -> None:
    """The same of a function whose module has become that text."""
    before = module.read_text()
    module.write_text(text)
    try:
        with flow.open() as resources:
            spec = resources.transformation_spec()
            StatefulTransformation.load(spec, flow.spark).check({"task-0": directory_of(flow.query_directory)})
    finally:
        module.write_text(before)


def _files(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*")}


def directory_of(query: Path) -> QueryDirectory:
    return QueryDirectory(LocalFileSystem(), str(query))
