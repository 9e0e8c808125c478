"""What is to happen in one simulation: how large it is, and its faults. Data, so that it can be made smaller.

A plan is drawn from its seed; the same plan replays byte for byte. Faults name the stop that they happen at, as a
reader of a transcript finds it: "the 3rd time that anybody passes round.commit:after, that process is killed".
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["kill", "stall", "lose request", "lose reply", "cut off", "quorum away", "zombie"]

SESSION_TIMEOUT_S = 2.0
ZOMBIE_S = 3.0
"""A zombie is stalled for so long, which its session does not outlive; then it hears of that only after `seconds`."""
FAULTS_END_S = 14.0
"""Later than that nothing is disturbed any more."""

_KINDS: tuple[FaultKind, ...] = (
    *("kill", "kill", "stall", "stall", "zombie", "zombie"),
    *("lose request", "lose reply", "lose reply", "cut off", "quorum away"),
)
"""Those that find more come more often."""
_EDITS = (
    *("workers=1", "workers=3", "workers=0", "executors_per_worker=2", "tasks=1", "tasks=2", "tasks=3"),
    *("desired_state=paused", "sources.in.paused=true", "rebalance=1", "round.records_max=3"),
)
_OF_A_ROUND = (
    "round.commit:before",
    "round.commit:after",
    "ownership.fence:before",
    "ownership.fence:after",
    "ownership.lock:after",
    "ownership.begin:after",
    "ownership.release:after",
    "sink.stage:after",
    "sink.complete:before",
    "sink.complete:after",
    "sink.roll-back:after",
)
_ANY = ("registry.", "")
_WRITES = ("registry.commit", "registry.commit", "registry.set", "registry.create", "registry.delete")
_ROUND_WRITE = "round.commit:before"


@dataclass(frozen=True, slots=True)
class Fault:
    """At the `count`-th passing of a stop that begins with `at` (by any process of the engine), something happens to
    who passes it; `seconds` where it takes time."""

    kind: FaultKind
    at: str
    count: int
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.kind}{lasting} at passing {self.count} of {self.at or 'any stop'}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation."""

    seed: int
    streams: int = 2
    records: int = 30
    """Of each stream."""
    workers: int = 2
    executors: int = 1
    standbys: int = 1
    edits: tuple[tuple[float, str], ...] = ()
    """When, and what of the config is changed: `workers=1`, `desired_state=paused`, `rebalance=1`."""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        size = f"{self.streams} streams of {self.records} records, {self.workers} workers of {self.executors} executors"
        lines = [f"seed {self.seed}: {size}, {self.standbys} standbys"]
        lines += [f"  at {at_s:.2f} s: {what}" for at_s, what in self.edits]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


def drawn(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(seed)
    return Plan(
        seed,
        streams=chance.randint(1, 3),
        records=chance.choice((6, 15, 30)),
        workers=chance.randint(1, 3),
        executors=chance.choice((1, 1, 2)),
        standbys=chance.choice((0, 1, 1)),
        edits=tuple(sorted(_edit(chance) for _ in range(chance.choice((0, 0, 1, 2))))),
        faults=tuple(_fault(chance) for _ in range(chance.choice((0, 1, 2, 3, 4, 6)))),
    )


def _edit(chance: random.Random) -> tuple[float, str]:
    what = chance.choice(_EDITS)
    return round(chance.uniform(2.0, 10.0), 3), what


def _fault(chance: random.Random) -> Fault:
    kind: FaultKind = chance.choice(_KINDS)
    seconds = 0.0
    if kind in ("stall", "cut off", "quorum away", "zombie"):
        seconds = round(chance.choice((0.3, 1.0, 2.5, 4.0)) * chance.uniform(0.5, 1.5), 3)
    if kind in ("lose request", "lose reply"):
        at = _ROUND_WRITE if chance.random() < 0.4 else chance.choice(_WRITES)
        return Fault(kind, at, _count(chance, 12 if at == _ROUND_WRITE else 40))
    if chance.random() < 0.65:
        return Fault(kind, chance.choice(_OF_A_ROUND), _count(chance, 10), seconds)
    return Fault(kind, chance.choice(_ANY), _count(chance, 600), seconds)


def _count(chance: random.Random, most: int) -> int:
    """Early ones as often as late ones, by magnitude."""
    return max(1, int(most ** chance.random() + 0.5))
