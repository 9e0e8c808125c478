"""What is to happen in one simulation: how large it is, and its faults. Data, so that it can be made smaller.

A plan is drawn from its seed; the same plan replays byte for byte. Faults name the stop that they happen at, as a
reader of a transcript finds it: "the 3rd time that anybody passes round.commit:after, that process is killed".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

RegistryFault = Literal[
    "lose request", "lose reply", "cut off", "quorum away", "server lags", "servers restart", "registry takes little"
]
DiskFault = Literal["lose unsynced", "disk full"]
BrokerFault = Literal["broker fails", "broker fails unheard", "retention"]
FaultKind = Literal["kill", "stall", "zombie", "power off", "system away", RegistryFault, DiskFault, BrokerFault]
Storage = Literal["memory", "logs", "kafka", "files", "sink"]
RewindTo = Literal["earliest", "earlier", "latest", "anywhere"]

SESSION_TIMEOUT_S = 2.0
ZOMBIE_S = 3.0
"""A zombie is stalled for so long, which its session does not outlive; then it hears of that only after `seconds`."""
FAULTS_END_S = 14.0
"""Later than that nothing is disturbed any more."""
_REWOUND = 0.25
"""So many plans have a dataflow rewound."""
_ENDED = 0.3
"""Of so many rewinds the dataflow has ended before."""

_LAGS = 0.25
"""In so many plans a server of the registry falls behind."""
_RESTARTS = 0.15
"""In so many they all go, and come back."""
_THREE = 0.1
_THREE_OF_TWO = 0.6
"""So many plans on logs have three dataflows: of one, and of two."""
_BROKERS_FAIL = 0.7
"""In so many plans on Kafka single brokers fail."""
_OF_BROKERS: tuple[BrokerFault, ...] = ("broker fails", "broker fails unheard")
_TAKES_LITTLE = 0.08
"""In so many plans a round's commit is too large for the registry, and is rolled back."""
_TAKEN_MEANWHILE = 0.7
"""In so many of the plans on Kafka with rewinds, retention takes what one would read again."""
_DELETED = 0.15
"""In so many plans the dataflows are deleted in the end."""
_DISTURBED = 0.6
"""So often what comes of these two is disturbed, too."""
_LASTING = (
    *("stall", "cut off", "quorum away", "zombie", "disk full", "system away", "server lags", "servers restart"),
    *_OF_BROKERS,
)

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
_REWINDS: tuple[RewindTo, ...] = ("earliest", "earlier", "latest", "anywhere")
_TAKEN_BACK = ("rewind.commit:after", "rewind.back:before", "rewind.back:after")
_OF_A_REWIND = (
    *("rewind.commit:before", "rewind.commit:after", "rewind.looked:after", "rewind.create:after"),
    *("rewind.back:before", "rewind.back:after"),
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
_PUT_TOGETHER = ("streams.put_together:before", "streams.put_together:after")
_OF_A_LOG = (
    *("log.lock:after", "log.fence:after", "log.settle:after", "log.announce:after", "log.segment_create:after"),
    *("log.recovery_complete:before", "log.recovery_complete:after", "log.control_sync:before"),
    *("log.segment_register:before", "log.segment_register:after", "log.segment_roll:before", "log.segment_roll:after"),
    *("log.segment_write:before", "log.segment_write:after", "log.segment_sync:before", "log.segment_sync:after"),
    *("log.tail_write:before", "log.tail_write:after", "log.segment_complete:before", "log.segment_complete:after"),
    *("log.stage_write:before", "log.stage_write:after", "log.stage_sync:before", "log.stage_sync:after"),
    *("log.control_write:before", "log.control_write:after", "log.control_sync:after", "log.round_show:after"),
    *("log.metadata:before", "log.metadata:after", "log.segment_remove:after"),
)
_OF_A_GIVEN_SINK = (
    *("sink.open_writer:after", "sink.recover:before", "sink.recover:after", "sink.write:after"),
    *("sink.prepare_commit:before", "sink.prepare_commit:after", "sink.create:before", "sink.create:after"),
    *("sink.complete_commit:before", "sink.complete_commit:after"),
)
_AROUND_A_DECISION = (
    *("round.prepare:after", "sink.prepare:before", "sink.prepare:after", "sink.commit:before", "sink.commit:before"),
    *(
        "sink.commit:after",
        "sink.recover_decision:before",
        "sink.write:after",
        "kafka.init:after",
        "sink.recover:after",
    ),
)
_OF_KAFKA = ("sink.prepare:after", "sink.commit:before", "sink.commit:after", "sink.establish:after")
_OF_FILES = (
    *("files.merge_write:after", "files.merge_decide:before", "files.merge_decide:after", "files.merge_place:before"),
    *("files.merge_place:after", "files.merge_remove:before", "files.merge_remove:after", "files.merge_finish:before"),
    *("files.complete:before", "files.complete:after"),
)
_STAGED: dict[Storage, str] = {"memory": "sink.stage:after", "logs": "log.stage_sync:after"}
_PREPARED = "sink.prepare_commit:after"
"""Where a round is about to commit, by storage; and where, for all others."""
_ROLLED_BACK = ("sink.rollback:before", "sink.rollback:after")
_ROLLED_BACK_IN: dict[Storage, tuple[str, ...]] = {
    "memory": ("sink.roll-back:before", "sink.roll-back:after"),
    "logs": ("log.segment_complete:before", "log.segment_complete:after"),
    "kafka": (*_ROLLED_BACK, "kafka.abort:before", "kafka.abort:after"),
}
_ANY = ("registry.", "")
_WRITES = ("registry.commit", "registry.commit", "registry.set", "registry.create", "registry.delete")
_ROUND_WRITE = "round.commit:before"
_LOG_WRITES = ("log.metadata:before", "log.segment_roll:before", "log.recovery_complete:before", "log.lock:before")
_SINK_CALLS = (
    *("sink.recover:before", "sink.write:before", "sink.prepare_commit:before", "sink.prepare_commit:before"),
    *("sink.complete_commit:before", "sink.complete_commit:before", "sink.open_writer:before", "sink.create:before"),
    *("sink.commit:before", "sink.recover_decision:before"),
)
_FILE_CALLS = (*_SINK_CALLS[:-2], "sink.maintain:before", "sink.create:before")
"""Files decide about nothing."""
_KINDS_OF: dict[Storage, tuple[FaultKind, ...]] = {
    "memory": _KINDS,
    "logs": (*_KINDS, *_OF_A_DISK),
    "kafka": (*_KINDS, "power off", "system away"),
    "files": (*_KINDS, "power off", "power off", "system away"),
    "sink": (*_KINDS, "power off"),
}
_STOPS_OF: dict[Storage, tuple[str, ...]] = {
    "memory": (*_OF_A_ROUND, *_OF_A_SINK),
    "logs": (*_OF_A_ROUND, *_OF_A_LOG),
    "kafka": (*_OF_A_ROUND, *_OF_A_GIVEN_SINK, *_OF_KAFKA),
    "files": (*_OF_A_ROUND, *_OF_A_GIVEN_SINK, *_OF_FILES, *_OF_FILES),
    "sink": (*_OF_A_ROUND, *_OF_A_GIVEN_SINK),
}
_WRITES_OF: dict[Storage, tuple[str, ...]] = {
    "memory": _WRITES,
    "logs": (*_WRITES, *_LOG_WRITES),
    "kafka": (*_WRITES, *_SINK_CALLS),
    "files": (*_WRITES, *_FILE_CALLS),
    "sink": (*_WRITES, *_SINK_CALLS),
}
"""What may be lost on its way, or its answer."""


_READ_AND_WRITTEN: dict[Storage, str] = {
    "kafka": "from a topic to a topic",
    "files": "from files to files",
    "sink": "into the sink that was given",
}
_DRAWN: dict[int, Storage] = {3: "kafka", 7: "logs", 11: "files", 15: "logs"}
"""By the rest of the seed after sixteen; all others are in memory."""


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


@dataclass(frozen=True, slots=True, order=True)
class PlannedRewind:
    """When somebody has a dataflow read from another place: where its streams begin, some seconds ago, where they end,
    or at a position that is drawn."""

    at_s: float
    to: RewindTo
    flow: int = 0
    """Which one, by its place in the chain."""
    ended: bool = False
    """Whether it is stopped for that, and started again; else it is paused."""

    def __str__(self) -> str:
        which = "" if self.flow == 0 else f", dataflow {self.flow + 1}"
        return f"at {self.at_s:.2f} s: rewind to {self.to}{which}{', once it is stopped' if self.ended else ''}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation."""

    seed: int
    _: KW_ONLY
    storage: Storage = "memory"
    """What is read and written: streams of the simulation's own, logs, topics, or files. `sink`: a sink that somebody
    gives, from streams of the simulation's own."""
    flows: int = 1
    """How many dataflows, each reading what the one before writes. Of logs only."""
    fork: bool = False
    """Whether all dataflows but the first read what that writes."""
    passing: bool = False
    """Whether streams come one by one, go, come back for a while, and go for good. In memory only."""
    streams: int = 2
    records: int = 30
    """Of each stream."""
    workers: int = 2
    executors: int = 1
    standbys: int = 1
    edits: tuple[tuple[float, str], ...] = ()
    """When, and what of the config is changed: `workers=1`, `desired_state=paused`, `rebalance=1`."""
    rewinds: tuple[PlannedRewind, ...] = ()
    faults: tuple[Fault, ...] = ()
    deleted: bool = False
    """Whether the dataflows are deleted in the end, by several at the same time, who may die at it."""

    @property
    def lags(self) -> bool:
        """Whether a server of the registry falls behind."""
        return any(fault.kind == "server lags" for fault in self.faults)

    @property
    def fails_brokers(self) -> bool:
        """Whether single brokers of Kafka fail."""
        return any(fault.kind in _OF_BROKERS for fault in self.faults)

    @property
    def gives_up(self) -> bool:
        """Whether retention takes what was read."""
        return any(fault.kind == "retention" for fault in self.faults)

    @property
    def harms_disks(self) -> bool:
        """Whether what readers have seen of a log may be hidden from them for a while."""
        return any(fault.kind in _OF_A_DISK for fault in self.faults)

    @property
    def rewinds_later(self) -> bool:
        """Whether a dataflow is rewound that reads what another one writes."""
        return any(rewind.flow > 0 for rewind in self.rewinds)

    def __str__(self) -> str:
        size = f"{self.streams} streams of {self.records} records, {self.workers} workers of {self.executors} executors"
        lines = [f"seed {self.seed}: {size}, {self.standbys} standbys"]
        if self.storage == "logs":
            fork = ", all later ones of which read what the first writes" if self.fork else ""
            lines.append(f"  on logs, {self.flows} dataflows{fork}")
        if self.passing:
            lines.append("  streams come and go")
        if self.storage in _READ_AND_WRITTEN:
            lines.append(f"  {_READ_AND_WRITTEN[self.storage]}")
        lines += [f"  at {at_s:.2f} s: {what}" for at_s, what in self.edits]
        lines += [f"  {rewind}" for rewind in self.rewinds]
        if self.deleted:
            lines.append("  in the end: deleted")
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


def drawn(
    seed: int,
    storage: Storage | None = None,
    stops: Sequence[str] = (),
    *,
    rewound: bool = True,
    lagging: bool = True,
    added: bool = True,
) -> Plan:
    """The plan of a seed. Without `storage`, two of sixteen are on logs, one on Kafka and one on files, which all take
    longer. Faults happen at `stops`, too. `rewound`: some are rewound, but for those into a sink that is given.
    `lagging`: in some a server of the registry falls behind. `added`: to some of these there comes what was thought of
    later, drawn by itself, so that what a seed has else stays: servers that restart, brokers that fail, a third
    dataflow, what retention takes from a rewind, rounds that are too large to commit, deletions."""
    chance = random.Random(seed)
    storage = storage or _DRAWN.get(seed % 16, "memory")
    plan = Plan(
        seed,
        storage=storage,
        flows=chance.choice((1, 1, 1, 2)) if storage == "logs" else 1,
        streams=chance.randint(1, 3),
        records=chance.choice((6, 15, 30)),
        workers=chance.randint(1, 3),
        executors=chance.choice((1, 1, 2)),
        standbys=chance.choice((0, 1, 1)),
        edits=tuple(sorted(_edit(chance) for _ in range(chance.choice((0, 0, 1, 2))))),
        faults=tuple(_fault(chance, storage, stops) for _ in range(chance.choice((0, 1, 2, 3, 4, 6)))),
    )
    rewinds = rewound and storage != "sink" and chance.random() <= _REWOUND
    plan = _with_rewinds(plan, chance) if rewinds else plan
    if not lagging:
        return plan
    plan = _with_lags(plan, chance) if chance.random() < _LAGS else plan
    if added:
        for add in (_with_restarts, _with_brokers, _with_third, _with_retention, _taking_little, _deleted):
            plan = add(plan)
    return plan


def _with_restarts(plan: Plan) -> Plan:
    """The same, or with servers of the registry that restart."""
    chance = random.Random(f"restarts of {plan.seed}")
    if chance.random() >= _RESTARTS:
        return plan
    restart = Fault("servers restart", "", _count(chance, 600), _seconds(chance, "servers restart"))
    return replace(plan, faults=(*plan.faults, restart))


def passing(seed: int) -> Plan:
    """The plan of a seed in memory, with more streams, which come and go."""
    chance, plan = random.Random(f"passing {seed}"), drawn(seed, "memory")
    streams, records = chance.randint(2, 7), chance.choice((6, 15))
    at_one = _drawn_fault(chance, chance.choice(_KINDS), _PUT_TOGETHER, 3)
    faults = (*plan.faults, *chance.choice(((), (at_one,))))
    return replace(plan, passing=True, streams=streams, records=records, faults=faults)


def planned_stops(storage: Storage) -> set[str]:
    """The stops at which plans have faults, rewinds apart: each has to be passed, or those never happen."""
    around = _AROUND_A_DECISION if storage == "kafka" else ()
    back = (_STAGED.get(storage, _PREPARED), *_ROLLED_BACK_IN.get(storage, _ROLLED_BACK))
    return {*_STOPS_OF[storage], *_WRITES_OF[storage], *around, *back, _ROUND_WRITE}


def planned_stops_of_rewinds() -> set[str]:
    """Those at which plans with rewinds have faults."""
    return {*_OF_A_REWIND, *_TAKEN_BACK}


def _with_lags(plan: Plan, chance: random.Random) -> Plan:
    """The same, with a server that falls behind once or twice."""
    lags = tuple(_lag(chance, plan.storage) for _ in range(chance.choice((1, 1, 2))))
    return replace(plan, faults=(*plan.faults, *lags))


def _with_third(plan: Plan) -> Plan:
    """The same, or on logs with three dataflows."""
    chance = random.Random(f"a third of {plan.seed}")
    likely = _THREE_OF_TWO if plan.flows == 2 else _THREE
    if plan.storage != "logs" or plan.rewinds_later or chance.random() >= likely:
        return plan
    return replace(plan, flows=3, fork=chance.random() < 0.5)


def _with_brokers(plan: Plan) -> Plan:
    """The same, or on Kafka with brokers that fail."""
    chance = random.Random(f"brokers of {plan.seed}")
    if plan.storage != "kafka" or chance.random() >= _BROKERS_FAIL:
        return plan
    return replace(plan, faults=(*plan.faults, *(broker_fault(chance) for _ in range(chance.choice((1, 2, 3))))))


def _with_retention(plan: Plan) -> Plan:
    """The same, or on Kafka with retention that takes what a rewind would have read again."""
    chance = random.Random(f"retention of {plan.seed}")
    if plan.storage != "kafka" or not plan.rewinds or chance.random() >= _TAKEN_MEANWHILE:
        return plan
    taken = Fault("retention", "rewind.commit:before", chance.choice((1, 1, 2)))
    return replace(plan, faults=(*plan.faults, taken, *_disturbing(chance, plan.storage, _TAKEN_BACK)))


def _taking_little(plan: Plan) -> Plan:
    """The same, or with a registry that takes no round's commit for a moment: what is staged is rolled back, and the
    dataflow fails."""
    chance = random.Random(f"little of {plan.seed}")
    if chance.random() >= _TAKES_LITTLE:
        return plan
    at = _STAGED.get(plan.storage, _PREPARED)
    little = Fault("registry takes little", at, _count(chance, 10), round(chance.uniform(0.05, 0.4), 3))
    stops = _ROLLED_BACK_IN.get(plan.storage, _ROLLED_BACK)
    return replace(plan, faults=(*plan.faults, little, *_disturbing(chance, plan.storage, stops)))


def _deleted(plan: Plan) -> Plan:
    """The same, or with dataflows that are deleted in the end."""
    return replace(plan, deleted=random.Random(f"deletion of {plan.seed}").random() < _DELETED)


def _disturbing(chance: random.Random, storage: Storage, stops: Sequence[str]) -> tuple[Fault, ...]:
    """A fault at the first passing of one of these stops, or none."""
    if chance.random() >= _DISTURBED:
        return ()
    return (_drawn_fault(chance, chance.choice(_KINDS_OF[storage]), stops, 1),)


def broker_fault(chance: random.Random) -> Fault:
    """A broker fails, mostly when somebody is about to decide, or to find a decision."""
    kind = chance.choice(_OF_BROKERS)
    at, most = (chance.choice(_AROUND_A_DECISION), 12) if chance.random() < 0.8 else ("", 600)
    return Fault(kind, at, _count(chance, most), _seconds(chance, kind))


def _with_rewinds(plan: Plan, chance: random.Random) -> Plan:
    """The same, rewound once or twice, with a fault where that may be disturbed."""
    rewinds = tuple(sorted(_rewind(chance, plan.flows) for _ in range(chance.choice((1, 1, 2)))))
    at_one = _drawn_fault(chance, chance.choice(_KINDS_OF[plan.storage]), _OF_A_REWIND, 2)
    return replace(plan, rewinds=rewinds, faults=(*plan.faults, *chance.choice(((), (at_one,)))))


def _rewind(chance: random.Random, flows: int) -> PlannedRewind:
    at_s, to = round(chance.uniform(3.0, 10.0), 3), chance.choice(_REWINDS)
    return PlannedRewind(at_s, to, chance.randrange(flows), chance.random() < _ENDED)


def _edit(chance: random.Random) -> tuple[float, str]:
    what = chance.choice(_EDITS)
    return round(chance.uniform(2.0, 10.0), 3), what


def _fault(chance: random.Random, storage: Storage, stops: Sequence[str]) -> Fault:
    kind = chance.choice(_KINDS_OF[storage])
    seconds = _seconds(chance, kind)
    if kind in ("lose request", "lose reply"):
        at = _ROUND_WRITE if chance.random() < 0.4 else chance.choice(_WRITES_OF[storage])
        return Fault(kind, at, _count(chance, 40 if at in _WRITES else 12))
    if chance.random() < 0.65:
        return Fault(kind, chance.choice((*_STOPS_OF[storage], *stops)), _count(chance, 10), seconds)
    return Fault(kind, chance.choice(_ANY), _count(chance, 600), seconds)


def _lag(chance: random.Random, storage: Storage) -> Fault:
    """A server falls behind at some time, or just when a round commits or an owner takes over."""
    at, most = (chance.choice(_STOPS_OF[storage]), 10) if chance.random() < 0.5 else ("", 600)
    return Fault("server lags", at, _count(chance, most), _seconds(chance, "server lags"))


def _drawn_fault(chance: random.Random, kind: FaultKind, stops: Sequence[str], most: int) -> Fault:
    """One of that kind, at the first passings of one of these stops."""
    at = chance.choice(stops)
    if kind in ("lose request", "lose reply"):
        at = at.replace(":after", ":before")
    return Fault(kind, at, chance.randint(1, most), _seconds(chance, kind))


def _seconds(chance: random.Random, kind: FaultKind) -> float:
    if kind not in _LASTING:
        return 0.0
    return round(chance.choice((0.3, 1.0, 2.5, 4.0)) * chance.uniform(0.5, 1.5), 3)


def _count(chance: random.Random, most: int) -> int:
    """Early ones as often as late ones, by magnitude."""
    return max(1, int(most ** chance.random() + 0.5))
