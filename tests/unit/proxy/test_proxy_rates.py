"""Which requests are within the rates that a proxy allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scribengin.proxy.config import RateConfig
from scribengin.proxy.state.rates import Admitted, RateCounts, RateMeter, TooMuch, admit, give_back


def test_without_limits_all_is_taken() -> None:
    meter = RateMeter(RateConfig(), "log 'a'")
    assert {admit((meter,), 10**9, 10**12, 0.0) for _ in range(5)} == {Admitted()}


def test_what_is_above_the_soft_rate_is_told_once_and_counted() -> None:
    meter = RateMeter(RateConfig(records_s_soft=10), "log 'a'")
    told = [admit((meter,), 10, 1, 0.0) for _ in range(4)]
    assert told == [Admitted(), Admitted(("log 'a': 10 records a second",)), Admitted(), Admitted()]
    assert meter.counts == RateCounts(requests_over_soft=3, requests_refused=0)
    assert admit((meter,), 10, 1, 10.0) == Admitted()
    assert admit((meter,), 10, 1, 10.0) == Admitted(("log 'a': 10 records a second",)), "it was below it again"


@pytest.mark.parametrize("limit", [{"records_s_hard": 10}, {"bytes_s_hard": 10}])
def test_what_is_above_the_hard_rate_is_refused_until_it_has_drained(limit: dict[str, int]) -> None:
    meter = RateMeter(RateConfig.model_validate(limit), "log 'a'")
    assert admit((meter,), 25, 25, 0.0) == Admitted(), "one that is larger than the rate passes"
    what = "records" if "records_s_hard" in limit else "bytes"
    assert admit((meter,), 1, 1, 1.5) == TooMuch(f"log 'a': 10 {what} a second")
    assert admit((meter,), 1, 1, 1.6) == Admitted()
    assert meter.counts.requests_refused == 1


def test_what_one_meter_refuses_counts_for_no_other() -> None:
    log, service = RateMeter(RateConfig(records_s_hard=10), "log"), RateMeter(RateConfig(records_s_hard=10), "service")
    service.add((10, 0), 0.0)
    assert admit((log, service), 10, 1, 0.0) == TooMuch("service: 10 records a second")
    assert log.full(0.0) is None


@pytest.mark.parametrize("what", ["records", "bytes"])
def test_a_soft_rate_above_the_hard_one_would_warn_of_nothing_and_is_refused(what: str) -> None:
    with pytest.raises(
        ValidationError, match=f"{what}_s_soft 10 is above {what}_s_hard 9, so it would warn of nothing"
    ):
        RateConfig.model_validate({f"{what}_s_soft": 10, f"{what}_s_hard": 9})
    assert RateConfig.model_validate({f"{what}_s_soft": 9, f"{what}_s_hard": 10})


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 30)), max_size=60))
def test_over_time_no_more_is_taken_than_the_rate_and_two_requests(steps: list[tuple[float, int]]) -> None:
    meter, now_s, taken = RateMeter(RateConfig(records_s_hard=10), "log"), 0.0, 0
    for pause_s, records in steps:
        now_s += pause_s
        taken += records * isinstance(admit((meter,), records, 0, now_s), Admitted)
    assert taken <= 10 * now_s + 10 + 30


def test_what_was_not_written_after_all_counts_for_nothing() -> None:
    meter = RateMeter(RateConfig(records_s_hard=10), "log 'a'")
    assert admit((meter,), 25, 25, 0.0) == Admitted()
    give_back((meter,), 25, 25)
    assert admit((meter,), 1, 1, 0.0) == Admitted()
    give_back((meter,), 25, 25)  # what has drained meanwhile is not given back twice
    assert [admit((meter,), 10, 1, 1.0), admit((meter,), 1, 1, 1.0)] == [
        Admitted(),
        TooMuch("log 'a': 10 records a second"),
    ]
