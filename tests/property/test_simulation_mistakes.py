"""The simulator is tested: each mistake of protocol, put in by itself, breaks a promise within so many seeds."""

from __future__ import annotations

import pytest

from scribengin.testing.simulation.plan import drawn
from scribengin.testing.simulation.world import simulate
from tests.property.simulation_mistakes import MISTAKES, Mistake

SEEDS_MAX = 500


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(simulate(drawn(seed)).failure is not None for seed in range(SEEDS_MAX))
