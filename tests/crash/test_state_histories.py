"""Histories of a task with state, as hypothesis draws them: what comes when, how large rounds are, where owners die,
and in how many partitions the state is wanted meanwhile. Each record is counted once, in its order, or is late by a
rule that knows nothing of owners. On the query and the places of test_stateful_crashes.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.crash.passings import Died, Passing, at, die
from tests.crash.test_divided_state_crashes import log_of
from tests.crash.test_stateful_crashes import Case, Late, Logs
from tests.temporary import temporary_directory

NAMES = (
    "query.write",
    "round.commit",
    "ownership.name_batch",
    "files.rename",
    "files.remove",
    "checkpoint.take_schemas",
    "checkpoint.remove_stale",
    "state.divide",
    "log.stage_write",
    "log.control_write",
    "log.round_show",
)
"""What an owner does to the outside world, before or behind which it may die: if it comes to that."""
STOPS = [f"{name}:{when}" for name in NAMES for when in ("after", "before")]


@dataclass(frozen=True)
class Step:
    """A log comes, of one record a key; owners die over it, and one may come to the end."""

    keys: str
    deaths: tuple[Passing, ...] = ()
    partitions: int | None = None
    """Wanted from here on; None: as many as there are."""
    ends: bool = True
    """Whether the last owner comes to the end of all that there is, before the next log comes."""


@dataclass(frozen=True)
class Story:
    records_max: int
    """Of a log in a round."""
    steps: tuple[Step, ...]

    @property
    def keys(self) -> str:
        return "".join(step.keys for step in self.steps)


DEATHS = st.lists(st.tuples(st.sampled_from(STOPS), st.integers(1, 8)), max_size=2).map(tuple)
STEPS = st.builds(
    Step,
    keys=st.text("abcd", min_size=1, max_size=6),
    deaths=DEATHS,
    partitions=st.sampled_from((None, 1, 2, 5)),
    ends=st.booleans(),
)
STORIES = st.builds(Story, st.integers(1, 4), st.lists(STEPS, min_size=1, max_size=3).map(tuple))


def lived(story: Story, place: Case, *, to_the_end: bool) -> None:
    """Have it happen. `to_the_end`: before each next log an owner comes to the end, whatever the story says."""
    place.config = place.config.model_copy(
        update={"round": place.config.round.model_copy(update={"records_max": story.records_max})}
    )
    generations = count(1)
    for number, step in enumerate(story.steps):
        place.places.fill(number, step.keys)
        place.want(step.partitions)
        for death in step.deaths:
            with at(death, die), suppress(Died):
                place.own_to_the_end(next(generations))
        if step.ends or to_the_end or step is story.steps[-1]:
            place.own_to_the_end(next(generations))


def counts_each_once(story: Story) -> None:
    """Whatever happens in it."""
    with temporary_directory() as directory:
        place = Case(Path(directory), Logs, ())
        lived(story, place, to_the_end=False)
        *lines, closed = place.delivered()
        counted = [line for line in lines if not line.startswith("closed")]
        for key, many in Counter(story.keys).items():
            assert [line for line in counted if line[0] == key] == [f"{key} {n + 1}" for n in range(many)]
        assert len(counted) == len(story.keys)
        assert closed == f"closed {len(story.keys)}"
        log = log_of(place)
        assert log.planned == log.done
        assert story.steps[-1].partitions in (None, log.partitions(log.done))


def rounds(story: Story) -> Iterator[str]:
    """The keys of each round, where an owner comes to the end of each log before the next one comes."""
    for step in story.steps:
        for start in range(0, len(step.keys), story.records_max):
            yield step.keys[start : start + story.records_max]


def told(batches: Iterator[str]) -> list[str]:
    """What comes out of rounds, where a key that is not after all that were counted in the rounds before is late."""
    counts: Counter[str] = Counter()
    lines = []
    for batch in batches:
        latest = max(counts, default="")
        for key in batch:
            if key <= latest:
                lines.append(f"{key} not after {latest}")
            else:
                counts[key] += 1
                lines.append(f"{key} {counts[key]}")
    return sorted(lines)


def takes_for_late_what_is(story: Story) -> None:
    """Whatever happens in it."""
    with temporary_directory() as directory:
        place = Case(Path(directory), Late, ())
        lived(story, place, to_the_end=True)
        lines = [line for line in place.delivered() if not line.startswith("closed")]
        assert sorted(lines) == told(rounds(story))


NO_NAME = Story(1, (Step("a", deaths=(("ownership.name_batch:before", 1),)),))
"""What an owner leaves who dies before its first checkpoint is named is nobody's."""


@settings(max_examples=25, derandomize=True)
@given(STORIES)
@example(NO_NAME)
def test_each_record_is_counted_once_whatever_happens(story: Story) -> None:
    counts_each_once(story)


@settings(max_examples=25, derandomize=True)
@given(STORIES)
def test_what_is_late_is_known_whatever_happens(story: Story) -> None:
    takes_for_late_what_is(story)


@pytest.mark.full
@settings(max_examples=500)
@given(STORIES)
def test_in_more_histories_each_record_is_counted_once(story: Story) -> None:
    counts_each_once(story)


@pytest.mark.full
@settings(max_examples=500)
@given(STORIES)
def test_in_more_histories_it_is_known_what_is_late(story: Story) -> None:
    takes_for_late_what_is(story)
