"""Workers whose tokens are about to end are replaced in the middle of everything else, and every promise is kept."""

from __future__ import annotations

import pytest

from scribengin.testing.simulation.machine import SimulatedLauncher
from scribengin.testing.simulation.plan import drawn
from scribengin.testing.simulation.world import simulate

BEGINNING_MS = 6000
"""What is started so soon gets tokens that end ..."""
AGE_MAX_MS = 5000
"""... so that it is to be replaced at this age. What takes its place stays: the cluster comes to an end."""


def ageing(launcher: SimulatedLauncher) -> frozenset[str]:
    machine = launcher._machine
    now_ms = machine.world.clock.now_ms()
    first_ms = min(container.descriptor.launched_ms for container in machine.containers.values())
    running = [container.descriptor for container in machine.running]
    old = [c for c in running if c.launched_ms < first_ms + BEGINNING_MS and now_ms - c.launched_ms >= AGE_MAX_MS]
    return frozenset(container.name for container in old)


@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 300), marks=[pytest.mark.full, pytest.mark.long])], ids=str
)
def test_workers_that_age_are_replaced_and_every_promise_is_kept(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedLauncher, "ageing", ageing)
    replaced = 0
    for seed in seeds:
        outcome = simulate(drawn(seed))
        assert outcome.promise is None, outcome.transcript
        replaced += sum(line.what.startswith("worker_ageing") for line in outcome.lines)
    assert replaced >= len(seeds) / 2
