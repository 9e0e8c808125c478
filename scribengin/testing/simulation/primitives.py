"""What `threading` and `queue` offer, for simulated threads: as far as the engine uses it, with the same signatures.

Only the standard library's promises are kept, not its habits: who of several waiters is woken first is drawn.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from queue import Empty
from types import TracebackType
from typing import Any, Generic, TypeVar

from scribengin.testing.simulation.scheduler import Scheduler, SimulatedThread

_T = TypeVar("_T")
_UNNAMED_POOL = re.compile(r"^ThreadPoolExecutor-\d+_")
"""The number is how many pools this process has made before: in a transcript it would be another one every time."""
_active: Scheduler | None = None


def activate(scheduler: Scheduler | None) -> None:
    """Whose primitives are made from now on; None: nobody's."""
    global _active
    _active = scheduler


def active() -> Scheduler:
    """The scheduler of the simulation that runs."""
    assert _active is not None, "no simulation runs"
    return _active


class Waiters:
    """Threads that wait for one thing."""

    def __init__(self) -> None:
        self.scheduler = active()
        self.waiting: list[SimulatedThread] = []

    def park(self, timeout_s: float | None) -> bool:
        """Wait among them: whether woken."""
        thread = self.scheduler.running
        assert thread is not None, "only simulated threads wait"
        self.waiting.append(thread)
        try:
            return self.scheduler.park(timeout_s)
        finally:
            if thread in self.waiting:
                self.waiting.remove(thread)

    def wake_one(self) -> bool:
        """Wake one of them: whether there was one."""
        if not self.waiting:
            return False
        chosen = self.waiting.pop(self.scheduler.one_of(len(self.waiting)))
        self.scheduler.wake(chosen)
        return True

    def wake_all(self) -> None:
        """Wake them all."""
        while self.waiting:
            self.wake_one()


class SimulatedLock:
    """threading.Lock"""

    _again = False

    def __init__(self) -> None:
        self._waiters = Waiters()
        self._scheduler = self._waiters.scheduler
        self._holder: SimulatedThread | None = None
        self._held = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading's."""
        scheduler = self._scheduler
        running = scheduler.running
        if running is not None and not running.atomic:
            scheduler.give_way()
        if self._held and not (self._again and self._holder is running):
            return self._acquire_held(blocking, timeout)
        self._holder = running
        self._held += 1
        return True

    def _acquire_held(self, blocking: bool, timeout: float) -> bool:
        scheduler = self._scheduler
        deadline_s = None if timeout < 0 else scheduler.now_s + timeout
        while self._held:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if not blocking or (left_s is not None and left_s <= 0):
                return False
            self._waiters.park(left_s)
        self._holder = scheduler.running
        self._held += 1
        return True

    def release(self) -> None:
        """As threading's."""
        self._held -= 1
        if not self._held:
            self._holder = None
            if self._waiters.waiting:
                self._waiters.wake_one()

    def locked(self) -> bool:
        """As threading's."""
        return bool(self._held)

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class SimulatedRLock(SimulatedLock):
    """threading.RLock"""

    _again = True

    def release(self) -> None:
        """As threading's. What ended while it waited for its condition has not taken it again, and leaves it alone:
        what several processes share may be held by one of the others now."""
        running = self._scheduler.running
        if self._holder is not running:
            if running is not None and running.process.ended:
                return
            raise RuntimeError("cannot release a lock that another thread holds, or nobody")
        super().release()

    def release_all(self) -> int:
        """For a condition: how often it was held."""
        held, self._held = self._held, 1
        self.release()
        return held

    def acquire_again(self, held: int) -> None:
        """For a condition: hold it as often as before."""
        self.acquire()
        self._held = held


class Condition:
    """threading.Condition"""

    def __init__(self, lock: SimulatedRLock | None = None) -> None:
        self._lock = SimulatedRLock() if lock is None else lock
        self._waiters = Waiters()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As threading's."""
        held = self._lock.release_all()
        try:
            return self._waiters.park(timeout)
        finally:
            self._lock.acquire_again(held)

    def wait_for(self, predicate: Callable[[], _T], timeout: float | None = None) -> _T:
        """As threading's."""
        scheduler = self._waiters.scheduler
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        found = predicate()
        while not found:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
            found = predicate()
        return found

    def notify(self, n: int = 1) -> None:
        """As threading's."""
        for _ in range(n):
            self._waiters.wake_one()

    def notify_all(self) -> None:
        """As threading's."""
        self._waiters.wake_all()


class Event:
    """threading.Event"""

    def __init__(self) -> None:
        self._waiters = Waiters()
        self._set = False

    def is_set(self) -> bool:
        """As threading's."""
        return self._set

    def set(self) -> None:
        """As threading's."""
        self._set = True
        self._waiters.wake_all()
        self._waiters.scheduler.give_way()

    def clear(self) -> None:
        """As threading's."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As threading's."""
        if not self._set:
            self._waiters.park(timeout)
        return self._set


class Semaphore:
    """threading.Semaphore"""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._waiters = Waiters()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """As threading's."""
        scheduler = self._waiters.scheduler
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        while not self._value:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if not blocking or (left_s is not None and left_s <= 0):
                return False
            self._waiters.park(left_s)
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        """As threading's."""
        for _ in range(n):
            self._value += 1
            self._waiters.wake_one()


class SimpleQueue(Generic[_T]):
    """queue.SimpleQueue, and queue.Queue without a limit"""

    def __init__(self, maxsize: int = 0) -> None:
        self._waiters = Waiters()
        self._items: deque[_T] = deque()

    def put(self, item: _T, block: bool = True, timeout: float | None = None) -> None:
        """As queue's."""
        self._items.append(item)
        self._waiters.wake_one()
        self._waiters.scheduler.give_way()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> _T:
        """As queue's."""
        scheduler = self._waiters.scheduler
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        while not self._items:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if not block or (left_s is not None and left_s <= 0):
                raise Empty
            self._waiters.park(left_s)
        return self._items.popleft()

    def get_nowait(self) -> _T:
        """As queue's."""
        return self.get(block=False)

    def empty(self) -> bool:
        """As queue's."""
        return not self._items

    def qsize(self) -> int:
        """As queue's."""
        return len(self._items)


class Thread:
    """threading.Thread: of the process of whoever starts it"""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = active()
        self.name = _UNNAMED_POOL.sub("pool_", name or "thread")
        self.daemon = daemon
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._thread: SimulatedThread | None = None
        self._number = self._scheduler.next_number()

    def __hash__(self) -> int:
        """By its number: a pool joins its threads in the order of a set, which is another one at every address."""
        return self._number

    def start(self) -> None:
        """As threading's."""
        self._start(0.0)

    def _start(self, delay_s: float) -> None:
        starter = self._scheduler.running
        assert starter is not None, "only simulated threads start others"
        self._thread = self._scheduler.spawn(starter.process, self.name, self.run, delay_s=delay_s)
        self._thread.handle = self

    def run(self) -> None:
        """As threading's."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        """As threading's."""
        return self._thread is not None and not self._thread.ended

    @property
    def ident(self) -> int:
        """As threading's."""
        return id(self)

    def join(self, timeout: float | None = None) -> None:
        """As threading's."""
        running = self._scheduler.running
        thread = self._thread
        if running is None or thread is None or thread.ended:
            return
        thread.ended_waiters.append(running)
        deadline_s = None if timeout is None else self._scheduler.now_s + timeout
        while not thread.ended:
            left_s = None if deadline_s is None else deadline_s - self._scheduler.now_s
            if left_s is not None and left_s <= 0:
                return
            self._scheduler.park(left_s)


class Timer(Thread):
    """threading.Timer"""

    def __init__(
        self,
        interval: float,
        function: Callable[..., object],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(target=function, name="timer", args=args or (), kwargs=kwargs, daemon=True)
        self._interval_s = interval
        self._cancelled = False

    def start(self) -> None:
        """As threading's."""
        self._start(self._interval_s)

    def cancel(self) -> None:
        """As threading's."""
        self._cancelled = True

    def run(self) -> None:
        """As threading's."""
        if not self._cancelled:
            super().run()


class CurrentThread:
    """Who runs, where no `Thread` of the engine's was started for it: the first thread of a process."""

    name = "MainThread"
    daemon = False


def current_thread() -> object:
    """threading.current_thread"""
    running = active().running
    if running is None:
        return CurrentThread
    if running.handle is None:
        running.handle = CurrentThread()
    return running.handle


def get_ident() -> int:
    """threading.get_ident"""
    return id(active().running)


def this_process() -> str:
    """base.process.machine.this_process"""
    running = active().running
    return "nobody" if running is None else running.process.name
