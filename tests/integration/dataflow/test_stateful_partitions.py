"""State that is divided anew by Spark, twice, while windows are open: what comes out equals one computation over all
records, whoever dies, and what is kept is read as before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.errors import CheckpointMismatch, SparkUnavailable
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.stateful.query_log import PARTITIONS, QueryDirectory, QueryLog
from scribengin.spark.stateful.stored import StoredState
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.processors import BY_RECORD, transforming
from tests.integration.state_flow import FAR, Died, Event, StateFlow, at, die, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COUNTS = "SELECT window.start AS at, who, count(*) AS many FROM src GROUP BY window(at, '10 seconds'), who"
EVENTS: list[Event] = [(20 + number // 4, "abcdefg"[number % 7], number) for number in range(36)]
"""Of a window that ends at 30: nothing is given out before all have been read."""
END: list[Event] = [(FAR, "z", 0)]


def windows(events: Sequence[Event]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for second, who, _ in events:
        key = (at(second // 10 * 10), who)
        counts[key] = counts.get(key, 0) + 1
    return counts


def told(delivered: Sequence[dict[str, Any]]) -> dict[tuple[str, str], int]:
    times = [datetime.fromisoformat(one["at"]).astimezone(UTC).isoformat() for one in delivered]
    found = {(time, one["who"]): one["many"] for time, one in zip(times, delivered, strict=True)}
    assert len(found) == len(delivered), "each window once"
    return found


def query(flow: StateFlow) -> QueryDirectory:
    return QueryDirectory(LocalFileSystem(), str(flow.query_directory))


def divided(flow: StateFlow) -> list[int]:
    """The numbers of partitions of its batches that have divided the state."""
    log = QueryLog.read(query(flow))
    return [log.partitions(number) for number in range(log.done + 1) if log.divides(number)]


def kept(flow: StateFlow) -> dict[str, list[tuple[int, str]]]:
    """By store, the partitions of what is kept, and of whom it is: in order, and each as often as it is there."""
    stored = StoredState(query(flow), flow.spark)
    rows = {store.name: stored.rows(store, {}, 1000) for store in stored.stores()}
    return {name: sorted((row.partition, json.loads(row.key)["who"]) for row in of) for name, of in rows.items()}


def refuse_doubles(stores: Mapping[str, Sequence[tuple[int, str]]], partitions: int) -> None:
    """Each key is in one partition of each store, once, and all of its stores have it there."""
    assert stores
    for name, rows in stores.items():
        assert sorted(who for _, who in rows) == list("abcdefg"), name
        assert {partition for partition, _ in rows} <= set(range(partitions)), name
    assert len({tuple(rows) for rows in stores.values()}) == 1, stores


def stores_divided(flow: StateFlow) -> set[int]:
    """In how many partitions stores say that they are."""
    return {store.partitions for store in StoredState(query(flow), flow.spark).stores()}


def check(flow: StateFlow, partitions: int | None) -> None:
    """As `restart` compares what is kept with what is wanted."""
    with flow.open() as resources:
        transformation = StatefulTransformation.load(resources.transformation_spec(), flow.spark)
        transformation.check({"task-0": query(flow)}, partitions)


def dies(flow: StateFlow, stop: str) -> None:
    with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
        own_to_the_end(owner)


def dies_dividing(flow: StateFlow, partitions: int) -> None:
    """An owner dies before Spark is through with dividing the state into so many."""
    flow.want_partitions(partitions)
    dies(flow, "state.divide:after")
    log = QueryLog.read(query(flow))
    for name in (f"{log.done}", f".{log.done}.crc"):
        (flow.query_directory / "commits" / name).unlink(missing_ok=True)


def fails_dividing(flow: StateFlow, partitions: int) -> None:
    """Spark fails with some partitions written, and others not. The way back is told."""
    flow.want_partitions(partitions)
    before = QueryLog.read(query(flow))
    way_back = rf"config set flow state\.partitions={before.partitions(before.done)}`"
    with flow.owner() as owner, pytest.raises((CheckpointMismatch, SparkUnavailable), match=way_back) as failed:
        owner.take_over()
    assert "nothing is lost" in str(failed.value)
    begun = QueryLog.read(query(flow))
    assert (begun.planned, begun.done) == (before.done + 1, before.done)
    written = {int(file.parent.name) for file in flow.query_directory.glob(f"state/0/*/{begun.planned + 1}_*")}
    assert set() < written < set(range(partitions)), written


@pytest.mark.full
@pytest.mark.parametrize("kind", ["windows", "processor"])
def test_state_in_two_partitions_then_five_then_three_counts_each_record_once(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """A processor's variables are described in files of their own, which are named by whole paths."""
    does: dict[str, Any] = {"sql": COUNTS}
    if kind == "processor":
        (tmp_path / "windows.py").write_text(transforming(BY_RECORD))
        does = {"transformation": "windows:transform", "state": {"unbounded": ["processor"]}}
    flow = StateFlow(memory_registry, spark, tmp_path, round={"records_max": 12}, **does)
    flow.append("in/0", EVENTS[:12])
    dies(flow, "round.commit:after")  # its batch is committed, and not done: that comes first
    flow.want_partitions(5)
    check(flow, 5)
    dies(flow, "state.divide:after")
    flow.append("in/0", EVENTS[12:24])
    flow.run_to_the_end()
    assert divided(flow) == [5]
    assert stores_divided(flow) == {5}
    refuse_doubles(kept(flow), 5)
    dies_dividing(flow, 3)
    flow.append("in/0", EVENTS[24:28])
    flow.run_to_the_end()
    assert divided(flow) == [5, 3]
    assert stores_divided(flow) == {3}
    refuse_doubles(kept(flow), 3)
    assert flow.delivered() == []
    flow.append("in/0", [*EVENTS[28:], *END])
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows(EVENTS)


def test_where_spark_fails_in_the_middle_of_dividing_state_it_goes_on_as_it_was_or_is_divided_later(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """A file stands where the directory of the last partition would be. It moves along with the checkpoint."""
    flow = StateFlow(memory_registry, spark, tmp_path, round={"records_max": 40}, sql=COUNTS)
    flow.append("in/0", EVENTS[:12])
    flow.run_to_the_end()
    in_the_way = "state/0/4"
    (flow.query_directory / in_the_way).touch()
    fails_dividing(flow, 5)
    flow.want_partitions(2)
    flow.append("in/0", EVENTS[12:24])
    flow.run_to_the_end()
    assert divided(flow) == [], "what was begun is taken back"
    assert stores_divided(flow) == {2}
    fails_dividing(flow, 5)
    (flow.query_directory / in_the_way).unlink()
    flow.append("in/0", EVENTS[24:])
    flow.run_to_the_end()
    assert divided(flow) == [5], "what was begun is done again"
    refuse_doubles(kept(flow), 5)
    assert flow.delivered() == []
    flow.append("in/0", END)
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows(EVENTS)


def test_state_without_a_key_is_not_divided_and_goes_on_as_it_was(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql="SELECT who FROM src LIMIT 30")
    flow.append("in/0", EVENTS[:12])
    flow.run_to_the_end()
    flow.want_partitions(5)
    for asked in (lambda: check(flow, 5), flow.run_to_the_end):  # before anything is stopped, and a task
        with pytest.raises(CheckpointMismatch, match=r"5 partitions: limit has no key; let state.partitions be 2, or"):
            asked()
    for fits in (2, None):
        check(flow, fits)
    flow.want_partitions(2)
    flow.append("in/0", EVENTS[12:])
    flow.run_to_the_end()
    assert len(flow.delivered()) == 30


def test_where_nothing_is_kept_another_number_changes_nothing(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql="SELECT who FROM src")
    flow.append("in/0", EVENTS[:3])
    flow.run_to_the_end()
    flow.want_partitions(5)
    flow.append("in/0", EVENTS[3:5])
    flow.run_to_the_end()
    log = QueryLog.read(query(flow))
    plan = (flow.query_directory / "offsets" / str(log.done)).read_text()
    assert f'"{PARTITIONS}":"2"' in plan
    assert "".join(one["who"] for one in flow.delivered()) == "abcde"
    begun = flow.query_directory / "offsets" / str(log.done + 1)
    begun.write_text(plan.replace(f'"{PARTITIONS}":"2"', f'"{PARTITIONS}":"5"'))
    flow.append("in/0", EVENTS[5:7])
    flow.run_to_the_end()
    assert "".join(one["who"] for one in flow.delivered()) == "abcdefg", "what was begun is taken back"
