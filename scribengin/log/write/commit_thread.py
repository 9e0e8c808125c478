"""One thread that writes for many logs, or a few, where a thread for each would be too many.

A log that has something to write takes a turn, behind all that came before it: one group, written and synced. Its next
group, if one has gathered meanwhile, waits for its next turn. So one log's load makes the others wait for one group at
a time, and what comes for them meanwhile goes with their next group.

A thread is idle while the disk makes a group durable. So a few of them have the disk do that for several logs at once:
it takes little longer than for one. Never do two threads write for the same log.
"""

from __future__ import annotations

import heapq
import threading
from itertools import count
from math import inf
from typing import Protocol

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background, started
from scribengin.errors import LogClosed

LOGS_AT_ONCE = 4
"""A disk syncs so many files in less time than one after the other."""


class TakesTurns(Protocol):
    """What the thread writes for."""

    def turn(self) -> float | None:
        """Do what is due now, once. Seconds until something is due unless `wake` is called before: 0 at once; None:
        never. Raises nothing."""
        ...


class CommitThread(ClosedAtExit):
    """Gives turns. Thread-safe. Threads begin when there is a turn to take. Close what takes turns before it."""

    def __init__(self, *, threads_max: int = 1, clock: Clock = SYSTEM_CLOCK) -> None:
        """So many logs are written at the same time at most."""
        self._threads_max = threads_max
        self._clock = clock
        self._changed = threading.Condition()
        """Guards all below. Nobody takes a turn while it is held."""
        self._ready: dict[TakesTurns, None] = {}
        """In the order of their turns. None of them is taking one."""
        self._taking: dict[TakesTurns, bool] = {}
        """Those that take a turn just now, and whether they were woken meanwhile."""
        self._later: list[tuple[float, int, TakesTurns]] = []
        """A heap: when those are due that said so."""
        self._times: dict[TakesTurns, float] = {}
        """The earliest time of each that is in the heap. What is there beside it was superseded."""
        self._numbers = count()
        self._closed = False
        self._idle = 0
        self._threads: list[threading.Thread] = []

    def wake(self, log: TakesTurns) -> None:
        """Give `log` a turn, soon. Returns at once. Raises LogClosed, and RuntimeError if there is no thread and none
        can be started."""
        with self._changed:
            if self._closed:
                raise LogClosed("the thread that writes for many logs is closed: close their writers before it")
            self._make_ready(log)

    def close(self) -> None:
        """End after the turns that are being taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (log := self._next()) is not None:
            self._again(log, log.turn())

    def _next(self) -> TakesTurns | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due()
                if self._ready:
                    log = next(iter(self._ready))
                    del self._ready[log]
                    self._taking[log] = False
                    return log
                self._idle += 1
                self._changed.wait(wait_s)
                self._idle -= 1
            return None

    def _make_ready(self, log: TakesTurns) -> None:
        """It gets a turn, behind all others. The caller holds the condition."""
        if log in self._taking:
            self._taking[log] = True
            return
        self._ready.setdefault(log)
        self._changed.notify()
        if len(self._ready) > self._idle and len(self._threads) < self._threads_max and not self._closed:
            self._add_thread()

    def _add_thread(self) -> None:
        try:
            self._threads.append(started(background("log-commit", self._run)))
        except RuntimeError:
            if not self._threads:
                raise  # else those that there are take the turn

    def _due(self) -> float | None:
        """Make those ready whose time has come; seconds until that of the next."""
        now_s = self._clock.monotonic_s()
        while self._later and self._later[0][0] <= now_s:
            due_s, _number, log = heapq.heappop(self._later)
            if self._times.get(log) == due_s:
                del self._times[log]
                self._make_ready(log)
        return self._later[0][0] - now_s if self._later else None

    def _again(self, log: TakesTurns, wait_s: float | None) -> None:
        """Its turn was taken."""
        with self._changed:
            if self._taking.pop(log) or wait_s == 0:
                self._make_ready(log)
            if not wait_s:
                return
            due_s = self._clock.monotonic_s() + wait_s
            if due_s < self._times.get(log, inf):  # else it gets a turn before, and says so then
                self._times[log] = due_s
                heapq.heappush(self._later, (due_s, next(self._numbers), log))
