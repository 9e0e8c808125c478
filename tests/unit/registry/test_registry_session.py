"""What a session's tracker tells, to whom, and when: without a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from scribengin_registry.client.deadline import Deadline
from scribengin_registry.client.session import SessionTracker
from scribengin_registry.contract import SessionState

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
LOST, CLOSED = SessionState.LOST, SessionState.CLOSED


def at_once(action: Callable[[], None]) -> None:
    """Dispatches on the caller's thread."""
    action()


def test_listeners_hear_every_change_once_and_nothing_after_the_end() -> None:
    tracker = SessionTracker(at_once)
    heard: list[SessionState] = []
    tracker.listen(heard.append)
    for state in (CONNECTED, CONNECTED, SUSPENDED, LOST, CONNECTED, CLOSED, LOST, CONNECTED):
        tracker.move(state)
    assert heard == [CONNECTED, SUSPENDED, LOST, CONNECTED, CLOSED]
    assert tracker.state is CLOSED


def test_the_session_id_stays_until_there_is_another_one() -> None:
    tracker = SessionTracker(at_once)
    assert tracker.session_id == 0
    tracker.move(CONNECTED, 7)
    tracker.move(SUSPENDED)
    tracker.move(LOST)
    assert tracker.session_id == 7
    tracker.move(CONNECTED, 8)
    assert tracker.session_id == 8


def test_what_waits_for_the_session_to_settle_happens_once_when_it_does() -> None:
    for outcome in (CONNECTED, LOST, CLOSED):
        tracker = SessionTracker(at_once)
        happened: list[str] = []
        tracker.move(CONNECTED)
        tracker.when_settled(partial(happened.append, "at once"))
        tracker.move(SUSPENDED)
        tracker.when_settled(partial(happened.append, "later"))
        assert happened == ["at once"]
        tracker.move(outcome)
        tracker.move(CLOSED)
        assert happened == ["at once", "later"]


def test_waiting_ends_with_the_change_or_the_deadline() -> None:
    tracker = SessionTracker(at_once)
    assert tracker.await_settled(Deadline(0)) is SUSPENDED
    assert tracker.await_usable(Deadline(0)) is SUSPENDED
    moving = threading.Thread(target=tracker.move, args=(CONNECTED,))
    moving.start()
    assert tracker.await_usable(Deadline(10)) is CONNECTED
    moving.join()
    tracker.move(LOST)
    assert tracker.await_settled(Deadline(10)) is LOST
