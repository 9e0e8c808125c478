"""Owners that overlap at random: several at once, each stopped somewhere, some of them late. A seed is a schedule.

Where `test_round_crashes` tries one stop at a time, here a handful of owners under rising generations run into each
other: killed, stalled and resumed behind two successors, their replies lost. In the end one last owner finishes alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from typing import Literal

import pytest

from tests.crash.flow import Place
from tests.crash.places import new_place, record, wrong
from tests.crash.processes import finish, own_to_the_end, resume, start_owner, wait_until_stopped
from tests.crash.stops import BASES, FINISHED, Stop

__all__ = ["new_place"]  # a fixture, used by name

SEEDS = (2, 3)
SEEDS_FULL = (0, 1, *range(4, 200))
LAST_LEASE = 1_000
_ACTIONS: tuple[Literal["pause", "kill", "lose_reply"], ...] = ("pause", "pause", "kill", "lose_reply")


@dataclass
class Schedule:
    """One seed's owners, as they are started and let go on."""

    place: Place
    random: random.Random
    passings: Counter[str]
    stalled: list[ForkServerProcess] = field(default_factory=list)
    running: list[ForkServerProcess] = field(default_factory=list)

    def run(self) -> None:
        """Start owners under rising generations, and let stalled ones go on in between."""
        for generation in range(1, self.random.randint(3, 6)):
            stop = self._stop()
            owner = start_owner(self.place, generation, stop)
            self._let_one_go_on()
            if stop.action == "pause":
                if wait_until_stopped(owner):
                    self.stalled.append(owner)
            elif self.random.random() < 0.7:
                finish(owner)
            else:
                self.running.append(owner)
        last = start_owner(self.place, LAST_LEASE)
        for owner in self.stalled:
            resume(owner)
        for owner in [*self.stalled, *self.running, last]:
            finish(owner)

    def _stop(self) -> Stop:
        name = self.random.choice(sorted(self.passings))
        action = self.random.choice(_ACTIONS)
        occurrence = self.random.randint(1, max(1, self.passings[name] // 4))
        if action == "lose_reply":
            name = name.rsplit(":", 1)[0] + ":before"
        return Stop(name, action, occurrence)

    def _let_one_go_on(self) -> None:
        if self.stalled and self.random.random() < 0.6:
            owner = self.stalled.pop(self.random.randrange(len(self.stalled)))
            resume(owner)
            self.running.append(owner)


@pytest.fixture(scope="module")
def passings() -> dict[int, Counter[str]]:
    """The stops that owners and recoveries pass, by the number of tasks; recorded once."""
    return {}


def stops_of(tasks: int, new_place: Callable[[int], Place], passings: dict[int, Counter[str]]) -> Counter[str]:
    if tasks not in passings:
        passed = record(new_place(tasks), 1)
        for base in BASES:
            place = new_place(tasks)
            finish(start_owner(place, 1, base))
            passed += record(place, 2)
        passings[tasks] = Counter(passed)
    return passings[tasks]


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.full) for seed in SEEDS_FULL)])
def test_whatever_the_schedule_every_record_is_there_once(
    seed: int, new_place: Callable[[int], Place], passings: dict[int, Counter[str]]
) -> None:
    chosen = random.Random(seed)
    tasks = chosen.choice((1, 2))
    place = new_place(tasks)
    Schedule(place, chosen, stops_of(tasks, new_place, passings)).run()
    assert own_to_the_end(place, LAST_LEASE + 1) == FINISHED
    problems = wrong(place, f"seed {seed}")
    assert not problems, "\n".join(problems)
