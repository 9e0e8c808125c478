"""State of the users' own making (transformWithState): what comes out equals a computation over all records at once,
whoever owns the task, and dies; also by the clock, and where it expires.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.errors import StaleOwner
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.processors import BY_RECORD, CLOCK, transforming
from tests.integration.state_flow import FAR, Died, Event, StateFlow, at, die, drain, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EVENTS: list[Event] = [(second, "ab"[second % 2], second) for second in range(20, 150, 3)]
STOPS = ("round.commit:after", "files.rename:after", "checkpoint.take_schemas:before", "checkpoint.take_schemas:after")
"""Where one owner after the other dies: in a round, and in a take-over before and after it has renamed the directory,
and rewritten what names it. Other stops mean to a processor what they mean to windows (`test_stateful_rounds`)."""
ONCE = ("round.commit:after",)
"""The batch of records is run twice."""
OFTEN = ("round.commit:before", "round.commit:after", "round.commit:before")
"""It is run three times, and that of the timers twice."""


@pytest.mark.full
def test_timers_and_variables_equal_one_computation_whoever_dies_and_whoever_is_stale(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "windows.py").write_text(transforming(BY_RECORD))
    state = {"unbounded": ["processor"]}
    flow = StateFlow(
        memory_registry, spark, tmp_path, transformation="windows:transform", state=state, round={"records_max": 12}
    )
    flow.append("in/0", [*EVENTS, (FAR, "z", 0)])
    for stop in STOPS:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    with flow.owner() as stale:
        stale.take_over()
        with flow.owner() as second:
            second.take_over()
            assert second.run_round() is not None
            with pytest.raises(StaleOwner):
                drain(stale)
            second.release()
    flow.run_to_the_end()
    windows: dict[tuple[str, str], list[int]] = {}
    for second_of, who, n in EVENTS:
        windows.setdefault((at(second_of // 10 * 10), who), []).append(n)
    told = [(utc(one["at"]), one["who"], one["many"], one["total"]) for one in flow.delivered()]
    assert sorted(told) == sorted((start, who, len(of), sum(of)) for (start, who), of in windows.items())


@pytest.mark.parametrize("stops", [ONCE, pytest.param(OFTEN, marks=pytest.mark.full)], ids=["once", "often"])
def test_what_the_clock_makes_due_is_the_same_whoever_dies_and_comes_without_records(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, stops: Sequence[str]
) -> None:
    (tmp_path / "clock.py").write_text(CLOCK)
    flow = StateFlow(memory_registry, spark, tmp_path, transformation="clock:transform")
    flow.append("in/0", [(10, "a", 1), (11, "b", 2), (12, "a", 3)])
    for stop in stops:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    with flow.owner() as owner:
        own_to_the_end(owner)
        records_ms, timers_ms = planned_ms(flow, 0), planned_ms(flow, 1)
        given = [(one["who"], one["ms"], one["kept"], one["due"]) for one in flow.delivered()]
        assert sorted(given) == sorted(
            [
                ("a", records_ms, 2, False),
                ("b", records_ms, 1, False),
                ("a", timers_ms, 0, True),
                ("b", timers_ms, 0, True),
            ]
        )
        while not owner.wait(0.1):
            pass
        round_of_none = owner.run_round()
        assert round_of_none is not None, "the clock has the query run a batch that nobody asked for"
        assert not round_of_none.read
        for log in ("in/0", "in/1"):
            with flow.namespace.open_writer(log) as writer:
                writer.mark_end_of_stream()
        while not owner.ended():
            owner.run_round()
        owner.release()


def test_what_the_clock_makes_due_comes_though_its_owner_has_seen_no_record(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "clock.py").write_text(CLOCK)
    flow = StateFlow(memory_registry, spark, tmp_path, transformation="clock:transform")
    flow.append("in/0", [(10, "a", 1), (11, "b", 2)])
    with flow.owner() as first:
        first.take_over()
        assert first.run_round() is not None
        first.release()
    flow.run_to_the_end()
    assert sorted((one["who"], one["due"]) for one in flow.delivered()) == [
        ("a", False),
        ("a", True),
        ("b", False),
        ("b", True),
    ]


BY_ARRIVAL = """
from pyspark.sql import functions as F


def noted(frames):
    for frame in frames:
        with open(NOTES, "a") as notes:
            notes.write("x" * len(frame))
        yield frame


def transform(inputs, context):
    whose = inputs["src"].select("who").mapInPandas(noted, "who STRING")
    seen = whose.withColumn("seen", F.current_timestamp()).withWatermark("seen", "0 seconds")
    windows = seen.groupBy(F.window("seen", "1 millisecond"), "who").agg(F.count("*").alias("many"))
    return windows.select(F.col("window.start").alias("start"), "who", "many")
"""
"""Windows of processing time: of when records are read. `NOTES` is the file where each is noted."""


@pytest.mark.parametrize("stops", [ONCE, pytest.param(OFTEN[:2], marks=pytest.mark.full)], ids=["once", "often"])
def test_windows_of_processing_time_have_each_record_once_by_the_time_of_its_batch_whoever_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, stops: Sequence[str]
) -> None:
    """A batch that runs again has the time that it was planned with, though it is later by then. It is executed once by
    each owner: a second action would keep its state twice."""
    notes = tmp_path / "notes"
    (tmp_path / "arrival.py").write_text(f"NOTES = {str(notes)!r}\n{BY_ARRIVAL}")
    flow = StateFlow(memory_registry, spark, tmp_path, transformation="arrival:transform", state={"watermarks": {}})
    flow.append("in/0", [(10, "a", 1), (11, "b", 2), (12, "a", 3)])
    for stop in stops:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    with flow.owner() as owner:
        own_to_the_end(owner)
        flow.append("in/0", [(13, "z", 4)])  # in a batch that is later than all before, which is what ends windows
        drain(owner)
        owner.release()
    start = datetime.fromtimestamp(planned_ms(flow, 0) / 1000, UTC)
    told = [(datetime.fromisoformat(one["start"]), one["who"], one["many"]) for one in flow.delivered()]
    assert sorted(told) == [(start, "a", 2), (start, "b", 1)]
    assert notes.stat().st_size == 3 * (len(stops) + 1) + 1, "of each owner"


def planned_ms(flow: StateFlow, batch: int) -> int:
    """When the query has planned it."""
    plan: dict[str, Any] = json.loads((flow.query_directory / f"offsets/{batch}").read_text().splitlines()[1])
    return int(plan["batchTimestampMs"])


def utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat()
