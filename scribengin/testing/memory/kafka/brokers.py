"""Which brokers of a `MemoryKafka` run, and which of them leads what: a partition, a transactional id, a group.

Every broker has a copy of everything. What one leads that fails is led by the next one that runs, after a while in
which nobody does (`elects_s`); and that one needs a while more to know it as the one before did (`settles_s`). When a
broker is back, it leads again what it led at first. Pure: no locks, time is an argument.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

Role = str
"""What one broker leads: `topic/0`, `id/name`, `group/name`."""


@dataclass(frozen=True, slots=True)
class BrokerRole:
    """Who leads something; nobody before `from_s`, and not yet as the one before did until `settled_s`."""

    broker: int
    from_s: float = 0.0
    settled_s: float = 0.0
    planned: bool = False
    """Whether the one before runs still, and so tells whoever asks it that it leads that no more."""


class Brokers:
    """The brokers of one cluster, by their numbers from 1 on."""

    def __init__(self, count: int) -> None:
        self.running = set(range(1, count + 1))
        self.elects_s: Callable[[Role], float] = lambda _role: 0.0
        """How long nobody leads something, once its leader has changed."""
        self.settles_s: Callable[[Role], float] = lambda _role: 0.0
        """How long its new leader does not know it as the one before did."""
        self.moved: Callable[[Role], None] = lambda _role: None
        """Called with everything whose leader has just changed."""
        self._count = count
        self._led: dict[Role, BrokerRole] = {}
        self._failing: set[int] = set()

    def leadership(self, role: Role) -> BrokerRole | None:
        """Who leads that, or is about to. None: no broker runs that could."""
        found = self._led.get(role)
        if found is None or found.broker not in self.running:
            first = self._first(role)
            if first is None:
                return None
            found = self._led[role] = BrokerRole(first)
        return found

    def leads(self, role: Role, now_s: float) -> bool:
        """Whether somebody leads that now."""
        found = self.leadership(role)
        return found is not None and found.from_s <= now_s

    def knows(self, role: Role, now_s: float) -> bool:
        """Whether somebody leads that, and knows it as the one before did."""
        found = self.leadership(role)
        return found is not None and max(found.from_s, found.settled_s) <= now_s

    def fail(self, broker: int, now_s: float) -> None:
        """It ends. Others lead what it led."""
        self._failing.discard(broker)
        if broker in self.running:
            self.running.discard(broker)
            self._move([role for role, led in self._led.items() if led.broker == broker], now_s, planned=False)

    def fail_after_next(self, broker: int) -> None:
        """It ends when it has done what it is asked next, before it says so."""
        self._failing.add(broker)

    def answers(self, roles: tuple[Role, ...], now_s: float) -> bool:
        """Those who lead that have just done something: whether none of them ends before it says so."""
        found = {led.broker for role in roles if (led := self.leadership(role)) is not None} & self._failing
        for broker in found:
            self.fail(broker, now_s)
        return not found

    def come_back(self, broker: int, now_s: float) -> None:
        """It runs again, and leads what it led at first."""
        self._failing.discard(broker)
        if broker not in self.running:
            self.running.add(broker)
            self._move([role for role in self._led if self._first(role) == broker], now_s, planned=True)

    def _first(self, role: Role) -> int | None:
        """Of those that run, the first that has to lead it."""
        begin = zlib.crc32(role.encode()) % self._count
        order = [(begin + number) % self._count + 1 for number in range(self._count)]
        return next((broker for broker in order if broker in self.running), None)

    def _move(self, roles: list[Role], now_s: float, *, planned: bool) -> None:
        for role in sorted(roles):  # as they were asked for first would be another order in another process
            first = self._first(role)
            if first is not None:
                from_s = now_s + self.elects_s(role)
                gives_up = planned and self._led[role].broker in self.running
                self._led[role] = BrokerRole(first, from_s, from_s + self.settles_s(role), gives_up)
                self.moved(role)
