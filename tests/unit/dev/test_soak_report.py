"""What a soak makes of what it has measured: who grows, what has gone wrong, and the tables."""

from __future__ import annotations

import pytest

from scribengin.operations.verify.tracking import ChunkVerdict, Verdict
from scribengin_dev.soak.measuring import Life, Sample
from scribengin_dev.soak.report import Done, SoakMeasurement, acts_table
from scribengin_dev.soak.schedule import Act

PERIOD_S = 5.0


def life(*memory_mib: float, files_a_look: int = 0) -> Life:
    """A worker that was looked at every PERIOD_S seconds; each time so many more files were open."""
    samples = [Sample(n * PERIOD_S, held, n * 1.0, 10 + n * files_a_look) for n, held in enumerate(memory_mib)]
    return Life("worker", samples)


def measured(*, written: int = 10, arrived: int = 10, duplicated: int = 0, **more: object) -> SoakMeasurement:
    chunk = ChunkVerdict(
        generator="g", stream="in/0", sent=written, arrived=arrived, lost=0, duplicated=duplicated, out_of_order=0
    )
    values: dict[str, object] = {
        "seed": 7,
        "length_s": 120.0,
        "planned": 2,
        "took_s": 150.0,
        "done": (),
        "written": written,
        "verdict": Verdict(chunks=(chunk,), others=0),
        "rounds": 5,
        "worst_gap_s": 1.5,
        "lives": (),
        "server_before": {"watch_count": 100.0},
        "server_after": {"watch_count": 100.0},
    }
    return SoakMeasurement(**(values | more))  # type: ignore[arg-type]


def test_one_that_holds_ever_more_leaks() -> None:
    growing = life(*(100 + n for n in range(300)))
    assert growing.growth_mib == pytest.approx(92)
    assert growing.leaks


def test_one_that_has_grown_at_first_or_goes_up_and_down_does_not_leak() -> None:
    assert not life(*([100.0] * 20 + [400.0] * 300)).leaks
    assert not life(*(200 + 150 * (n % 10) / 10 for n in range(300))).leaks


def test_one_that_opens_ever_more_files_leaks() -> None:
    assert life(*([100.0] * 300), files_a_look=1).leaks
    assert not life(*([100.0] * 300)).leaks


def test_a_short_life_is_not_judged() -> None:
    short = life(*(100 + 20 * n for n in range(140)), files_a_look=3)
    assert (short.growth_mib, short.more_files) == (None, None)
    assert not short.leaks


def test_nothing_lost_and_nothing_twice_has_passed() -> None:
    assert measured().problems == []
    assert "Nothing lost, nothing twice" in measured().markdown()


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (measured(arrived=9), "1 records were lost"),
        (measured(written=12, arrived=10), "2 records were lost"),
        (measured(duplicated=3), "3 records came twice"),
        (measured(failure="waited in vain"), "waited in vain"),
        (measured(lives=(life(*([100.0] * 300), files_a_look=1),)), "a worker grows"),
        (measured(server_after={"watch_count": 201.0}), "watches are left behind: 100 at the beginning, 201 at"),
    ],
)
def test_whatever_is_wrong_is_named_in_the_report(what: SoakMeasurement, problem: str) -> None:
    assert [text for text in what.problems if problem in text], what.problems
    assert problem in what.markdown()
    assert "NOT PASSED" in what.markdown()


def test_records_that_no_output_and_no_source_has_are_lost_all_the_same() -> None:
    """The highest number that was seen says how many were written; here somebody knows better."""
    assert measured(written=11, arrived=10).problems == ["1 records were lost"]


def test_without_a_verdict_nothing_is_said_of_records() -> None:
    unread = measured(verdict=None, failure="it did not stop")
    assert unread.problems == ["it did not stop"]
    assert "not read" in unread.markdown()


def test_acts_stand_in_a_row_a_kind_with_median_and_worst() -> None:
    acts = [Act(4.0, "kill worker", 0, 0.0, 1), Act(30.0, "kill worker", 1, 0.0, 2), Act(60.0, "pause", 0, 2.0, 3)]
    text = acts_table([Done(act, n + 1.0, n + 10.0) for n, act in enumerate(acts)])
    assert text.splitlines()[2:] == [
        "| kill worker | 2 | 1.5 s | 2.0 s | 10.5 s | 11.0 s |",
        "| pause | 1 | 3.0 s | 3.0 s | 12.0 s | 12.0 s |",
    ]
