"""Rounds of a task with state, on Spark: what comes out equals a computation over all records at once, also when the
owner dies at any of a round's effects, and when a stale one goes on.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.config import StateConfig
from scribengin.errors import CheckpointMismatch, StaleOwner, TransformationFailed
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.state_flow import (
    FAR,
    SCHEMA,
    Died,
    Event,
    StateFlow,
    at,
    die,
    drain,
    own_to_the_end,
    payloads_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = """
    SELECT window.start AS start, who, count(*) AS many, sum(n) AS total FROM src GROUP BY window(at, '10 seconds'), who
"""
MEETINGS = (
    "SELECT src.n AS n, other.n AS m FROM src JOIN other ON src.who = other.who "
    "AND other.at BETWEEN src.at AND src.at + INTERVAL 10 SECONDS"
)
ONCE = """
def transform(inputs, context):
    return inputs["src"].dropDuplicates(["who", "at"]).select("who", "n")
"""
EVENTS: list[Event] = [(second, "ab"[second % 2], second) for second in range(20, 150, 3)]
END: list[Event] = [(FAR, "z", 0)]


def windows(events: Sequence[Event]) -> list[tuple[str, str, int, int]]:
    """What COUNTS makes of all of them at once: (start, who, many, total)."""
    groups: dict[tuple[int, str], list[int]] = {}
    for second, who, n in events:
        groups.setdefault((second // 10 * 10, who), []).append(n)
    return sorted((at(start), who, len(found), sum(found)) for (start, who), found in groups.items())


def told(delivered: Sequence[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    return sorted(
        (datetime.fromisoformat(one["start"]).astimezone(UTC).isoformat(), one["who"], one["many"], one["total"])
        for one in delivered
    )


@pytest.fixture
def counting(memory_registry: Registry, spark: SparkSession, tmp_path: Path) -> StateFlow:
    """A flow of COUNTS over EVENTS, twice, in a handful of rounds: one of its logs has them all from the start."""
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS, round={"records_max": 16})
    flow.append("in/0", EVENTS[:16])
    flow.append("in/1", [*EVENTS, *END])
    return flow


@pytest.mark.full
def test_windows_over_several_streams_and_owners_equal_one_computation(counting: StateFlow) -> None:
    """Some records come later than the others, and no window is given out before."""
    with counting.owner() as first:
        first.take_over()
        assert first.run_round() is not None
        assert first.run_round() is not None
        first.release()
    counting.append("in/0", [*EVENTS[16:], *END])
    counting.run_to_the_end()
    assert told(counting.delivered()) == windows(EVENTS * 2)
    with counting.owner() as third:
        third.take_over()
        assert third.run_round() is None, "what is done is not done again"


@pytest.mark.full
def test_windows_over_files_equal_one_computation_whoever_dies_and_whatever_comes_meanwhile(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Plain files, one of which grows and is rotated while nobody reads it, and a compressed one."""
    events = EVENTS[:24]
    files = tmp_path / "in"
    files.mkdir()
    source = {"kind": "hdfs", "path": str(files), "settle_s": 0, "format": "json", "schema_ddl": SCHEMA}
    reading = {"sources": {"src": source}, "round": {"records_max": 12}}
    flow = StateFlow(memory_registry, spark, tmp_path, delay_s=500, sql=COUNTS, **reading)
    append(files / "b.log", events[:9])
    (files / "c.gz").write_bytes(gzip.compress(b"".join(one + b"\n" for one in payloads_of(events[9:18]))))
    with flow.owner() as first:
        first.take_over()
        with at_failpoint("round.commit:after", die), pytest.raises(Died):
            first.run_round()
    append(files / "b.log", events[18:20])
    (files / "b.log").rename(files / "b.log.1")
    append(files / "b.log", [*events[20:], *END])
    append(files / "a.log", events[:3])
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows([*events, *events[:3]])


@pytest.mark.parametrize("partitions", [2, 3], ids=["as they were", "divided anew"])
def test_what_an_owner_has_closed_its_successor_gives_out_though_no_record_comes(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    """The owner goes behind the batch that has moved the watermark, and before the one that gives out what that has
    closed. There is nothing more to come: the task has not ended before it has given that out."""
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS, round={"records_max": 100})
    flow.append("in/0", [*EVENTS[:6], *END])
    for log in ("in/0", "in/1"):
        with flow.namespace.open_writer(log) as writer:
            writer.mark_end_of_stream()
    with flow.owner() as first:
        first.take_over()
        assert first.run_round() is not None
        first.release()
    assert flow.delivered() == []
    flow.want_partitions(partitions)
    with flow.owner() as second:
        second.take_over()
        while not second.ended():
            second.run_round()
        second.release()
    assert told(flow.delivered()) == windows(EVENTS[:6])
    rounds = len(list(flow.query_directory.glob("commits/[0-9]*")))
    flow.run_to_the_end()
    assert len(list(flow.query_directory.glob("commits/[0-9]*"))) == rounds, "nothing is due any more"


def append(path: Path, events: Sequence[Event]) -> None:
    with path.open("ab") as file:
        file.writelines(payload + b"\n" for payload in payloads_of(events))


def test_changes_of_state_that_are_cut_or_damaged_are_refused(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """What comes of other state than was committed goes nowhere. A power failure leaves a file whole pages long."""
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS)
    flow.append("in/0", EVENTS[:4])
    flow.run_to_the_end()
    flow.append("in/0", [*EVENTS[4:8], *END])
    committed = largest_changes(flow)  # a batch that fails leaves others, without a checksum
    whole = committed.read_bytes()
    damaged = bytes([*whole[:-1], whole[-1] ^ 1])
    for content in (b"", damaged):
        changes = largest_changes(flow, committed.name)
        assert changes.with_name(f"{changes.name}.crc").exists(), "Spark's own"
        changes.write_bytes(content)
        with flow.owner() as owner:
            owner.take_over()
            with pytest.raises(CheckpointMismatch, match=r"cannot be read .* bring the checkpoint back as it was"):
                drain(owner)
        assert flow.delivered() == []
        largest_changes(flow, committed.name).write_bytes(whole)
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows(EVENTS[:8])


def largest_changes(flow: StateFlow, name: str = "*.changelog") -> Path:
    return max(flow.query_directory.glob(f"state/0/*/{name}"), key=lambda file: file.stat().st_size)


@pytest.mark.full
def test_duplicates_are_dropped_also_those_that_an_earlier_owner_has_seen(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    flow = StateFlow(memory_registry, spark, tmp_path, transformation="once:transform")
    events: list[Event] = [(second, who, second) for second in range(20, 32) for who in "ab"]
    flow.append("in/0", events)
    flow.run_to_the_end()
    flow.append("in/0", [(31, "a", 31), (31, "b", 31), (32, "a", 32), (32, "a", 32)])
    flow.append("in/1", [(32, "a", 32), (33, "b", 33)])
    flow.run_to_the_end()
    expected = sorted({(who, second) for second, who, _ in events} | {("a", 32), ("b", 33)})
    assert sorted((one["who"], one["n"]) for one in flow.delivered()) == expected


@pytest.mark.full
def test_a_join_of_two_sources_equals_one_computation(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=MEETINGS)
    flow.append("in/0", EVENTS[:12])
    flow.append("other", EVENTS[:6])
    flow.run_to_the_end()
    flow.append("other", EVENTS[6:14])
    flow.append("in/1", EVENTS[12:16])
    flow.run_to_the_end()
    expected = sorted(
        (n, m)
        for second, who, n in EVENTS[:16]
        for later, other, m in EVENTS[:14]
        if who == other and second <= later <= second + 10
    )
    assert sorted((one["n"], one["m"]) for one in flow.delivered()) == expected


@pytest.mark.full
def test_several_sinks_are_written_by_one_query_and_their_rounds_happen_whole_whoever_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Windows, the records that they are of, and a join of the stream with itself."""
    sinks = {name: {"kind": "log", "log": name, "format": "json"} for name in ("out", "all", "met")}
    itself = MEETINGS.replace("JOIN other", "JOIN src other")
    sql = {"out": COUNTS, "all": "SELECT who, n FROM src", "met": itself}
    flow = StateFlow(memory_registry, spark, tmp_path, sinks=sinks, sql=sql, round={"records_max": 20})
    flow.append("in/0", [*EVENTS[:20], *END])
    for stop in ("round.commit:after", "log.control_write:before"):
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows(EVENTS[:20])
    events = [*EVENTS[:20], *END]
    assert sorted((one["who"], one["n"]) for one in flow.delivered("all")) == sorted((who, n) for _, who, n in events)
    met = [
        (n, m) for second, who, n in events for later, other, m in events if who == other and 0 <= later - second <= 10
    ]
    assert sorted((one["n"], one["m"]) for one in flow.delivered("met")) == sorted(met)
    with flow.owner() as owner:
        owner.take_over()
        flow.append("in/0", [(FAR + 1, "z", 1)])
        drain(owner)
        kept = owner.state()
        assert kept is not None
        assert set(kept.rows) == {"aggregate", "join"}, "each operator of all the outputs"


@pytest.mark.full
def test_how_much_state_there_is_and_which_source_holds_it_back(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = StateFlow(memory_registry, spark, tmp_path, sql=MEETINGS)
    flow.append("in/0", [(100, "a", 1), (200, "a", 2)])
    flow.append("other", [(150, "b", 1)])
    with flow.owner() as owner:
        own_to_the_end(owner)
        kept = owner.state()
        assert kept is not None
        assert (kept.watermark_ms, kept.held_back_by, kept.late) == (150_000, "other", 0)
        assert kept.rows == {"join": 2}, "the first one of `src` can meet nobody any more"
        assert kept.bytes > 0
        flow.append("in/0", [(110, "a", 3), (120, "a", 4)])
        flow.append("other", [(300, "b", 1)])
        drain(owner)
        kept = owner.state()
        assert kept is not None
        assert (kept.watermark_ms, kept.held_back_by, kept.late) == (200_000, "src", 2)
        owner.release()
    with flow.owner() as second:
        second.take_over()
        flow.append("in/0", [(210, "a", 3)])
        drain(second)
        kept = second.state()
        assert kept is not None
        assert (kept.watermark_ms, kept.held_back_by) == (200_000, "other"), "of which nothing was seen since"


STOPS = (
    "ownership.name_batch:before",
    "ownership.name_batch:after",
    "round.commit:before",
    "round.commit:after",
    "log.stage_write:before",
    "log.stage_sync:after",
    "files.rename:before",
    "files.rename:after",
    "round.commit:after",
    "log.control_write:before",
    "log.round_show:after",
)
"""Where one owner after the other dies: before there is a checkpoint, in stage, at commit, in complete, in a take-over,
and when all is done but Spark's own commit of the batch."""
A_FEW = ("ownership.name_batch:after", "round.commit:before", "round.commit:after", "log.control_write:before")
"""In every run: that owners may die anywhere is held by a query that is not Spark's (`test_stateful_crashes`)."""


@pytest.mark.parametrize("stops", [A_FEW, pytest.param(STOPS, marks=pytest.mark.full)], ids=["a few", "all"])
def test_owners_that_die_at_every_step_of_rounds_give_out_every_window_once(
    counting: StateFlow, stops: Sequence[str]
) -> None:
    counting.append("in/0", [*EVENTS[16:], *END])
    for stop in stops:
        with counting.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    counting.run_to_the_end()
    assert told(counting.delivered()) == windows(EVENTS * 2)


def test_a_stale_owner_commits_nothing_and_its_query_writes_where_nobody_reads(counting: StateFlow) -> None:
    counting.append("in/0", [*EVENTS[16:], *END])
    with counting.owner() as stale:
        stale.take_over()
        assert stale.run_round() is not None
        with counting.owner() as second:
            second.take_over()
            assert second.run_round() is not None
            with pytest.raises(StaleOwner):
                drain(stale)
            second.release()
    counting.run_to_the_end()
    assert told(counting.delivered()) == windows(EVENTS * 2)


def test_a_checkpoint_of_an_older_copy_is_refused_with_both_sides(counting: StateFlow) -> None:
    state = counting.directory / "state"
    with counting.owner() as first:
        first.take_over()
        assert first.run_round() is not None
        first.release()
    shutil.copytree(state, counting.directory / "copy")
    counting.run_to_the_end()
    shutil.rmtree(state)
    shutil.move(counting.directory / "copy", state)
    with counting.owner() as third, pytest.raises(CheckpointMismatch) as refused:
        third.take_over()
    assert "the commit logs name batch" in str(refused.value)
    assert "is planned and 0 is done" in str(refused.value)


def test_a_bad_record_stops_the_task_before_anything_of_its_round_is_committed(counting: StateFlow) -> None:
    with counting.namespace.open_writer("in/0") as writer:
        writer.write(b'{"at": "yesterday"}').result(120)
    with counting.owner() as owner:
        owner.take_over()
        place = r"\n\(at log in/0, DLSN \d+/0/0, of src/in/0\)$"
        with pytest.raises(TransformationFailed, match=f"(?s)malformed JSON.*{place}"):
            drain(owner)
        before = counting.delivered()
        with pytest.raises(TransformationFailed, match="malformed JSON"):
            own_to_the_end(owner)
    assert counting.delivered() == before


@pytest.mark.full
def test_a_transformation_that_does_not_fit_its_checkpoint_any_more_is_refused(counting: StateFlow) -> None:
    with counting.owner() as owner:
        owner.take_over()
        assert owner.run_round() is not None
        owner.release()
    counting.config = counting.config.model_copy(update={"sql": COUNTS.replace("who", "n")})
    with counting.owner() as owner, pytest.raises(CheckpointMismatch, match="does not fit its checkpoint") as refused:
        own_to_the_end(owner)
    assert "\n" not in str(refused.value)


@pytest.mark.full
def test_nothing_needs_to_be_said_of_state(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`state: {}`, where the transformation has its watermark itself."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    marked = COUNTS.replace("FROM src", "FROM src WATERMARK at DELAY OF INTERVAL 0 SECONDS")
    flow = StateFlow(memory_registry, spark, tmp_path, sql=marked)
    flow.config = flow.config.model_copy(update={"state": StateConfig()})
    flow.append("in/0", [*EVENTS, *END])
    flow.run_to_the_end()
    assert told(flow.delivered()) == windows(EVENTS)
    assert list((tmp_path / "home" / "state").rglob("offsets")), "its checkpoint is in SCRIBENGIN_HOME"
