"""The schedules of Dafka's roles are tested: each mistake of protocol, put in by itself, breaks a promise within so
many seeds. The seed that did it last is tried first.
"""

from __future__ import annotations

import pytest

from tests.property.dafka_mistakes import DAFKA_MISTAKES
from tests.property.dafka_schedules import play_seed
from tests.property.simulation_mistakes import Mistake

SEEDS_MAX = 300


@pytest.mark.parametrize("mistake", DAFKA_MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_of_a_role_is_caught(mistake: Mistake) -> None:
    last, said = DAFKA_MISTAKES[mistake]
    told = ((seed, told_of(mistake, seed)) for seed in (last, *range(SEEDS_MAX)))
    caught, words = next(((seed, words) for seed, words in told if words is not None), (None, ""))
    assert caught is not None
    assert said in words
    play_seed(caught)  # the schedule keeps every promise without the mistake
    if caught != last:
        print(f"{mistake.__name__} is caught by seed {caught} by now")


def told_of(mistake: Mistake, seed: int) -> str | None:
    """Made anew for every schedule, as it may remember."""
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        try:
            play_seed(seed)
        except AssertionError as broken:
            return str(broken)
    return None
