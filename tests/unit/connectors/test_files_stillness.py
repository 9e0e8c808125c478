"""When a file counts as complete: by its own time while clocks go as they should, else by what was seen of it."""

from __future__ import annotations

import pytest

from scribengin.connectors.files.source.listing import Stillness
from scribengin.testing.clocks import JumpingClock, ManualClock

HOUR_MS = 3_600_000
SETTLE_S = 10.0


class SetClock(ManualClock):
    """A ManualClock whose wall time can be set wrong."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def test_a_file_is_still_when_nothing_was_written_to_it_for_long_enough(clock: SetClock) -> None:
    stillness, written_ms = Stillness(clock, SETTLE_S), clock.now_ms()
    assert not stillness.is_still("a", 1, written_ms)
    clock.advance_s(9)
    assert not stillness.is_still("a", 1, written_ms)
    clock.advance_s(1)
    assert stillness.is_still("a", 1, written_ms)


def test_an_old_file_is_still_at_the_first_look(clock: SetClock) -> None:
    assert Stillness(clock, SETTLE_S).is_still("a", 1, clock.now_ms() - HOUR_MS)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_by_hours_makes_no_file_still_and_keeps_none_from_it(clock: SetClock, hours: int) -> None:
    stillness, written_ms = Stillness(clock, SETTLE_S), clock.now_ms()
    clock.ahead_ms = hours * HOUR_MS
    assert not stillness.is_still("a", 1, written_ms), "somebody may be in the middle of it"
    clock.advance_s(9)
    assert not stillness.is_still("a", 1, written_ms)
    clock.advance_s(1)
    assert stillness.is_still("a", 1, written_ms)


def test_after_a_jump_a_file_that_changes_is_waited_for_again(clock: SetClock) -> None:
    stillness, written_ms = Stillness(clock, SETTLE_S), clock.now_ms()
    clock.ahead_ms = HOUR_MS
    stillness.is_still("a", 1, written_ms)
    clock.advance_s(8)
    assert not stillness.is_still("a", 2, written_ms + 8000)
    clock.advance_s(8)
    assert not stillness.is_still("a", 2, written_ms + 8000)
    clock.advance_s(2)
    assert stillness.is_still("a", 2, written_ms + 8000)


def test_a_clock_that_is_slowed_down_has_not_jumped(clock: SetClock) -> None:
    stillness = Stillness(clock, SETTLE_S)
    for _ in range(100):
        clock.advance_s(60)
        clock.ahead_ms -= 30
        assert stillness.is_still("a", 1, clock.now_ms() - HOUR_MS)


def test_where_files_appear_whole_nothing_is_waited_for_whatever_the_clock_does() -> None:
    stillness = Stillness(JumpingClock(), settle_s=0)
    stillness.is_still("a", 1, 0)
    assert all(stillness.is_still(name, 1, 0) for name in "abc")
