"""Tails of segments, each watched once for all who wait for it.

A watch is a thread that looks when the store tells of a change, and from time to time. It begins with the first who
waits, and ends soon after the last: between two questions of one reader it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import OverCapacity, ScribenginError
from scribengin.log.store.contract import SegmentName, SegmentView, Tail

_POLL_S = 0.020
_TOLD_POLL_S = 0.500
"""How often it looks by itself where the store tells of changes."""
_IDLE_LOOKS_MAX = 3
"""After so many looks that nobody waited for, a watch ends."""


class _TailWatch:
    """Of one segment. All but `moved` is changed under the lock of all of them."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        self.moved = threading.Event()
        self.waiting = self.idle_looks = 0
        self.tail: Tail | None = None
        self.failure: Exception | None = None

    def end(self) -> int:
        """Where the tail was seen last."""
        return -1 if self.tail is None else self.tail.end


class TailWatches(ClosedAtExit):
    """Thread-safe. `opened` gives a view of a segment for a watch alone."""

    def __init__(self, opened: Callable[[SegmentName], SegmentView], waits_max: int) -> None:
        self._opened = opened
        self._waits_max = waits_max
        self._lock = threading.Lock()
        self._watches: dict[SegmentName, _TailWatch] = {}
        self._waiting = 0
        self._closed = False

    @property
    def watched(self) -> int:
        """How many segments are watched."""
        with self._lock:
            return len(self._watches)

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return self._waiting

    def wait(self, name: SegmentName, known_end: int, timeout_s: float) -> Tail | None:
        """The tail, as soon as it ends behind `known_end` (-1: as there is one), or after the timeout.

        Raises OverCapacity (too many wait), LogNotFound, and what else the store or the system raises.
        """
        with self._lock:
            if self._waiting >= self._waits_max:
                raise OverCapacity(
                    f"{self._waiting} readers wait for more at this proxy, which is its limit: start another proxy, or "
                    "raise tail_waits_max"
                )
            watch = self._watches.get(name) or self._begin(name)
            self._waiting += 1
            watch.waiting += 1
            try:
                watch.changed.wait_for(
                    lambda: self._closed or watch.failure is not None or watch.end() > known_end, timeout_s
                )
            finally:
                watch.waiting -= 1
                self._waiting -= 1
            if watch.failure is not None:
                raise watch.failure.with_traceback(None)
            return watch.tail

    def close(self) -> None:
        """Answer everybody who waits, and watch nothing any more. Idempotent."""
        with self._lock:
            self._closed = True
            for watch in self._watches.values():
                watch.changed.notify_all()
                watch.moved.set()

    def _begin(self, name: SegmentName) -> _TailWatch:
        watch = _TailWatch(self._lock)
        background("proxy-tail", lambda: self._run(name, watch)).start()
        self._watches[name] = watch
        return watch

    def _run(self, name: SegmentName, watch: _TailWatch) -> None:
        try:
            view = self._opened(name)
            try:
                self._follow(name, watch, view)
            finally:
                view.close()
        except (ScribenginError, OSError) as error:
            with self._lock:
                self._forget(name, watch)
                watch.failure = error
                watch.changed.notify_all()

    def _follow(self, name: SegmentName, watch: _TailWatch, view: SegmentView) -> None:
        stop: Callable[[], None] | None = None
        try:
            while self._is_wanted(name, watch):
                watch.moved.clear()
                self._show(watch, view.tail())
                if stop is None:
                    stop = view.watch_tail(watch.moved)
                    if stop is not None:
                        continue  # what moved before the watch began is not told of
                watch.moved.wait(_POLL_S if stop is None else _TOLD_POLL_S)
        finally:
            if stop is not None:
                stop()

    def _is_wanted(self, name: SegmentName, watch: _TailWatch) -> bool:
        with self._lock:
            watch.idle_looks = 0 if watch.waiting else watch.idle_looks + 1
            if watch.idle_looks <= _IDLE_LOOKS_MAX and not self._closed:
                return True
            self._forget(name, watch)
            return False

    def _show(self, watch: _TailWatch, tail: Tail | None) -> None:
        with self._lock:
            if tail is not None and tail.end > watch.end():
                watch.tail = tail
                watch.changed.notify_all()

    def _forget(self, name: SegmentName, watch: _TailWatch) -> None:
        if self._watches.get(name) is watch:
            del self._watches[name]
