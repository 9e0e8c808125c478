"""Mistakes of whoever believes a server of the registry that has fallen behind, put in one at a time.

`LAG_MISTAKES` names them all, each with the seed that caught it last, as `simulation_mistakes.MISTAKES` does.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from scribengin.log.metadata import writer_lock
from scribengin.log.metadata.segments import LogMetadata
from scribengin.testing.simulation.plan import Fault, Plan, Storage, drawn
from scribengin_registry.election import Election
from tests.property.simulation_mistakes import Mistake


class LagAim:
    """The seed that caught a mistake last, on what, and the write whose reply is lost while a server lags."""

    def __init__(self, seed: int, at: str, storage: Storage = "memory") -> None:
        self.seed = seed
        self.at = at
        self.storage = storage

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, with a server that falls behind just before the reply is lost, for long."""
        passing = random.Random(seed).randint(1, 6)
        plan = drawn(seed, self.storage, rewound=False)
        faults = (Fault("server lags", self.at, passing, 8.0), Fault("lose reply", self.at, passing))
        return replace(plan, faults=(*plan.faults, *faults))


class AimAtALock(LagAim):
    """Writers die, so that others stand in line for their locks; and whoever stood there hears no reply when it takes
    one, while a server lags for a moment. It does harm to who asks that server."""

    def plan(self, seed: int) -> Plan:
        chance, plan = random.Random(seed), drawn(seed, "logs", rewound=False, lagging=False)
        killed = (Fault("kill", "log.segment_write:after", chance.randint(1, 12)) for _ in range(4))
        lags = (Fault("server lags", self.at, passing, 0.3) for passing in range(1, 30))
        lost = (Fault("lose reply", "log.waiting_join:after", passing) for passing in range(1, 10))
        return replace(plan, flows=1, records=15, standbys=0, faults=(*killed, *lags, *lost))


def stand_without_syncing(patch: pytest.MonkeyPatch) -> None:
    """A candidate looks for its node where that may not have arrived, and makes another, which awaits that one."""

    class Unsynced:
        def __init__(self, registry: Any) -> None:
            self._registry = registry

        def __getattr__(self, name: str) -> Any:
            return (lambda _path: None) if name == "sync" else getattr(self._registry, name)

    def own_contender(self: Any) -> tuple[str, int]:
        registry = self._registry
        self._registry = Unsynced(registry)
        try:
            return real(self)
        finally:
            self._registry = registry

    real = Election._own_contender
    patch.setattr(Election, "_own_contender", own_contender)


def settle_a_lock_without_syncing(patch: pytest.MonkeyPatch) -> None:
    """A writer whose lock's reply was lost looks where that may not have arrived, and takes the lock for another's. It
    would take it for ever, if it did not give up in the end."""

    def settle(metadata: LogMetadata, owner: Any) -> Any:
        held = metadata.registry.find(metadata.lock_path)
        if (
            held is None
            or writer_lock.LockDescriptor.from_bytes(held.data, path=metadata.lock_path).token != owner.token
        ):
            return None
        return owner

    patch.setattr(writer_lock, "_settle", settle)
    patch.setattr(writer_lock, "ATTEMPTS_MAX", 1_000_000)


LAG_MISTAKES: dict[Mistake, LagAim] = {
    stand_without_syncing: LagAim(16, "registry.create"),
    settle_a_lock_without_syncing: AimAtALock(8, "log.lock:before"),
}
