"""How a reader behind a proxy hears of more: one question that is always open, while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.base.threads import background, started
from scribengin.errors import ScribenginError
from scribengin.log.store.contract import Tail

POLL_S = 0.5
"""A question is open so long, and then asked again. Whoever closes its reader waits that long at most."""
_RETRY_S = 0.1


class TailPoll:
    """Asks for the tail of one segment, and sets events when it has moved. Thread-safe.

    Its thread lives from the first watch to `close`, and asks only while somebody watches.
    """

    def __init__(self, ask: Callable[[int, float], Tail | None]) -> None:
        """`ask` gives the tail as soon as it ends behind a place, or after some seconds. It raises ScribenginError."""
        self._ask = ask
        self._changing = threading.Condition()
        self._watching: list[threading.Event] = []
        self._latest: Tail | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, moved: threading.Event) -> Callable[[], None]:
        """Set `moved` when the tail has moved, until what this returns is called."""
        with self._changing:
            if self._thread is None:
                self._thread = started(background("log-tail-poll", self._run))
            if not self._watching:
                self._latest = None  # what was heard before may be old by now
            self._watching.append(moved)
            self._changing.notify_all()
        return lambda: self._forget(moved)

    def latest(self) -> Tail | None:
        """The tail as it was heard since somebody watches; None: whoever wants it has to ask."""
        with self._changing:
            return self._latest if self._watching else None

    @property
    def ended(self) -> bool:
        """Whether it was closed, and asks nothing any more."""
        return self._closed and (self._thread is None or not self._thread.is_alive())

    def close(self) -> None:
        """Tell nobody any more. Idempotent."""
        with self._changing:
            self._closed = True
            self._watching.clear()
            self._changing.notify_all()

    def join(self) -> None:
        """Wait for the last question, once this is closed."""
        if self._thread is not None:
            self._thread.join()

    def _forget(self, moved: threading.Event) -> None:
        with self._changing:
            if moved in self._watching:
                self._watching.remove(moved)

    def _run(self) -> None:
        known = -1
        while self._is_wanted():
            try:
                tail = self._ask(known, POLL_S)
            except ScribenginError:
                self._heard(None, moved=True)  # the reader asks by itself, and is told what is wrong
                with self._changing:
                    self._changing.wait_for(lambda: self._closed, _RETRY_S)
                continue
            end = -1 if tail is None else tail.end
            self._heard(tail, moved=end > known)
            known = max(known, end)

    def _is_wanted(self) -> bool:
        """Once somebody watches: True. False: it was closed."""
        with self._changing:
            self._changing.wait_for(lambda: self._watching or self._closed)
            return not self._closed

    def _heard(self, tail: Tail | None, *, moved: bool) -> None:
        with self._changing:
            self._latest = tail
            if moved:
                for event in self._watching:
                    event.set()
