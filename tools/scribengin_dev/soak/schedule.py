"""What happens in a soak, and when: the same seed and length are the same schedule, anywhere. Pure.

Acts come in decks: each deck has every kind of act once, in an order of its own, so that nothing is left out for long.
One act is over, and had the time to recover, before the next one begins; a machine that is slower than that makes a
soak longer, and never another one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "kill worker",
    "kill master",
    "kill both",
    "stall worker",
    "stall master",
    "pause",
    "cut registry",
    "scale workers",
    "scale tasks",
    "live edit",
    "rolling edit",
    "bad edit",
    "restart",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FLOWS = 2
"""How many dataflows the chain has."""
BEGINNING_S = 4.0
"""How long the chain is left in peace at first."""

RECOVERY_S: dict[Kind, float] = {
    "kill worker": 24.0,
    "kill master": 12.0,
    "kill both": 28.0,
    "stall worker": 28.0,
    "stall master": 14.0,
    "pause": 5.0,
    "cut registry": 28.0,
    "scale workers": 18.0,
    "scale tasks": 6.0,
    "live edit": 4.0,
    "rolling edit": 24.0,
    "bad edit": 4.0,
    "restart": 28.0,
}
"""The seconds that each act is given at least, from its end to the next one: what a machine of two cores
needs that has nothing else to do."""
_LASTING_S: dict[Kind, tuple[float, float]] = {"pause": (1.0, 5.0), "cut registry": (1.0, 15.0)}
_REST_S = 4.0


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that is done to the dataflow number `flow` of the chain, `at_s` after the beginning at the earliest.

    What it breaks is mended `lasts_s` later (or, of a process that stands still, when its session has ended). `dice` is
    for what the act has to choose, a number from 0 to 999.
    """

    at_s: float
    kind: Kind
    flow: int
    lasts_s: float
    dice: int


def schedule(seed: int, length_s: float) -> tuple[Act, ...]:
    """The acts of a soak of `length_s` seconds, in order: those that are over and recovered from by then."""
    chance = random.Random(f"soak {seed}")
    acts: list[Act] = []
    at_s, deck = BEGINNING_S, list[Kind]()
    while True:
        deck = deck or chance.sample(KINDS, len(KINDS))
        kind = deck.pop()
        shortest_s, longest_s = _LASTING_S.get(kind, (0.0, 0.0))
        lasts_s = round(chance.uniform(shortest_s, longest_s), 1)
        act = Act(at_s, kind, chance.randrange(FLOWS), lasts_s, chance.randrange(1000))
        at_s = round(recovered_s(act) + chance.uniform(0.0, _REST_S), 1)
        if recovered_s(act) > length_s:
            return tuple(acts)
        acts.append(act)


def recovered_s(act: Act) -> float:
    """Up to when nothing else happens."""
    return act.at_s + act.lasts_s + RECOVERY_S[act.kind]
