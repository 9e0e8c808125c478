"""What a master tells of a registry that was away."""

from __future__ import annotations

from scribengin.master.state.absences import REMEMBERED_S, Absences
from scribengin.testing.clocks import ManualClock
from scribengin_registry.contract import SessionState


def away(absences: Absences, clock: ManualClock, seconds: float) -> None:
    absences.heard(SessionState.SUSPENDED)
    clock.advance_s(seconds)
    absences.heard(SessionState.CONNECTED)


def test_each_absence_is_told_once_when_it_is_over() -> None:
    clock = ManualClock()
    absences = Absences(clock)
    absences.heard(SessionState.CONNECTED)
    away(absences, clock, 38.0)
    away(absences, clock, 3.0)
    absences.heard(SessionState.SUSPENDED)
    assert absences.take() == [38.0, 3.0]
    assert absences.take() == []


def test_a_reconnection_is_no_absence_and_an_old_one_is_no_news() -> None:
    clock = ManualClock()
    absences = Absences(clock)
    away(absences, clock, 0.5)
    away(absences, clock, 38.0)
    clock.advance_s(REMEMBERED_S + 1)
    assert absences.take() == []


def test_one_that_ends_with_the_session_is_told_with_what_came_before() -> None:
    clock = ManualClock()
    absences = Absences(clock)
    absences.heard(SessionState.SUSPENDED)
    clock.advance_s(20.0)
    absences.heard(SessionState.LOST)
    clock.advance_s(1.0)
    absences.heard(SessionState.CONNECTED)
    assert absences.take() == [21.0]
