"""How the demo measures the time that a killed worker's tasks stood still."""

from __future__ import annotations

from scribengin_dev.harness.standstill import SeenCommit, gap_around_ms, longest_gap_ms, of_stream


def commit(round_: int, at_ms: int, owner: str = "worker-1", stream: str = "flights/0") -> SeenCommit:
    return SeenCommit(stream, "task-0", owner, round_, at_ms)


HISTORY = [
    commit(0, 50),
    commit(1, 100),
    commit(2, 200),
    commit(2, 7000, "worker-2"),  # the take-over
    commit(3, 7300, "worker-2"),
    commit(4, 7400, "worker-2"),
]


def test_take_overs_and_other_streams_are_no_rounds() -> None:
    rounds = of_stream([*HISTORY, commit(9, 1, stream="flights/1")], "flights/0")
    assert [(c.round, c.at_ms) for c in rounds] == [(1, 100), (2, 200), (3, 7300), (4, 7400)]


def test_a_standstill_lasts_from_the_victims_last_commit_to_its_successors_first() -> None:
    assert gap_around_ms(of_stream(HISTORY, "flights/0"), 250) == 7100


def test_a_commit_that_was_on_its_way_when_the_worker_died_is_still_the_victims() -> None:
    rounds = [commit(1, 100), commit(2, 260), commit(3, 7300, "worker-2")]
    assert gap_around_ms(rounds, 250) == 7040


def test_a_task_that_had_not_committed_yet_stood_still_from_the_kill_on() -> None:
    assert gap_around_ms([commit(1, 900, "worker-2")], 250) == 650


def test_a_task_that_nobody_went_on_with_has_no_standstill_to_show() -> None:
    assert gap_around_ms([commit(1, 100), commit(2, 200)], 250) is None
    assert gap_around_ms([], 250) is None


def test_the_longest_gap_counts_only_what_ended_after_the_moment_asked_about() -> None:
    rounds = of_stream(HISTORY, "flights/0")
    assert longest_gap_ms(rounds, 0) == 7100
    assert longest_gap_ms(rounds, 7300) == 100
    assert longest_gap_ms(rounds, 9999) == 0
