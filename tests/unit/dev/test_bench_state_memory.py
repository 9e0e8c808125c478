"""What a container holds, as the benchmark of state counts it."""

from __future__ import annotations

import os

from scribengin_dev.bench.dataflows.state_memory import Held, HeldByAll


def test_a_process_that_was_just_started_counts_from_the_second_look_on() -> None:
    """Until it is another program it has all memory of the one that started it."""
    there: list[int] = []
    held = HeldByAll(lambda: there)
    there.append(os.getpid())
    assert held.look() == Held()
    once = held.look()
    assert min(once.own, once.shared_once, once.resident) > 0
    there.clear()
    assert held.look() == Held()
    assert held.most.own >= once.own, "the most stays"
