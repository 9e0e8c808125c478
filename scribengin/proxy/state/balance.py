"""Which logs a proxy gives up to which other one, so that all write about as many and do about as much. Pure.

Every proxy decides alone, by the nodes of all, and only what it gives up itself. Those that have too much share what
the others have room for in the order of their names, so no receiver gets more than that from all of them together.

Rules, which make it end:

| | gives up | takes |
|---|---|---|
| by count | who writes a fifth more logs than the mean, down to that; the coldest | up to the mean count, and load |
| by load | who does a fifth more than the mean, down to that; the hottest that fit | up to the mean load |

No move makes a receiver's load exceed the mean, nor its count the bound of the donor's. So the load above the mean and
the logs above the bound together only shrink. A log that was taken a moment ago stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_TOLERANCE = 1.2
"""So much above the mean is balanced: to move a log ends its segment."""
_REQUEST_BYTES = 4096
"""A request is as much work as so many bytes."""
_LOAD_OVER_S = 20.0


@dataclass(frozen=True, slots=True)
class ProxyLoad:
    """What a proxy has told of itself: how many logs it writes, how much it does, in bytes a second, and how many it
    may write (None: it does not say)."""

    name: str
    address: str
    logs: int
    load: float
    logs_max: int | None = None


@dataclass(frozen=True, slots=True)
class LogLoad:
    """A log of ours. `settled`: it may be given up."""

    name: str
    load: float
    settled: bool = True


@dataclass(frozen=True, slots=True)
class HandOver:
    """The log is to be the proxy's that has that address."""

    log: str
    to: str


class LoadMeter:
    """How much is done for a log, as of late: old requests count less and less. Told the time; not thread-safe."""

    def __init__(self) -> None:
        self._done = 0.0
        self._seen_s = 0.0

    def add(self, size_bytes: int, now_s: float) -> None:
        """A request of that size came."""
        self._done = self.load(now_s) * _LOAD_OVER_S + size_bytes + _REQUEST_BYTES
        self._seen_s = now_s

    def load(self, now_s: float) -> float:
        """In bytes a second."""
        return self._done * math.exp((self._seen_s - now_s) / _LOAD_OVER_S) / _LOAD_OVER_S


def hand_overs(us: str, ours: Iterable[LogLoad], proxies: Sequence[ProxyLoad], moves_max: int) -> list[HandOver]:
    """What the proxy of that name gives up. `proxies` are all that take logs, us among them, if we do."""
    if len(proxies) < 2 or all(one.name != us for one in proxies):
        return []
    plan = _Plan(us, ours, sorted(proxies, key=lambda one: one.name))
    plan.by_count()
    plan.by_load()
    return plan.moves[:moves_max]


class _Plan:
    def __init__(self, us: str, ours: Iterable[LogLoad], proxies: Sequence[ProxyLoad]) -> None:
        self._us = us
        self._settled = sorted((log for log in ours if log.settled), key=lambda log: (log.load, log.name))
        """Coldest first."""
        self._proxies = {one.name: one for one in proxies}
        self._logs = {one.name: one.logs for one in proxies}
        self._load = {one.name: one.load for one in proxies}
        self._mean_logs = sum(self._logs.values()) / len(proxies)
        self._mean_load = sum(self._load.values()) / len(proxies)
        self._logs_max = math.ceil(self._mean_logs * _TOLERANCE)
        self.moves: list[HandOver] = []

    def by_count(self) -> None:
        if self._logs[self._us] <= self._logs_max:
            return
        target = math.ceil(self._mean_logs)
        over = {name: logs - target for name, logs in self._logs.items() if logs > self._logs_max}
        room = {name: math.floor(self._mean_logs) - logs for name, logs in self._logs.items()}
        for to, most in _allotted(self._us, over, room):
            left = round(most)
            for log in list(self._settled):
                if left and self._fits(to, log):
                    left -= 1
                    self._move(log, to)

    def by_load(self) -> None:
        bound = self._mean_load * _TOLERANCE
        if self._load[self._us] <= bound:
            return
        over = {name: load - self._mean_load for name, load in self._load.items() if load > bound}
        room = {name: self._mean_load - load for name, load in self._load.items()}
        for to, most in _allotted(self._us, over, room):
            left = most
            for log in list(reversed(self._settled)):
                if 0 < log.load <= left and self._fits(to, log) and self._logs[to] < self._logs_max:
                    left -= log.load
                    self._move(log, to)

    def _fits(self, to: str, log: LogLoad) -> bool:
        logs_max = self._proxies[to].logs_max
        if logs_max is not None and self._logs[to] >= logs_max:
            return False  # it would send whoever asks for the log back
        return log.load == 0 or self._load[to] + log.load <= self._mean_load

    def _move(self, log: LogLoad, to: str) -> None:
        self._settled.remove(log)
        self.moves.append(HandOver(log.name, self._proxies[to].address))
        for name, sign in ((self._us, -1), (to, 1)):
            self._logs[name] += sign
            self._load[name] += sign * log.load


def _allotted(us: str, over: Mapping[str, float], room: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """How much of its surplus a donor may give to whom: donors are served in the order of their names, each with the
    room that those before it have left."""
    left = {name: amount for name, amount in room.items() if amount > 0 and name not in over}
    for donor, surplus in over.items():
        for to in list(left):
            amount = min(surplus, left[to])
            surplus -= amount
            left[to] -= amount
            if donor == us and amount > 0:
                yield to, amount
