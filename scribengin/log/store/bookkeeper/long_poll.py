"""Who waits at the end of a segment is woken by bookies, and need not ask them fifty times a second.

A bookie answers a long poll once it learns that one more entry of the ledger is confirmed. It learns that from the next
entry, which says so. So while a segment grows, its bookies tell of each new entry as it arrives, some milliseconds
before that is acknowledged and shown. So who waits looks several times from then on, at growing intervals.

A hint, like every watch of a tail: nothing tells of the first entry of a segment, which is looked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.base.threads import background
from scribengin.log.store.bookkeeper.client import LedgerReader

_LIMIT_S = 1.0
_FIRST_LIMIT_S = 0.050
_POLL_S = 0.020
_LOOKS_S = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)


class TailHints:
    """Sets events when a ledger has grown. Thread-safe. Its one thread lives from the first watch to `close`, and waits
    for bookies only while somebody watches."""

    def __init__(self, opened: Callable[[], LedgerReader]) -> None:
        """`opened` gives a reader of the ledger for this object alone. It raises OSError."""
        self._opened = opened
        self._changing = threading.Condition()
        self._waiting: list[threading.Event] = []
        self._watches = 0
        self._begun = self._closed = False

    def watch(self, moved: threading.Event) -> Callable[[], None]:
        """Set `moved` when there may be more, until what this returns is called."""
        with self._changing:
            self._waiting.append(moved)
            self._watches += 1
            if not self._begun:
                self._begun = True
                background("log-tail-poll", self._run).start()
            self._changing.notify_all()
        return lambda: self._forget(moved)

    def close(self) -> None:
        """Tell nobody any more. Idempotent. The thread ends when its bookie has answered, within a second."""
        with self._changing:
            self._closed = True
            self._waiting.clear()
            self._changing.notify_all()

    def _forget(self, moved: threading.Event) -> None:
        with self._changing:
            if moved in self._waiting:
                self._waiting.remove(moved)

    def _run(self) -> None:
        reader: LedgerReader | None = None
        confirmed = -1
        while (watches := self._wanted()) is not None:
            try:
                reader = reader or self._opened()
                known = reader.await_confirmed(confirmed, _FIRST_LIMIT_S if confirmed < 0 else _LIMIT_S)
            except (OSError, IndexError):  # it has no entry yet, or bookies are away
                self._look_after((_POLL_S,), watches)
                continue
            if known > confirmed or known < 0:
                confirmed = known
                self._look_after(_LOOKS_S, watches)
            else:
                self._look_after((_POLL_S,), watches)  # as when its writer has closed it: nothing is waited for
        if reader is not None:
            reader.close()

    def _wanted(self) -> int | None:
        """How many watches there were, once somebody watches; None: it was closed."""
        with self._changing:
            self._changing.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._watches

    def _look_after(self, pauses_s: tuple[float, ...], watches: int) -> None:
        """Let those who watch look after each of the pauses, unless somebody begins to watch: who does has looked."""
        for pause_s in pauses_s:
            with self._changing:
                if self._changing.wait_for(lambda: self._closed or self._watches > watches, pause_s):
                    return
                for moved in self._waiting:
                    moved.set()
