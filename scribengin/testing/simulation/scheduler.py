"""The scheduler: one thread of the machine, many greenlets, one of which runs; the seed says which one is next.

A simulated thread runs until it waits for something, or comes to a point where it may be overtaken. Time stands still
while threads run, but for a moment a step, and goes on at once to the next timer when all of them wait: a minute of
waiting costs nothing. Everything that is random is drawn from one generator, so a seed replays exactly.

A process is a group of threads. One that has ended never runs again: its threads are unwound by `ProcessEnded`, which
no handler of the engine catches, and which every further wait or effect of theirs raises again.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet

STEP_S = 0.000_02
"""So much time passes at every switch: a loop that never waits still comes to its deadline."""
GIVES_WAY = 0.06
"""How often a thread is overtaken where it only shows others something."""
STEPS_MAX = 200_000
"""What takes longer hangs without waiting."""


class ProcessEnded(BaseException):
    """This process has ended: whatever still runs in it is being unwound."""


class SimulationStuck(Exception):
    """Every thread waits for another one, and no timer is set: a deadlock. Or no thread comes to an end of its work."""


@dataclass(eq=False)
class SimulatedProcess:
    """A group of threads that ends as one."""

    name: str
    ended: bool = False
    stalled_until_s: float = 0.0
    """Until then none of its threads is run."""
    threads: list[SimulatedThread] = field(default_factory=list)
    died: Callable[[SimulatedThread, BaseException], None] | None = None
    """Told of an error that ended a thread; where nobody is, the simulation ends by it."""


@dataclass(eq=False)
class SimulatedThread:
    """One greenlet, and what it waits for."""

    name: str
    process: SimulatedProcess
    run: Callable[[], object]
    greenlet: greenlet | None = None
    waits: bool = False
    woken: bool = False
    turn: int = 0
    """How often it has waited: a timer of an earlier wait is out of date."""
    ended: bool = False
    ended_waiters: list[SimulatedThread] = field(default_factory=list)
    atomic: bool = False
    """Inside of what is done at one moment: it is overtaken only where it waits."""
    stalled_until_s: float = 0.0
    """Until then it alone is not run."""
    handle: object | None = None
    """What the engine knows it by."""

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Runs simulated threads. For one thread of the machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.steps = 0
        self.running: SimulatedThread | None = None
        """Who runs just now; nobody between two steps."""
        self._ready: list[SimulatedThread] = []
        self._timers: list[tuple[float, int, SimulatedThread, int]] = []
        self._timers_set = 0
        self._hub: greenlet | None = None
        self._unwinding: list[SimulatedThread] = []
        self._failure: BaseException | None = None

    # -- for whoever starts things

    def spawn(
        self, process: SimulatedProcess, name: str, run: Callable[[], object], *, delay_s: float = 0.0
    ) -> SimulatedThread:
        """A thread of a process, run from now or later on. Of a process that has ended it never runs."""
        thread = SimulatedThread(name, process, run)
        if process.ended:
            thread.ended = True
            return thread
        process.threads.append(thread)
        if delay_s > 0:
            thread.waits = True
            self._set_timer(thread, delay_s)
        else:
            self._ready.append(thread)
        return thread

    def end(self, process: SimulatedProcess) -> None:
        """End a process. If it is the caller's own, this raises ProcessEnded; else it is unwound at once."""
        if not process.ended:
            process.ended = True
            self._unwinding += process.threads
        if self.running is not None and self.running.process is process:
            raise ProcessEnded(process.name)

    def fail(self, failure: BaseException) -> None:
        """End the simulation by this, after the present step."""
        if self._failure is None:
            self._failure = failure

    def stall(self, process: SimulatedProcess, seconds: float) -> None:
        """Let none of its threads run for so long, from the next step of each."""
        process.stalled_until_s = max(process.stalled_until_s, self.now_s + seconds)

    def run(self, until: Callable[[], bool]) -> None:
        """Run threads until that is so. Raises SimulationStuck, and what ended a thread of nobody."""
        self._hub = getcurrent()
        while not until():
            self._unwind()
            thread = self._next()
            self._step(thread)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure

    def close(self, processes: list[SimulatedProcess]) -> None:
        """End all of these, so that nothing of them is left for the garbage collector to run."""
        self._hub = getcurrent()
        self.running = None
        for process in processes:
            self.end(process)
        self._unwind()
        self._failure = None

    # -- for threads

    def park(self, timeout_s: float | None = None) -> bool:
        """Wait until woken, or for so long: whether it was woken. For the running thread."""
        thread = self._alive()
        thread.waits = True
        thread.woken = False
        thread.turn += 1
        if timeout_s is not None:
            self._set_timer(thread, max(0.0, timeout_s))
        self._switch()
        return thread.woken

    def wake(self, thread: SimulatedThread) -> None:
        """End the wait of a thread, if it waits."""
        if thread.waits and not thread.ended:
            thread.waits = False
            thread.woken = True
            self._ready.append(thread)

    def give_way(self) -> None:
        """Let others run, if the seed wants it: before and after what other threads can see."""
        thread = self.running
        if thread is None or thread.atomic or self.random.random() > GIVES_WAY:
            return
        self._alive()
        self._ready.append(thread)
        self._switch()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What the running thread does in the block, it does at one moment: it is overtaken only where it waits."""
        thread = self.running
        before = thread is not None and thread.atomic
        if thread is not None:
            thread.atomic = True
        try:
            yield
        finally:
            if thread is not None:
                thread.atomic = before

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for the running thread; it may be overtaken meanwhile."""
        self.park(seconds)

    def refuse_ended(self) -> None:
        """Raise ProcessEnded if the process of the running thread has ended."""
        if self.running is not None:
            self._alive()

    def _alive(self) -> SimulatedThread:
        thread = self.running
        if thread is None:
            raise SimulationStuck("something waits that is no simulated thread")
        if thread.process.ended:
            raise ProcessEnded(thread.process.name)
        return thread

    # -- the loop

    def _next(self) -> SimulatedThread:
        """Whose turn it is. Time goes on when nobody can run."""
        while True:
            while self._timers and (not self._ready or self._timers[0][0] <= self.now_s):
                at_s, _, thread, turn = heapq.heappop(self._timers)
                if thread.ended or not thread.waits or thread.turn != turn:
                    continue
                self.now_s = max(self.now_s, at_s)
                thread.waits = False
                self._ready.append(thread)
            if not self._ready:
                raise SimulationStuck("every thread waits for another one")
            chosen = self.random.randrange(len(self._ready))
            self._ready[chosen], self._ready[-1] = self._ready[-1], self._ready[chosen]
            thread = self._ready.pop()
            if thread.ended:
                continue
            if self._is_put_off(thread):
                continue
            return thread

    def _is_put_off(self, thread: SimulatedThread) -> bool:
        """Whether it, or its process, is stalled: then it comes again when that is over."""
        until_s = max(thread.stalled_until_s, thread.process.stalled_until_s)
        if until_s <= self.now_s:
            return False
        thread.waits = True
        thread.turn += 1
        self._set_timer(thread, until_s - self.now_s)
        return True

    def _step(self, thread: SimulatedThread) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise SimulationStuck(f"{thread} and others have run for {STEPS_MAX} steps")
        self.now_s += STEP_S
        if thread.greenlet is None:
            thread.greenlet = greenlet(lambda: self._run(thread), parent=self._hub)
        self.running = thread
        thread.greenlet.switch()
        self.running = None

    def _run(self, thread: SimulatedThread) -> None:
        try:
            thread.run()
        except ProcessEnded:
            pass
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: its process is told, or the caller
            if not thread.process.ended:
                self._died(thread, error)
        finally:
            self._forget(thread)

    def _died(self, thread: SimulatedThread, error: BaseException) -> None:
        if thread.process.died is None:
            self._failure = error
            return
        try:
            thread.process.died(thread, error)
        except ProcessEnded:
            return

    def _forget(self, thread: SimulatedThread) -> None:
        thread.ended = True
        if thread in thread.process.threads:
            thread.process.threads.remove(thread)
        for waiter in thread.ended_waiters:
            self.wake(waiter)

    def _unwind(self) -> None:
        """Have the threads of ended processes leave their blocks: what these try to do raises again."""
        while self._unwinding:
            thread = self._unwinding.pop(0)
            if thread.ended:
                continue
            if thread.greenlet is None or thread.greenlet.dead:
                self._forget(thread)
                continue
            self.running = thread
            thread.greenlet.throw(ProcessEnded(thread.process.name))
            self.running = None

    def _switch(self) -> None:
        assert self._hub is not None
        self._hub.switch()
        self._alive()

    def _set_timer(self, thread: SimulatedThread, delay_s: float) -> None:
        self._timers_set += 1
        heapq.heappush(self._timers, (self.now_s + delay_s, self._timers_set, thread, thread.turn))
