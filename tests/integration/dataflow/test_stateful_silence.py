"""A source that falls silent holds windows back only for as long as the user says, whoever owns the task."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.errors import CheckpointMismatch
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.state_flow import FAR, Died, Event, StateFlow, die, drain, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = """
    SELECT window.start AS start, who, count(*) AS many
    FROM (SELECT at, who FROM src WHERE n >= 0 UNION ALL SELECT at, who FROM other WHERE n >= 0)
    GROUP BY window(at, '10 seconds'), who
"""
IDLE_AFTER_S, LATE_S = 30, 5
EVENTS: list[Event] = [(second, "ab"[second % 2], second) for second in range(20, 60, 5)]
END: list[Event] = [(FAR, "z", 0)]
OF_SRC = {
    (20, "a"): 1,
    (20, "b"): 1,
    (30, "a"): 1,
    (30, "b"): 1,
    (40, "a"): 1,
    (40, "b"): 1,
    (50, "a"): 1,
    (50, "b"): 1,
}
OF_BOTH = {**OF_SRC, (20, "c"): 1}
"""What COUNTS makes of EVENTS and a record of the other source, second 20."""


@pytest.fixture
def flow(memory_registry: Registry, spark: SparkSession, tmp_path: Path) -> StateFlow:
    """Of two sources, of which the other one has had one record, and has no more."""
    watermarks = {"src": {"column": "at"}, "other": {"column": "at", "delay_s": LATE_S, "idle_after_s": IDLE_AFTER_S}}
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS, state={"watermarks": watermarks}, round={})
    flow.clock = ManualClock()
    flow.append("in/0", [*EVENTS, *END])
    flow.append("other", [(20, "c", 0)])
    return flow


def counted(flow: StateFlow) -> dict[tuple[int, str], int]:
    found: list[dict[str, Any]] = flow.delivered()
    counts = {
        (int(datetime.fromisoformat(one["start"]).astimezone(UTC).timestamp()), one["who"]): one["many"]
        for one in found
    }
    assert len(counts) == len(found), "a window was given out twice"
    return counts


def advance(flow: StateFlow, seconds: float) -> None:
    assert isinstance(flow.clock, ManualClock)
    flow.clock.advance_s(seconds)


def test_windows_close_without_a_source_that_is_silent_and_wait_for_it_again_once_it_is_back(flow: StateFlow) -> None:
    with flow.owner() as owner:
        own_to_the_end(owner)
        advance(flow, IDLE_AFTER_S - 1)
        drain(owner)
        assert counted(flow) == {}, "it may still come"
        assert not owner.wait(0.0)
        advance(flow, 1)
        assert owner.wait(0.0), "whoever waits for records hears that a beat is due"
        drain(owner)
        assert counted(flow) == OF_BOTH
        assert owner.run_round() is None, "one beat is enough"
        assert not owner.wait(0.0)
        kept = owner.state()
        assert kept is not None
        assert kept.watermark_ms == FAR * 1000

        flow.append("other", [(40, "late", 0), (FAR + 20, "d", 0)])
        flow.append("in/0", [(FAR + 100, "z", 0)])
        drain(owner)
        back = {**OF_BOTH, (FAR, "z"): 1}
        assert counted(flow) == back, "and no further than it, less what its records may be late"
        kept = owner.state()
        assert kept is not None
        assert (kept.watermark_ms, kept.held_back_by, kept.late) == ((FAR + 20 - LATE_S) * 1000, "other", 1)

        advance(flow, IDLE_AFTER_S)
        flow.append("in/0", [(FAR + 200, "z", 0)])
        drain(owner)
        assert counted(flow) == {**back, (FAR + 20, "d"): 1, (FAR + 100, "z"): 1}
        owner.release()


def test_a_source_that_is_paused_is_not_silent(flow: StateFlow) -> None:
    with flow.owner() as owner:
        own_to_the_end(owner)
        owner.reconfigure(flow.config.round, flow.config.errors, paused=["other"])
        advance(flow, IDLE_AFTER_S)
        drain(owner)
        flow.append("other", [(21, "c", 0), (FAR, "d", 0)])
        advance(flow, IDLE_AFTER_S)
        drain(owner)
        assert counted(flow) == {}
        owner.reconfigure(flow.config.round, flow.config.errors, paused=[])
        drain(owner)
        assert counted(flow) == {**OF_SRC, (20, "c"): 2}, "what came meanwhile is not late"
        owner.release()


def fall_silent(flow: StateFlow, owner: StatefulRunner, at: int) -> None:
    """There is a later record of the one source, and of the other nothing for long: a beat is due."""
    owner.take_over()
    flow.append("in/0", [(at, "z", 0)])
    drain(owner)
    advance(flow, IDLE_AFTER_S)


STOPS = (
    "round.commit:before",
    "round.commit:after",
    "log.stage_sync:after",
    "log.control_write:before",
    "log.round_show:after",
)
"""Before and after the beat is committed, and in the round that then closes windows."""


@pytest.mark.full
def test_beats_are_the_same_for_whoever_runs_their_batch_again(flow: StateFlow) -> None:
    with flow.owner() as first:
        own_to_the_end(first)
        first.release()
    later = [FAR + 20 * n for n in range(1, len(STOPS) + 2)]
    for at, stop in zip(later, STOPS, strict=False):
        with flow.owner() as owner:
            fall_silent(flow, owner, at)
            with at_failpoint(stop, die), pytest.raises(Died):
                drain(owner)
    with flow.owner() as last:
        fall_silent(flow, last, later[-1])
        drain(last)
        last.release()
    assert counted(flow) == {**OF_BOTH, (FAR, "z"): 1, **{(at, "z"): 1 for at in later[:-1]}}


def test_a_checkpoint_keeps_which_sources_may_be_silent(flow: StateFlow) -> None:
    with flow.owner() as first:
        own_to_the_end(first)
        first.release()
    state = flow.config.state
    assert state is not None
    never = {name: one.model_copy(update={"idle_after_s": None}) for name, one in state.watermarks.items()}
    flow.config = flow.config.model_copy(update={"state": state.model_copy(update={"watermarks": never})})
    told = "began with idle_after_s for (other|src|other, src), and keeps that; now no source would have it: set"
    with flow.owner() as owner, pytest.raises(CheckpointMismatch, match=told):
        owner.take_over()
