"""The sinks' last maintenance is asked for once, and again by a master that does not know whether it asked."""

from __future__ import annotations

from scribengin.master.state.facts import MAINTENANCE_TRIES_MAX, LastMaintenance


def test_it_is_asked_for_once_until_it_has_failed() -> None:
    last = LastMaintenance()
    assert [last.to_ask(), last.to_ask()] == [True, False]
    last.heard("the disk is full")
    assert [last.to_ask(), last.to_ask()] == [True, False]
    last.heard(None)
    assert last.done
    assert not last.to_ask()


def test_who_begins_again_asks_again_and_counts_on() -> None:
    last = LastMaintenance()
    for _ in range(MAINTENANCE_TRIES_MAX - 1):
        assert last.to_ask()
        last.heard("the disk is full")
    assert last.to_ask()
    last.forget_asking()
    last.heard(None)  # of the attempt before, if that was asked for: it is told again
    assert not last.done
    assert last.to_ask()
    last.heard("the disk is full")
    assert last.done
    last.forget_asking()
    assert not last.to_ask()
