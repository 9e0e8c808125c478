"""What a container holds, as the benchmark of state counts it."""

from __future__ import annotations

import os

from scribengin.testing.clocks import ManualClock
from scribengin_dev.bench.dataflows.state_memory import Held, HeldByAll


def test_a_process_counts_once_it_has_been_there_for_a_second() -> None:
    """Until it is another program it has all memory of the one that started it, however often one looks."""
    clock, there = ManualClock(), [os.getpid()]
    held = HeldByAll(lambda: there, clock)
    assert held.look() == Held()
    clock.advance_s(0.9)
    assert held.look() == Held()
    clock.advance_s(0.1)
    once = held.look()
    assert min(once.own, once.shared_once, once.resident) > 0
    there.clear()
    assert held.look() == Held()
    assert held.most.own >= once.own, "the most stays"
