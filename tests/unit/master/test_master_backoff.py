"""How soon something that keeps dying is started again."""

from __future__ import annotations

from scribengin.master.state.worker_pool import YOUNG_S, Backoff, delay_s


def test_the_first_death_costs_no_time_and_later_ones_ever_more_up_to_a_limit() -> None:
    assert [delay_s(n) for n in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_what_lived_long_enough_begins_a_new_count() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.died(now_s=100, age_s=1)
    assert not backoff.may_start(107)
    assert backoff.may_start(108)
    backoff.died(now_s=200, age_s=YOUNG_S)
    assert backoff.may_start(200)
