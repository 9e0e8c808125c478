"""One thread that writes for many logs, where a thread for each would be too many.

A log that has something to write takes a turn, behind all that came before it: one group, written and synced. Its next
group, if one has gathered meanwhile, waits for its next turn. So one log's load makes the others wait for one group at
a time, and what comes for them meanwhile goes with their next group.
"""

from __future__ import annotations

import heapq
import threading
from itertools import count
from math import inf
from typing import Protocol

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import LogClosed


class TakesTurns(Protocol):
    """What the thread writes for."""

    def turn(self) -> float | None:
        """Do what is due now, once. Seconds until something is due unless `wake` is called before: 0 at once; None:
        never. Raises nothing."""
        ...


class CommitThread(ClosedAtExit):
    """Gives turns. Thread-safe. Its thread begins with the first turn. Close what takes turns before it."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        """Guards all below. Nobody takes a turn while it is held."""
        self._ready: dict[TakesTurns, None] = {}
        """In the order of their turns."""
        self._later: list[tuple[float, int, TakesTurns]] = []
        """A heap: when those are due that said so."""
        self._times: dict[TakesTurns, float] = {}
        """The earliest time of each that is in the heap. What is there beside it was superseded."""
        self._numbers = count()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def wake(self, log: TakesTurns) -> None:
        """Give `log` a turn, soon. Returns at once. Raises LogClosed."""
        with self._changed:
            if self._closed:
                raise LogClosed("the thread that writes for many logs is closed: close their writers before it")
            self._ready.setdefault(log)
            if self._thread is None:
                thread = background("log-commit", self._run)
                thread.start()
                self._thread = thread
            self._changed.notify()

    def close(self) -> None:
        """End after the turn that is being taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while (log := self._next()) is not None:
            again_s = log.turn()
            if again_s is not None:
                self._again(log, again_s)

    def _next(self) -> TakesTurns | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due()
                if self._ready:
                    log = next(iter(self._ready))
                    del self._ready[log]
                    return log
                self._changed.wait(wait_s)
            return None

    def _due(self) -> float | None:
        """Make those ready whose time has come; seconds until that of the next."""
        now_s = self._clock.monotonic_s()
        while self._later and self._later[0][0] <= now_s:
            due_s, _number, log = heapq.heappop(self._later)
            if self._times.get(log) == due_s:
                del self._times[log]
                self._ready.setdefault(log)
        return self._later[0][0] - now_s if self._later else None

    def _again(self, log: TakesTurns, wait_s: float) -> None:
        with self._changed:
            due_s = self._clock.monotonic_s() + wait_s
            if not wait_s:
                self._ready.setdefault(log)
            elif due_s < self._times.get(log, inf):  # else it gets a turn before, and says so then
                self._times[log] = due_s
                heapq.heappush(self._later, (due_s, next(self._numbers), log))
