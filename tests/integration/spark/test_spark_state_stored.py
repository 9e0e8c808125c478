"""State as `scribengin state` reads it: out of a checkpoint, while its query is at work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.errors import ConfigInvalid
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.stateful.query_log import QueryDirectory
from scribengin.spark.stateful.stored import StateStore, StoredState
from scribengin_registry.contract import Registry
from scribengin_tools.rendering.stored_state import chosen_store
from tests.integration.state_flow import StateFlow, drain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = "SELECT window.start AS start, who, count(*) AS n FROM src GROUP BY window(at, '10 seconds'), who"
MEETINGS = (
    "SELECT src.n AS n, other.n AS m FROM src JOIN other ON src.who = other.who "
    "AND other.at BETWEEN src.at AND src.at + INTERVAL 10 SECONDS"
)


def stored(flow: StateFlow) -> StoredState:
    return StoredState(QueryDirectory(LocalFileSystem(), str(flow.query_directory)), flow.spark)


def test_what_is_kept_is_read_while_the_query_goes_on(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS)
    flow.append("in/0", [(10, "a", 1), (11, "b", 2), (12, "a", 3)])
    with flow.owner() as owner:
        owner.take_over()
        drain(owner)
        state = stored(flow)
        [counts] = state.stores()
        assert (counts.operator, counts.name, counts.partitions) == ("aggregate", "default", 2)
        window = '{"start":"1970-01-01T00:00:10.000Z","end":"1970-01-01T00:00:20.000Z"}'
        [row] = state.rows(counts, {"who": "a"}, 10)
        assert (row.key, row.value) == (f'{{"window":{window},"who":"a"}}', '{"count":2}')
        assert len(state.rows(counts, {}, 10)) == 2
        assert len(state.rows(counts, {}, 1)) == 1
        assert state.rows(counts, {"who": "a", "window.start": "1970-01-01 00:00:20"}, 10) == []
        flow.append("in/0", [(13, "a", 4)])
        drain(owner)
        assert [one.value for one in state.rows(counts, {"who": "a"}, 10)] == ['{"count":3}']
        assert state.stores()[0].batch > counts.batch
        with pytest.raises(ConfigInvalid, match="no column 'whom': it has window"):
            state.rows(counts, {"whom": "a"}, 10)
        owner.release()


def test_a_join_has_stores_of_both_sides(memory_registry: Registry, spark: SparkSession, tmp_path: Path) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=MEETINGS)
    flow.append("in/0", [(10, "a", 1)])
    flow.append("other", [(30, "b", 7)])
    flow.run_to_the_end()
    state = stored(flow)
    stores = state.stores()
    assert {one.operator for one in stores} == {"join"}
    kept = [row.value for one in stores if "ToValue" in one.name for row in state.rows(one, {}, 10)]
    assert any('"n":1' in value for value in kept), kept
    assert any('"n":7' in value for value in kept), kept


def test_where_no_batch_is_done_there_is_nothing_and_nothing_is_made(spark: SparkSession, tmp_path: Path) -> None:
    assert StoredState(QueryDirectory(LocalFileSystem(), str(tmp_path / "none")), spark).stores() == []
    assert list(tmp_path.iterdir()) == []


def test_one_store_is_meant_or_those_that_there_are_are_named() -> None:
    left, right = (StateStore("join", side, 2, 1, 0) for side in ("left-rows", "right-rows"))
    counts = StateStore("aggregate", "default", 2, 1, 1)
    stores = [left, right, counts]
    assert chosen_store(stores, "aggregate", None) is counts
    assert chosen_store(stores, "join", "right-rows") is right
    with pytest.raises(ConfigInvalid, match="join has the stores left-rows, right-rows: name one of them with --store"):
        chosen_store(stores, "join", None)
    with pytest.raises(ConfigInvalid, match="has the stores default"):
        chosen_store(stores, "aggregate", "left-rows")
    with pytest.raises(ConfigInvalid, match="no operator 'session': those with state are join, aggregate"):
        chosen_store(stores, "session", None)
