"""A race is looked at again, so often and no oftener, and a lost reply only by those who can tell what became of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_registry.compare_and_set import LookAgain, compare_and_set, win_race
from scribengin_registry.errors import NodeMissing, OutcomeUnknown, RegistryUnreachable, VersionConflict


@pytest.fixture
def registry() -> MemoryRegistry:
    made = MemoryEnsemble().connect()
    made.create("/n", b"0")
    return made


class Failing:
    """An attempt that fails in these ways, one after the other, and then returns how often it was made."""

    def __init__(self, *failures: Exception) -> None:
        self.left = list(failures)
        self.made = 0

    def __call__(self) -> int:
        self.made += 1
        if self.left:
            raise self.left.pop(0)
        return self.made


CONFLICT, GONE, LOST = VersionConflict("a race", path="/n"), NodeMissing("gone", path="/n"), OutcomeUnknown("lost")


def test_a_race_is_looked_at_again() -> None:
    assert win_race(Failing(CONFLICT, GONE, LookAgain())) == 4


def test_what_is_no_race_is_raised_at_once() -> None:
    for failing in (Failing(RegistryUnreachable("away")), Failing(LOST)):
        with pytest.raises((RegistryUnreachable, OutcomeUnknown)):
            win_race(failing)
        assert failing.made == 1
    failing = Failing(GONE)
    with pytest.raises(NodeMissing):
        win_race(failing, races=(VersionConflict,))
    assert failing.made == 1


def test_a_lost_reply_is_a_race_for_those_who_see_their_own_work(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(registry, "sync", lambda path="/": synced.append(path))
    assert win_race(Failing(LOST, CONFLICT), registry=registry) == 3
    assert len(synced) == 2, "every further look sees what was committed before it"


@pytest.mark.parametrize(
    ("exhausted", "raised"), [(None, VersionConflict), (lambda: RuntimeError("busy"), RuntimeError)]
)
def test_it_is_bounded_and_says_in_the_end_what_it_was_told_to(
    exhausted: Callable[[], Exception] | None, raised: type[Exception]
) -> None:
    failing = Failing(*[CONFLICT] * 9)
    with pytest.raises(raised):
        win_race(failing, tries_max=3, exhausted=exhausted)
    assert failing.made == 3


def test_of_two_that_change_a_node_neither_change_is_lost(registry: MemoryRegistry) -> None:
    others = iter([b"7", b"8"])

    def change(data: bytes) -> bytes:
        other = next(others, None)
        if other is not None:
            registry.set("/n", other)
        return data + b"!"

    assert compare_and_set(lambda: registry.get("/n"), registry, "/n", change) == b"8"
    assert registry.get("/n").data == b"8!"
