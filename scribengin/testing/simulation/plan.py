"""What is to happen in one simulation: how large it is, and its faults. Data, so that it can be made smaller.

A plan is drawn from its seed; the same plan replays byte for byte. Faults name the stop that they happen at, as a
reader of a transcript finds it: "the 3rd time that anybody passes round.commit:after, that process is killed".
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

RegistryFault = Literal["lose request", "lose reply", "cut off", "quorum away"]
DiskFault = Literal["lose unsynced", "disk full"]
FaultKind = Literal["kill", "stall", "zombie", "power off", RegistryFault, DiskFault]
Storage = Literal["memory", "logs"]

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
_OF_A_DISK: tuple[FaultKind, ...] = ("power off", "power off", "power off", "lose unsynced", "disk full")
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
)
_OF_A_SINK = (
    "sink.stage:after",
    "sink.complete:before",
    "sink.complete:after",
    "sink.roll-back:after",
)
_OF_A_LOG = (
    *("log.lock:after", "log.fence:after", "log.settle:after", "log.announce:after", "log.segment_create:after"),
    *("log.recovery_complete:before", "log.recovery_complete:after", "log.commit_log_fence:after"),
    *("log.segment_register:before", "log.segment_register:after", "log.segment_roll:before", "log.segment_roll:after"),
    *("log.segment_write:before", "log.segment_write:after", "log.segment_sync:before", "log.segment_sync:after"),
    *("log.tail_write:before", "log.tail_write:after", "log.segment_complete:before", "log.segment_complete:after"),
    *("log.stage_write:before", "log.stage_write:after", "log.stage_sync:before", "log.stage_sync:after"),
    *("log.control_write:before", "log.control_write:after", "log.control_sync:after", "log.round_show:after"),
    *("log.metadata:before", "log.metadata:after", "log.segment_remove:after"),
)
_ANY = ("registry.", "")
_WRITES = ("registry.commit", "registry.commit", "registry.set", "registry.create", "registry.delete")
_ROUND_WRITE = "round.commit:before"
_LOG_WRITES = ("log.metadata:before", "log.segment_roll:before", "log.recovery_complete:before", "log.lock:before")


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
    storage: Storage = "memory"
    """What is read and written: streams of the simulation's own, or logs."""
    flows: int = 1
    """How many dataflows, each reading what the one before writes. Of logs only."""
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
        if self.storage == "logs":
            lines.append(f"  on logs, {self.flows} dataflows")
        lines += [f"  at {at_s:.2f} s: {what}" for at_s, what in self.edits]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


def drawn(seed: int, storage: Storage | None = None) -> Plan:
    """The plan of a seed. Without `storage`, one of eight is on logs: they take four times as long."""
    chance = random.Random(seed)
    storage = storage or ("logs" if seed % 8 == 7 else "memory")
    return Plan(
        seed,
        storage,
        flows=chance.choice((1, 1, 1, 2)) if storage == "logs" else 1,
        streams=chance.randint(1, 3),
        records=chance.choice((6, 15, 30)),
        workers=chance.randint(1, 3),
        executors=chance.choice((1, 1, 2)),
        standbys=chance.choice((0, 1, 1)),
        edits=tuple(sorted(_edit(chance) for _ in range(chance.choice((0, 0, 1, 2))))),
        faults=tuple(_fault(chance, storage) for _ in range(chance.choice((0, 1, 2, 3, 4, 6)))),
    )


def _edit(chance: random.Random) -> tuple[float, str]:
    what = chance.choice(_EDITS)
    return round(chance.uniform(2.0, 10.0), 3), what


def _fault(chance: random.Random, storage: Storage) -> Fault:
    kind: FaultKind = chance.choice((*_KINDS, *_OF_A_DISK) if storage == "logs" else _KINDS)
    seconds = 0.0
    if kind in ("stall", "cut off", "quorum away", "zombie", "disk full"):
        seconds = round(chance.choice((0.3, 1.0, 2.5, 4.0)) * chance.uniform(0.5, 1.5), 3)
    if kind in ("lose request", "lose reply"):
        writes = _WRITES if storage == "memory" else (*_WRITES, *_LOG_WRITES)
        at = _ROUND_WRITE if chance.random() < 0.4 else chance.choice(writes)
        return Fault(kind, at, _count(chance, 40 if at in _WRITES else 12))
    if chance.random() < 0.65:
        return Fault(kind, chance.choice(_stops(storage)), _count(chance, 10), seconds)
    return Fault(kind, chance.choice(_ANY), _count(chance, 600), seconds)


def _stops(storage: Storage) -> tuple[str, ...]:
    return (*_OF_A_ROUND, *(_OF_A_SINK if storage == "memory" else _OF_A_LOG))


def _count(chance: random.Random, most: int) -> int:
    """Early ones as often as late ones, by magnitude."""
    return max(1, int(most ** chance.random() + 0.5))
