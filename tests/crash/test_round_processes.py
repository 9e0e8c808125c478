"""Owners as real processes, on a real ZooKeeper and real files, killed, stopped and cut off at some moments of a round.

`test_round_crashes.py` tries every moment with simulated ones. Here those are tried that leave a recovery something to
decide; all of them in `test --full`. That both kinds of owners pass the same stops is held, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.flow import Place
from tests.crash.places import new_place, record, wrong
from tests.crash.processes import finish, own_to_the_end, resume, start_owner, wait_until_stopped
from tests.crash.simulated import simulated
from tests.crash.stops import COMMITTED, FINISHED, KILLED, STALE, UNDECIDED, UNREGISTERED, Stop, stops_to_try
from tests.crash.test_round_crashes import undisturbed

__all__ = ["new_place"]  # a fixture, used by name

pytestmark = pytest.mark.timeout(900)
EVERYWHERE = pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.full)])
TASKS = 3


def passed(new_place: Callable[[int], Place], everywhere: bool) -> list[Stop]:
    """What an owner passes, where all of it is tried."""
    return stops_to_try(record(new_place(TASKS), 1)) if everywhere else []


@EVERYWHERE
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(
    new_place: Callable[[int], Place], everywhere: bool
) -> None:
    problems = []
    for stop in (UNDECIDED, COMMITTED, UNREGISTERED, *passed(new_place, everywhere)):
        place = new_place(TASKS)
        assert finish(start_owner(place, 1, stop)) == KILLED, stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@EVERYWHERE
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(
    new_place: Callable[[int], Place], everywhere: bool
) -> None:
    problems = []
    stops = [stop for stop in passed(new_place, everywhere) if stop.name.endswith(":before")]
    for stop in (UNDECIDED, *stops):
        place = new_place(TASKS)
        first = finish(start_owner(place, 1, stop.but("lose_reply")))
        if first != FINISHED:
            assert first == STALE, stop
            assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@EVERYWHERE
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(
    new_place: Callable[[int], Place], everywhere: bool
) -> None:
    problems = []
    for stop in (UNDECIDED, COMMITTED, *passed(new_place, everywhere)):
        place = new_place(TASKS)
        stalled = start_owner(place, 1, stop.but("pause"))
        assert wait_until_stopped(stalled), stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        resume(stalled)
        finish(stalled)
        # And a third one, which would read again whatever the stale one had put back.
        assert own_to_the_end(place, 3) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("tasks", [1, 3])
def test_simulated_owners_pass_the_stops_that_real_ones_do(new_place: Callable[[int], Place], tasks: int) -> None:
    assert set(simulated(tasks, undisturbed)) == set(record(new_place(tasks), 1))
