"""Who is told of the next change of which node. No ZooKeeper here.

A client library keeps what it registered with the servers until that fires, and takes nothing back. So there is one
registration for each node (`SharedWatch`), however many wait for its change; who does not wait any more leaves nothing.

Whoever registers is in the list before the servers are asked. A change that somebody else's registration tells of
meanwhile is told to both: that may be once too early, for a change that the read has seen, and is never too late.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from scribengin_registry.contract import Watch, WatchEvent

What = Literal["node", "children"]


class SharedWatch:
    """One registration with the servers, of one node. It fires once; made by `WatchTable`."""

    def __init__(self, what: What, path: str) -> None:
        self.what = what
        self.path = path
        self.waiting: dict[Watch, int] = {}
        """With how many reads each of them came."""
        self.placed = False
        """Whether the servers know of it."""


class WatchTable:
    """All watches of a session that were set and have not fired. Thread-safe."""

    def __init__(self) -> None:
        # Who collects garbage may close what nobody has closed, as a stream of Python's, and with it end a watch: in
        # any thread, also in one that is in here just now.
        self._lock = threading.RLock()
        self._unfired: dict[tuple[What, str], SharedWatch] = {}
        self._of: dict[Watch, set[SharedWatch]] = {}

    def __len__(self) -> int:
        return len(self._unfired)

    @contextmanager
    def joined(self, what: What, path: str, watch: Watch) -> Iterator[SharedWatch]:
        """What to register while the node is read, so that `watch` is called. A read that raises sets no watch."""
        with self._lock:
            shared = self._unfired.setdefault((what, path), SharedWatch(what, path))
            shared.waiting[watch] = shared.waiting.get(watch, 0) + 1
            self._of.setdefault(watch, set()).add(shared)
        try:
            yield shared
            shared.placed = True
        except BaseException:
            with self._lock:
                self._take_back(shared, watch, 1)
            raise

    def fire(self, shared: SharedWatch, event: WatchEvent) -> None:
        """Call all that wait for it; one that raises keeps no other from being called."""
        with self._lock:
            waiting = self._take(shared)
        with ExitStack() as calls:
            for watch in reversed(waiting):
                calls.callback(watch, event)

    def take(self, what: What, path: str) -> list[Watch]:
        """Those that wait for a change of the node, in order: they are to be called, and wait no more."""
        if (what, path) not in self._unfired:  # of most changes nobody is told: no lock for these
            return []
        with self._lock:
            shared = self._unfired.get((what, path))
            return [] if shared is None else self._take(shared)

    def take_all(self) -> list[tuple[str, Watch]]:
        """All that wait, each with the node that it waits for."""
        with self._lock:
            return [(shared.path, watch) for shared in list(self._unfired.values()) for watch in self._take(shared)]

    def unwatch(self, watch: Watch) -> None:
        """Call `watch` no more, and keep nothing of it."""
        with self._lock:
            for shared in list(self._of.get(watch, ())):
                self._take_back(shared, watch, shared.waiting[watch])

    def _take(self, shared: SharedWatch) -> list[Watch]:
        self._drop(shared)
        waiting, shared.waiting = shared.waiting, {}
        for watch in waiting:
            self._forget(shared, watch)
        return list(waiting)

    def _take_back(self, shared: SharedWatch, watch: Watch, reads: int) -> None:
        left = shared.waiting.get(watch, 0) - reads
        if left > 0:
            shared.waiting[watch] = left
        elif watch in shared.waiting:
            del shared.waiting[watch]
            self._forget(shared, watch)
        if not shared.waiting and not shared.placed:
            self._drop(shared)

    def _drop(self, shared: SharedWatch) -> None:
        if self._unfired.get((shared.what, shared.path)) is shared:
            del self._unfired[shared.what, shared.path]

    def _forget(self, shared: SharedWatch, watch: Watch) -> None:
        of_it = self._of.get(watch, set())
        of_it.discard(shared)
        if not of_it:
            self._of.pop(watch, None)
