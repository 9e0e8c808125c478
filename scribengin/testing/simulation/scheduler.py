"""The scheduler: one thread of the machine, many greenlets, one of which runs; the seed says which one is next.

A simulated thread runs until it waits for something, or comes to a point where it may be overtaken. Time stands still
while threads run, but for a moment a step, and goes on at once to the next timer when all of them wait: a minute of
waiting costs nothing. Everything that is random is drawn from one generator, so a seed replays exactly.

A thread that comes to a wait hands over to the next one itself. The hub, where `run` was called, comes in between only
when a thread ends, or there is more to do than to go on.

A process is a group of threads. One that has ended never runs again: its threads are unwound by `ProcessEnded`, which
no handler of the engine catches, and which every further wait or effect of theirs raises again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import TracebackType

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


@dataclass(eq=False, slots=True)
class SimulatedProcess:
    """A group of threads that ends as one."""

    name: str
    ended: bool = False
    stalled_until_s: float = 0.0
    """Until then none of its threads is run."""
    threads: list[SimulatedThread] = field(default_factory=list)
    died: Callable[[SimulatedThread, BaseException], None] | None = None
    """Told of an error that ended a thread; where nobody is, the simulation ends by it."""


@dataclass(eq=False, slots=True)
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


class AtOnce:
    """What the running thread does in the block, it does at one moment: it is overtaken only where it waits.

    A class and no generator, as every request to the registry passes it twice.
    """

    __slots__ = ("_before", "_scheduler", "_thread")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        thread = self._thread = self._scheduler.running
        if thread is not None:
            self._before = thread.atomic
            thread.atomic = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.atomic = self._before


class Scheduler:
    """Runs simulated threads. For one thread of the machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.chance = self.random.random
        """Of `random`: who asks often has no way to it."""
        self._bits = self.random.getrandbits
        self.now_s = 0.0
        self.steps = 0
        self.running: SimulatedThread | None = None
        """Who runs just now; nobody between two steps."""
        self._ready: list[SimulatedThread] = []
        self._timers: list[tuple[float, int, SimulatedThread, int]] = []
        self._timers_set = 0
        self._numbers = 0
        self._hub: greenlet | None = None
        self._until: Callable[[], bool] = bool
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
        self._until = until
        while not until():
            self._unwind()
            self._greenlet_of(self._begin_next()).switch()
            self.running = None
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

    def next_number(self) -> int:
        """Another one at every call, for what must be told apart the same way in every process."""
        self._numbers += 1
        return self._numbers

    # -- for threads

    def park(self, timeout_s: float | None = None) -> bool:
        """Wait until woken, or for so long: whether it was woken. For the running thread."""
        thread = self.running
        if thread is None or thread.process.ended:
            thread = self._alive()
        thread.waits = True
        thread.woken = False
        thread.turn = turn = thread.turn + 1
        if timeout_s is not None:  # as `_set_timer` does: every wait of every thread comes by here
            self._timers_set = number = self._timers_set + 1
            at_s = self.now_s + timeout_s if timeout_s > 0.0 else self.now_s
            heappush(self._timers, (at_s, number, thread, turn))
        self._switch(thread)
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
        if thread is None or thread.atomic or self.chance() > GIVES_WAY:
            return
        self._alive()
        self._ready.append(thread)
        self._switch(thread)

    def one_of(self, count: int) -> int:
        """A number below that, drawn as `random.randrange` draws it, which takes three times as long."""
        bits = count.bit_length()
        drawn = self._bits(bits)
        while drawn >= count:
            drawn = self._bits(bits)
        return drawn

    def at_once(self) -> AtOnce:
        """What the running thread does in the block, it does at one moment: it is overtaken only where it waits."""
        return AtOnce(self)

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

    def _begin_next(self) -> SimulatedThread:
        """Begin the step of whose turn it is. Time goes on when nobody can run. Raises SimulationStuck."""
        ready, timers, now_s = self._ready, self._timers, self.now_s
        while True:
            while timers and (not ready or timers[0][0] <= now_s):
                at_s, _, thread, turn = heappop(timers)
                if thread.ended or not thread.waits or thread.turn != turn:
                    continue
                if at_s > now_s:
                    self.now_s = now_s = at_s
                thread.waits = False
                ready.append(thread)
            if not ready:
                raise SimulationStuck("every thread waits for another one")
            count = len(ready)
            bits = count.bit_length()
            chosen = self._bits(bits)
            while chosen >= count:  # as `one_of` does
                chosen = self._bits(bits)
            ready[chosen], ready[-1] = ready[-1], ready[chosen]
            thread = ready.pop()
            if thread.ended:
                continue
            if thread.stalled_until_s <= now_s and thread.process.stalled_until_s <= now_s:
                break
            self._put_off(thread)
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise SimulationStuck(f"{thread} and others have run for {STEPS_MAX} steps")
        self.now_s = now_s + STEP_S
        self.running = thread
        return thread

    def _put_off(self, thread: SimulatedThread) -> None:
        """It, or its process, is stalled: it comes again when that is over."""
        thread.waits = True
        thread.turn += 1
        self._set_timer(thread, max(thread.stalled_until_s, thread.process.stalled_until_s) - self.now_s)

    def _greenlet_of(self, thread: SimulatedThread) -> greenlet:
        if thread.greenlet is None:
            thread.greenlet = greenlet(lambda: self._run(thread), parent=self._hub)
        return thread.greenlet

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

    def _switch(self, thread: SimulatedThread) -> None:
        """Let others run until it is this one's turn again: the next one at once, if nothing is for the hub to do."""
        assert self._hub is not None
        self.running = None  # what is asked is asked by the hub, whose locks are nobody's to wait for
        if self._unwinding or self._failure is not None or self._until():
            self._hub.switch()
        else:
            try:
                following = self._begin_next()
            except SimulationStuck as stuck:  # of nobody: the hub raises it
                self._failure = stuck
                self._hub.switch()
            else:
                if following is not thread:
                    (following.greenlet or self._greenlet_of(following)).switch()
        if thread.process.ended:
            self._alive()

    def _set_timer(self, thread: SimulatedThread, delay_s: float) -> None:
        self._timers_set += 1
        heappush(self._timers, (self.now_s + delay_s, self._timers_set, thread, thread.turn))
