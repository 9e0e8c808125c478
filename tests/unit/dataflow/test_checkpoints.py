"""Taking over a checkpoint: every interleaving of three owners and of the stale queries before them, on a model of the
directories; and the real thing on real files, stopped at every step.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from scribengin.dataflow.round.checkpoints import (
    MARKER,
    Answer,
    CheckpointPlace,
    Checkpoints,
    HasMarker,
    ListPlaces,
    MoveTo,
    RemoveStale,
    Step,
    Takeover,
    take_checkpoint,
)
from scribengin.errors import CheckpointMismatch, StaleOwner
from scribengin.filesystems.contract import clear_errors
from scribengin.filesystems.local import LocalFileSystem
from scribengin.testing.failpoints import at_failpoint, record_stops
from tests.dying import Died, die

OWNERS = (1, 2, 3)
RECREATIONS_MAX = 1
"""How often stale queries make directories of theirs anew in one interleaving."""

History = tuple[Answer, ...]
Directories = frozenset[tuple[CheckpointPlace, bool]]
"""Where there is one, and whether it has the marker."""


@dataclass(frozen=True)
class World:
    """A state of the exploration: the directories, what each owner has been answered, and what stale ones did."""

    directories: Directories
    answers: tuple[History, ...]
    recreated: int = 0


BEGINNING = World(frozenset({(CheckpointPlace(0, 0), True)}), tuple(() for _ in OWNERS))
"""The owner under epoch 0 was fenced, and knows nothing of it: the checkpoint is under its epoch."""


class Lost(Exception):
    """An interleaving after which the last owner is without the checkpoint."""


def explore(take: Callable[[int], Takeover]) -> int:
    """Go through all interleavings. Returns how many states they have; raises Lost."""

    @cache
    def now(owner: int, history: History) -> Step | CheckpointPlace | str:
        """What an owner does next, where it has the checkpoint, or how it ended without."""
        steps = take(owner)
        try:
            step = steps.send(None)
            for answer in history:
                step = steps.send(answer)
            return step
        except StopIteration as end:
            return cast(CheckpointPlace | None, end.value) or "missing"
        except StaleOwner:
            return "stale"

    seen: set[World] = set()
    waiting = [BEGINNING]
    while waiting:
        world = waiting.pop()
        if world in seen:
            continue
        seen.add(world)
        states = [now(owner, answers) for owner, answers in zip(OWNERS, world.answers, strict=True)]
        if isinstance(states[-1], str) or (
            isinstance(states[-1], CheckpointPlace) and not dict(world.directories).get(states[-1])
        ):
            raise Lost(f"{states[-1]}: {world}")
        waiting.extend(
            _after(world, n, step) for n, step in enumerate(states) if not isinstance(step, CheckpointPlace | str)
        )
        if world.recreated < RECREATIONS_MAX:
            waiting.extend(
                World(world.directories | {(place, False)}, world.answers, world.recreated + 1)
                for place in (
                    CheckpointPlace(0, 0),
                    *states[:-1],
                )  # where a stale query believes that its checkpoint is
                if isinstance(place, CheckpointPlace) and place not in dict(world.directories)
            )
    return len(seen)


def _after(world: World, index: int, step: Step) -> World:
    there = dict(world.directories)
    answer: Answer
    match step:
        case ListPlaces():
            answer = tuple(sorted(there))
        case HasMarker(place):
            answer = there.get(place, False)
        case MoveTo(earlier, place):
            answer = earlier in there
            if answer:
                assert place not in there, "a name is renamed to once"
                there[place] = there.pop(earlier)
        case RemoveStale(place):
            answer = there.pop(place, None) and None
    answers = (*world.answers[:index], (*world.answers[index], answer), *world.answers[index + 1 :])
    return World(frozenset(there.items()), answers, world.recreated)


@pytest.mark.long
def test_in_every_interleaving_the_last_owner_gets_the_checkpoint_and_keeps_it() -> None:
    assert explore(take_checkpoint) > 10_000


def trusting_the_rename(epoch: int) -> Takeover:
    """The mistake: what was renamed is taken for what was looked at."""
    found = yield ListPlaces()
    assert isinstance(found, tuple)
    for earlier in sorted(found, reverse=True):
        if earlier.epoch < epoch and (yield HasMarker(earlier)):
            return CheckpointPlace(epoch, 1) if (yield MoveTo(earlier, CheckpointPlace(epoch, 1))) else None
    return None


def trusting_the_name(epoch: int) -> Takeover:
    """The mistake: a directory is the checkpoint because it has the highest epoch, whatever is in it."""
    for attempt in range(1, 100):
        found = yield ListPlaces()
        assert isinstance(found, tuple)
        highest = max(found)
        if highest.epoch >= epoch:
            return highest
        yield MoveTo(highest, CheckpointPlace(epoch, attempt))
    return None


def looking_once(epoch: int) -> Takeover:
    """The mistake: one look in which no directory has the marker is enough to call the checkpoint missing."""
    steps = take_checkpoint(epoch)
    answer: Answer = None
    unmarked: bool | None = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return cast(CheckpointPlace | None, end.value)
        if isinstance(step, ListPlaces) and unmarked:
            return None
        answer = yield step
        unmarked = {ListPlaces: True, MoveTo: False}.get(type(step), unmarked and not answer)


@pytest.mark.parametrize("mistake", [trusting_the_rename, trusting_the_name, looking_once])
def test_the_exploration_finds_what_a_simpler_take_over_would_lose(mistake: Callable[[int], Takeover]) -> None:
    with pytest.raises(Lost):
        explore(mistake)


# -- on files


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "flow" / "task-0"


def checkpoints_of(home: Path) -> Checkpoints:
    return Checkpoints(LocalFileSystem(), str(home))


def test_a_checkpoint_moves_to_its_new_owner_with_all_that_is_in_it(home: Path) -> None:
    first = checkpoints_of(home).begin(1, 4)
    (Path(first.query.path) / "offsets").write_text("the plans of its batches")
    second = checkpoints_of(home).take(first.mark.name, 5)
    assert second.mark == first.mark
    assert (Path(second.query.path) / "offsets").read_text() == "the plans of its batches"
    assert not Path(first.query.path).exists()


def test_what_a_stale_query_has_made_anew_is_nobodys_and_a_later_owner_is_left_alone(home: Path) -> None:
    first = checkpoints_of(home).begin(1, 4)
    third = checkpoints_of(home).take(first.mark.name, 3)
    Path(first.query.path, "offsets").mkdir(parents=True)
    with pytest.raises(StaleOwner, match="its later owner's, under epoch 3; this one has epoch 2"):
        checkpoints_of(home).take(first.mark.name, 2)
    assert Path(third.query.path).exists()
    assert checkpoints_of(home).take(first.mark.name, 4).mark == first.mark


def test_a_checkpoint_that_is_not_there_is_refused_with_both_sides(home: Path) -> None:
    name = checkpoints_of(home).begin(1, 4).mark.name
    shutil.rmtree(home)
    with pytest.raises(CheckpointMismatch) as refused:
        checkpoints_of(home).take(name, 2)
    assert f"the commit logs name checkpoint {name}, and {home} has none" in str(refused.value)


def test_a_checkpoint_of_an_earlier_dataflow_of_the_name_is_nobodys(home: Path) -> None:
    earlier = checkpoints_of(home).begin(7, 4)
    mine = checkpoints_of(home).begin(2, 4)
    assert checkpoints_of(home).take(mine.mark.name, 3).mark == mine.mark
    assert Path(earlier.query.path).exists()


def test_an_owner_that_dies_at_any_step_leaves_the_checkpoint_to_the_next_one(home: Path) -> None:
    def begun() -> tuple[str, Path]:
        """A checkpoint, and what a stale query of an owner before has made anew."""
        name = checkpoints_of(home).begin(1, 4).mark.name
        stale = home / f"{name}-0.1"
        (stale / "query" / "offsets").mkdir(parents=True)
        return name, stale

    name, stale = begun()
    with record_stops() as passed:
        checkpoints_of(home).take(name, 2)
    assert {"files.rename:after", "checkpoint.remove_stale:before", "checkpoint.remove_stale:after"} <= set(passed)
    assert not stale.exists()
    for at, stop in enumerate(passed):
        shutil.rmtree(home)
        name, stale = begun()
        with at_failpoint(stop, die, occurrence=passed[: at + 1].count(stop)), pytest.raises(Died):
            checkpoints_of(home).take(name, 2)
        assert checkpoints_of(home).take(name, 3).mark.name == name, stop
        assert not stale.exists(), stop


def test_what_a_stale_query_has_left_and_cannot_be_removed_stays_for_the_next_owner(home: Path) -> None:
    class Kept(LocalFileSystem):
        def remove_tree(self, path: str) -> None:
            with clear_errors("delete", path):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    name = checkpoints_of(home).begin(1, 4).mark.name
    stale = home / f"{name}-0.1"
    stale.mkdir()
    taken = Checkpoints(Kept(), str(home)).take(name, 2)
    assert (Path(taken.query.path).parent / MARKER).exists()
    assert stale.exists()
    assert checkpoints_of(home).take(name, 3).mark == taken.mark
    assert not stale.exists()


def test_an_owner_that_dies_while_it_begins_one_has_left_nothing_that_is_taken_for_it(home: Path) -> None:
    with at_failpoint("files.rename:before", die), pytest.raises(Died):
        checkpoints_of(home).begin(1, 4)
    [directory] = home.iterdir()
    with pytest.raises(CheckpointMismatch):
        checkpoints_of(home).take(directory.name.rpartition("-")[0], 2)
