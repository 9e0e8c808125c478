"""A deadline counts the time that a process runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scribengin.testing.clocks import ManualClock
from scribengin_registry.client.deadline import Deadline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr("scribengin_registry.client.deadline.time", SimpleNamespace(monotonic=clock.monotonic_s))
    return clock


def test_it_passes_once_so_much_time_has(clock: ManualClock) -> None:
    deadline = Deadline(3.0)
    for passed in (False, False, True):
        clock.advance_s(1.0)
        assert deadline.passed is passed
    assert Deadline(0.0).passed


def test_a_wait_is_as_long_as_there_is_time(clock: ManualClock) -> None:
    waits: list[float] = []

    def in_vain(seconds: float) -> bool:
        waits.append(seconds)
        clock.advance_s(seconds)
        return False

    assert not Deadline(1.75).wait(in_vain)
    assert waits == [0.5, 0.5, 0.5, 0.25, 0.0]
    waits.clear()
    assert not Deadline(0.0).wait(in_vain)
    assert waits == [0.0], "one look"


def test_after_a_standstill_there_is_time_to_look_again(clock: ManualClock) -> None:
    looks = 0

    def late(_seconds: float) -> bool:
        nonlocal looks
        looks += 1
        clock.advance_s(41.0)
        return looks == 3

    assert Deadline(5.0).wait(late)
    assert not Deadline(5.0).wait(late), "no end of standstills"
    assert looks == 7


def test_a_standstill_that_took_all_the_time_leaves_one_look(clock: ManualClock) -> None:
    came = False

    def while_it_stands_still(_seconds: float) -> bool:
        nonlocal came
        before, came = came, True
        clock.advance_s(3.0)
        return before

    assert Deadline(1.0).wait(while_it_stands_still)
