"""Watches the commit logs of source streams, and remembers every change of them."""

from __future__ import annotations

import queue
import threading

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin_dev.harness.standstill import SeenCommit
from scribengin_registry.contract import Registry, Watch, WatchEvent


class CommitWatch:
    """Follows commit logs on a thread of its own, whose failure `check` raises.

    A commit log that changes twice before it is read again is seen once, with its later state: gaps between commits are
    never understated.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._streams: dict[str, str] = {}
        self._changed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._seen: list[SeenCommit] = []
        self._positions: dict[str, Position] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="commit-watch", daemon=True)

    def follow(self, stream: str, path: str) -> None:
        """Watch the commit log of one more stream."""
        self._streams[path] = stream
        self._changed.put(path)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._changed.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise what ended the watch, if anything did."""
        if self._failure is not None:
            raise self._failure

    def seen(self) -> list[SeenCommit]:
        """Every change so far, in the order in which it was seen."""
        with self._lock:
            return list(self._seen)

    def position(self, stream: str) -> Position | None:
        """Where the dataflow stands in one stream, None before its first round."""
        with self._lock:
            return self._positions.get(stream)

    def _run(self) -> None:
        try:
            while (path := self._changed.get()) is not None:
                self._look(path)
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: `check` raises it in the demo's own
            self._failure = error

    def _look(self, path: str) -> None:
        node = self._registry.find(path, self._on_change(path))
        if node is None or not node.data:
            return  # no worker has taken it over yet; the watch is set
        log = CommitLog.from_bytes(node.data, path=path)
        stream = self._streams[path]
        with self._lock:
            self._seen.append(SeenCommit(stream, log.task, log.owner, log.round, node.modified_ms))
            if log.position is not None:
                self._positions[stream] = log.position

    def _on_change(self, path: str) -> Watch:
        def changed(_event: WatchEvent) -> None:
            self._changed.put(path)

        return changed
