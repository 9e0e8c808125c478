"""One thread that writes for many logs, or a few, where a thread for each would be too many.

A log that has something to write takes a turn, behind all that came before it: one group, written and synced. Its next
group, if one has gathered meanwhile, waits for its next turn. So one log's load makes the others wait for one group at
a time, and what comes for them meanwhile goes with their next group.

A disk makes the groups of many logs durable in little more time than that of one. So a thread writes for all that wait
(up to `SYNCED_AT_ONCE`), has the disk sync their files together, and ends each turn when its own file is done, in
whatever order that is. Where that cannot be done (other stores, a segment that is to be made first) a few threads take
a turn each. Never do two threads write for the same log.

The mistake to avoid: waiting for a log in what another log's future calls back. Both may be on the same thread.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from math import inf
from typing import Protocol

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background, started
from scribengin.errors import LogClosed
from scribengin.log.write.file_syncs import FileSyncs

LOGS_AT_ONCE = 4
"""So many may hold a thread each, as one does whose segment is being made, before the others wait for them."""
SYNCED_AT_ONCE = 64
"""More save little, and the first of them waits until the last one was written."""

WAITING_MIN = LOGS_AT_ONCE
"""So many wait behind a log before they are made durable with it: fewer are sooner done by a thread each."""


class BegunTurn(ABC):
    """A turn of which all is done but to make a file durable, and what follows."""

    @property
    @abstractmethod
    def file(self) -> int | None:
        """Its descriptor. None: only `end` can."""

    @abstractmethod
    def end(self, fdatasync: Callable[[int], object] | None) -> float | None:
        """Do the rest, on the thread that began it; as `turn`. With a function, that stands for `os.fdatasync`."""


class TakesTurns(Protocol):
    """What the thread writes for."""

    @property
    def quick(self) -> bool:
        """Whether a turn would only begin one now, and wait for nobody: others may be made durable with it."""
        ...

    def turn(self) -> float | BegunTurn | None:
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
        together = Together()
        try:
            while (log := self._next()) is not None:
                self._take_turns(log, together)
        finally:
            together.close()

    def _take_turns(self, log: TakesTurns | None, together: Together) -> None:
        """Give a turn to a log, and to those behind it while they can be made durable together."""
        while log is not None:
            turn = log.turn()
            behind = None
            if not isinstance(turn, BegunTurn):
                self._again(log, turn)
            elif turn.file is None:
                self._again(log, turn.end(None))
            else:
                behind = self._next_beside(1 if together.under_way else WAITING_MIN) if together.room else None
                alone = behind is None and not together.under_way
                if alone or not together.begin(turn.file, log, turn):
                    self._again(log, turn.end(None))
            log = behind
        while together.under_way:
            for ended, turn, fdatasync in together.ended():
                self._again(ended, turn.end(fdatasync))

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

    def _next_beside(self, waiting_min: int) -> TakesTurns | None:
        """The next, if so many are there and it is quick."""
        with self._changed:
            log = next(iter(self._ready), None)
            if log is None or self._closed or len(self._ready) < waiting_min or not log.quick:
                return None
            del self._ready[log]
            self._taking[log] = False
            return log

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


class Together:
    """Turns that one thread has begun, and whose files are being made durable."""

    def __init__(self) -> None:
        self._syncs: FileSyncs | None = None
        self._begun: dict[int, tuple[TakesTurns, BegunTurn]] = {}
        self._numbers = count()
        self._impossible = False
        """On this machine."""

    @property
    def room(self) -> bool:
        """Whether there is room for one more, behind the one that is being written."""
        return len(self._begun) + 1 < SYNCED_AT_ONCE and not self._impossible

    @property
    def under_way(self) -> bool:
        return bool(self._begun)

    def begin(self, file: int, log: TakesTurns, turn: BegunTurn) -> bool:
        """Have its file made durable. False: this machine cannot."""
        if self._impossible:
            return False
        number = next(self._numbers)
        try:
            self._syncs = self._syncs or FileSyncs(SYNCED_AT_ONCE)
            self._syncs.begin(file, number)
        except OSError:
            self._impossible = True  # one after the other, then
            return False
        self._begun[number] = log, turn
        return True

    def ended(self) -> Iterator[tuple[TakesTurns, BegunTurn, Callable[[int], None]]]:
        """Waits for one at least. What is under way no more, each with what tells how its file's `fdatasync` ended."""
        assert self._syncs is not None, "something has begun"
        try:
            found = self._syncs.ended()
        except OSError as unknown:
            self._impossible = True
            found = [(number, unknown) for number in self._begun]
        for number, error in found:
            yield *self._begun.pop(number), partial(_tell, error)

    def close(self) -> None:
        if self._syncs is not None:
            self._syncs.close()


def _tell(error: OSError | None, _file: int) -> None:
    if error is not None:
        raise error
