"""What a task's owner counts for its report."""

from __future__ import annotations

import math

import pytest

from scribengin.dataflow.registry.descriptors import LAG_STREAMS_MAX, StreamLag, TaskReport
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.worker.progress import RATE_SPAN_S, Progress, SmoothedRate


def outcome(run_s: float = 0.5, records: int = 10) -> RoundOutcome:
    return RoundOutcome(
        round=1,
        read={"in": records - 1, "more": 1},
        written={"out": records},
        records_bad=0,
        plan_s=0.001,
        run_s=run_s,
        prepare_s=0.01,
        commit_s=0.02,
        complete_s=0.03,
    )


def told(progress: Progress, now_s: float, *, busy: bool = False) -> TaskReport:
    fields = progress.report(now_s, busy=busy)
    return TaskReport.model_validate({"task": "t", "generation": 1, "state": "running", **fields})


def test_a_steady_stream_has_its_rate_from_the_first_seconds_on() -> None:
    rate = SmoothedRate(0.0)
    seen = []
    for second in range(1, 61):
        rate.add(500, float(second))
        seen.append(rate.at(float(second)))
    assert all(rate == pytest.approx(500, rel=0.06) for rate in seen)


def test_a_rate_falls_to_a_third_in_its_span_and_to_nothing_in_the_end() -> None:
    rate = SmoothedRate(0.0)
    for second in range(100):
        rate.add(1000, float(second))
    before = rate.at(99.0)
    assert rate.at(99.0 + RATE_SPAN_S) == pytest.approx(before / math.e, rel=0.01)
    assert rate.at(1000.0) == 0.0


def test_a_first_round_is_no_peak() -> None:
    rate = SmoothedRate(5.0)
    rate.add(100, 5.0)
    assert rate.at(5.0) <= 110


def test_each_phase_is_told_of_the_last_round_and_as_a_mean() -> None:
    progress = Progress(0.0)
    progress.committed(outcome(run_s=1.0), now_ms=1, now_s=1.0)
    progress.committed(outcome(run_s=2.0), now_ms=2, now_s=2.0)
    times = told(progress, 2.0).times
    assert times is not None
    assert (times.last.run, times.mean.run) == (2000.0, 1200.0)
    assert times.last.model_dump() == {"plan": 1.0, "run": 2000.0, "prepare": 10.0, "commit": 20.0, "complete": 30.0}


def test_of_many_streams_those_furthest_behind_are_told_of_and_the_sum_is_of_all() -> None:
    progress = Progress(0.0)
    progress.looked([StreamLag(source="in", stream=str(n), records=n) for n in range(100)], 1.0)
    report = told(progress, 1.0)
    assert report.lag_records == sum(range(100))
    assert [stream.records for stream in report.lag] == list(range(99, 99 - LAG_STREAMS_MAX, -1))


def test_what_nobody_has_looked_up_is_not_known_and_what_was_has_an_age() -> None:
    progress = Progress(0.0)
    assert (told(progress, 30.0).lag_records, told(progress, 30.0).lag_age_s) == (None, None)
    progress.looked([StreamLag(source="in", stream="0", records=0)], 31.0)
    assert (told(progress, 31.0).lag_records, told(progress, 31.0).lag_age_s) == (0, 0.0)
    progress.committed(outcome(run_s=60.0), now_ms=1, now_s=91.0)
    assert (told(progress, 92.0).lag_records, told(progress, 92.0).lag_age_s) == (0, 61.0), "a round is no look"


def test_behind_is_how_long_nothing_was_committed_while_there_was_something_to_do() -> None:
    progress = Progress(10.0)
    assert told(progress, 13.0, busy=True).behind_s == 3.0, "it has not even been taken over"
    progress.looked([StreamLag(source="in", stream="0", records=5)], 14.0)
    assert told(progress, 20.0).behind_s == 10.0
    progress.committed(outcome(), now_ms=1, now_s=21.0)
    assert told(progress, 22.0, busy=True).behind_s == 1.0
    progress.looked([StreamLag(source="in", stream="0", records=0)], 40.0)
    assert told(progress, 45.0).behind_s == 0.0
    assert told(progress, 45.0, busy=True).behind_s == 5.0, "a round that began after the last look, and hangs"


def test_what_waits_in_a_paused_source_is_lag_and_nothing_to_do() -> None:
    progress = Progress(0.0)
    paused = StreamLag(source="in", stream="0", records=500, paused=True)
    progress.looked([paused], 1.0)
    progress.looked([paused], 500.0)
    assert (told(progress, 500.0).lag_records, told(progress, 500.0).behind_s) == (500, 0.0)
    progress.looked([paused, StreamLag(source="other", stream="0", records=1)], 510.0)
    assert told(progress, 520.0).behind_s == 20.0, "the other one is late, since it was looked at last"
    progress.looked([paused.model_copy(update={"paused": False})], 530.0)
    assert told(progress, 530.0).behind_s == 30.0
