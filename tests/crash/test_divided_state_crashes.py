"""State is divided anew exactly once: the owner that does it is stopped before and after every effect of its own and of
its query's. What comes out must be as if nothing had happened, and the state in as many partitions as are wanted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.registry.paths import commit_log, source_streams
from scribengin.dataflow.round.checkpoints import checkpoints_of
from scribengin.spark.stateful.query_log import QueryLog
from scribengin.testing.failpoints import record_stops
from scribengin.worker.failures import Remedy
from scribengin_registry.errors import OutcomeUnknown
from tests.crash.passings import Died, Passing, at, die, lose_the_reply, numbered, stalled
from tests.crash.test_stateful_crashes import ON_LOGS, PLACES, Case, Logs, case, expected

__all__ = ["case", "expected"]  # fixtures, used by name

BATCH_PLANNED: Passing = ("round.commit:after", 2)
"""Where an owner dies whose batch is committed, and not done."""


def begun(place: Case) -> Case:
    """The first owner has died; the next one is to divide its state."""
    place.want(2)
    with at(BATCH_PLANNED, die), pytest.raises(Died):
        place.own_to_the_end(1)
    place.want(5)
    return place


def log_of(place: Case) -> QueryLog:
    """Of the checkpoint that the commit logs name: an owner who dies before he has named one leaves it to nobody."""
    assert place.config.state is not None
    streams = source_streams("counting", "src")
    paths = [commit_log(f"{streams}/{stream}") for stream in place.registry.children(streams)]
    batches = [CommitLog.from_bytes(place.registry.get(path).data, path=path).batch for path in paths]
    [name] = {batch.checkpoint for batch in batches if batch is not None}
    checkpoint = checkpoints_of("counting", "task-0", place.config.state).find(name)
    assert checkpoint is not None
    return QueryLog.read(checkpoint.query)


def divided(place: Case) -> list[int]:
    """The numbers of partitions that its state was in, one after the other."""
    log = log_of(place)
    assert log.planned == log.done
    numbers = [0, *(number for number in range(log.done + 1) if log.divides(number))]
    return [log.partitions(number) for number in numbers]


def stops_of_dividing(place: Case) -> list[Passing]:
    """What the next owner passes up to the commit of the round that follows its dividing the state."""
    begun(place)
    with record_stops() as passed:
        place.own_to_the_end(2)
    assert {"state.divide:before", "state.divide:after", "ownership.name_batch:before"} <= set(passed)
    named = passed.index("ownership.name_batch:after")
    return numbered(passed)[: passed.index("round.commit:after", named) + 1]


@pytest.fixture
def dividing(case: Callable[[], Case]) -> list[Passing]:
    return stops_of_dividing(case())


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        *itertools.product(PLACES, [5]),
        pytest.param("logs", 2, marks=pytest.mark.long),
        *(pytest.param(place, 2, marks=pytest.mark.full) for place in PLACES if place != "logs"),
        *(pytest.param(place, 3, marks=pytest.mark.full) for place in PLACES),
    ],
    indirect=["case"],
)
def test_state_is_divided_anew_once_wherever_an_owner_stops(
    case: Callable[[], Case], dividing: list[Passing], expected: list[str], wanted: int
) -> None:
    """Also where another number is wanted by the time the next owner comes, or the old one again."""
    ways = {5: ([2, 5],), 2: ([2], [2, 5, 2]), 3: ([2, 3], [2, 5, 3])}[wanted]
    for stop in dividing:
        place = begun(case())
        with at(stop, die), pytest.raises(Died):
            place.own_to_the_end(2)
        place.want(wanted)
        place.own_to_the_end(3)
        assert place.delivered() == expected, stop
        assert divided(place) in ways, stop


PLANNED: Passing = ("query.write:after", 1)
"""Where an owner dies once the batch that divides the state is planned, and nothing of it is written."""
DESCRIBED: Passing = ("query.write:after", 4)
"""And once it is done but for the word of it."""


def failed(place: Case, died_at: Passing, wanted: int | None) -> Case:
    """An owner has died in the middle of dividing its state, and another number is wanted."""
    place.want(2)
    place.own_to_the_end(1)
    place.want(5)
    with at(died_at, die), pytest.raises(Died):
        place.own_to_the_end(2)
    place.want(wanted)
    return place


def stops_of_taking_back(place: Case, expected: list[str]) -> list[Passing]:
    """What the next owner passes up to where it has taken back what was begun."""
    with record_stops() as passed:
        place.own_to_the_end(3)
    assert (place.delivered(), divided(place)) == (expected, [2])
    assert "state.divide:before" not in passed
    removed = [number for number, stop in enumerate(passed) if stop == "files.remove:after"]
    return numbered(passed)[: removed[-1] + 1]


@ON_LOGS
@pytest.mark.long
def test_an_owner_that_stalls_while_it_takes_a_dividing_back_changes_nothing_that_counts(
    case: Callable[[], Case], expected: list[str]
) -> None:
    ends: dict[Passing, Remedy | None] = {}
    for stop in stops_of_taking_back(failed(case(), DESCRIBED, 2), expected):
        place = failed(case(), DESCRIBED, 2)
        ends[stop] = stalled(stop, place.own_to_the_end, 3)
        place.own_to_the_end(5)
        assert (place.delivered(), divided(place)) == (expected, [2]), stop
    assert set(ends.values()) <= {None, Remedy.DROP, Remedy.RETRY, Remedy.PATIENT}, ends


@ON_LOGS
@pytest.mark.parametrize(("died_at", "wanted"), [(PLANNED, None), (DESCRIBED, 2)])
def test_a_dividing_that_never_ends_is_taken_back_wherever_an_owner_stops(
    case: Callable[[], Case], expected: list[str], died_at: Passing, wanted: int | None
) -> None:
    for stop in stops_of_taking_back(failed(case(), died_at, wanted), expected):
        place = failed(case(), died_at, wanted)
        with at(stop, die), pytest.raises(Died):
            place.own_to_the_end(3)
        place.own_to_the_end(4)
        assert (place.delivered(), divided(place)) == (expected, [2]), stop
    place.want(5)
    place.own_to_the_end(5)
    assert (place.delivered(), divided(place)) == (expected, [2, 5]), "it may be tried again"


@ON_LOGS
@pytest.mark.long
def test_an_owner_that_stalls_while_it_divides_state_changes_nothing_that_counts(
    case: Callable[[], Case], dividing: list[Passing], expected: list[str]
) -> None:
    ends: dict[Passing, Remedy | None] = {}
    for stop in dividing:
        place = begun(case())
        ends[stop] = stalled(stop, place.own_to_the_end, 2)
        place.own_to_the_end(4)
        assert place.delivered() == expected, stop
        assert divided(place) == [2, 5], stop
    assert set(ends.values()) <= {None, Remedy.DROP, Remedy.RETRY, Remedy.PATIENT}, ends


def test_a_lost_reply_to_the_naming_of_a_dividing_batch_costs_another_take_over(
    case: Callable[[], Case], dividing: list[Passing], expected: list[str]
) -> None:
    for stop in dividing:
        if stop[0].startswith("ownership.name_batch"):
            place = begun(case())
            with at(stop, lose_the_reply), pytest.raises(OutcomeUnknown):
                place.own_to_the_end(2)
            place.own_to_the_end(3)
            assert (place.delivered(), divided(place)) == (expected, [2, 5]), stop


def test_a_number_of_partitions_that_is_left_out_stays(tmp_path: Path) -> None:
    place = begun(Case(tmp_path, Logs))
    assert place.config.state is not None
    left_out = place.config.state.model_copy(update={"partitions": None})
    place.config = place.config.model_copy(update={"state": left_out})
    place.own_to_the_end(2)
    assert divided(place) == [2]


def test_a_named_dividing_whose_end_the_power_took_is_done_again_and_no_way_back_is_told(
    tmp_path: Path, expected: list[str]
) -> None:
    place = begun(Case(tmp_path, Logs))
    with at(("ownership.name_batch:after", 1), die), pytest.raises(Died):
        place.own_to_the_end(2)
    log = log_of(place)
    assert log.divides(log.done)
    log.directory.files.remove(f"{log.directory.path}/commits/{log.done}")
    place.want(2)
    place.own_to_the_end(3)
    assert place.ways_back == [2, None, 5]
    assert (place.delivered(), divided(place)) == (expected, [2, 5, 2])
