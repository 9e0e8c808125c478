"""Watching the logs of a namespace come and go, and the segments of a log."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from scribengin.base.closing import ClosedAtExit
from scribengin.base.model import from_node_name
from scribengin.base.threads import background
from scribengin.errors import LogNotFound, SegmentsMoved
from scribengin.log.metadata.lifecycle import standing
from scribengin.log.metadata.segments import LogMetadata, LogState, SegmentDescriptor
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, RegistryUnreachable, SessionLost

_T = TypeVar("_T")
LogsChanged = Callable[[list[str], list[str]], None]
"""Called with the names of logs that were added, and of those that were removed, each sorted."""

_RETRY_S = 1.0


SegmentsChanged = Callable[[tuple[SegmentDescriptor, ...]], None]
"""Called with all segments of a log, in order."""


class Listener(ClosedAtExit, Generic[_T]):
    """Looks at something now and after every change, on a thread of its own, until `close`, and tells what is new.

    Several changes may come as one. A lost session is survived: it looks again.
    """

    def __init__(self, registry: Registry, path: str) -> None:
        self._registry = registry
        self._woken = threading.Event()
        self._closed = False
        self.error: BaseException | None = None
        """What the callback raised, or why there is nothing to look at any more: nothing is told after that."""
        self._thread = background(f"listener-{path}", self._run)
        self._thread.start()

    @abstractmethod
    def _look(self) -> _T | None:
        """What there is, with `_on_change` set to watch it; None: look again later."""

    @abstractmethod
    def _tell(self, before: _T | None, now: _T) -> None:
        """Call back; `before` is what was told last."""

    def close(self) -> None:
        """Stop. Unless the callback itself calls this, no call is under way when it returns. Idempotent."""
        self._closed = True
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        known: _T | None = None
        try:
            while not self._closed:
                found = self._look()
                if found is None:
                    self._woken.wait(_RETRY_S)
                    self._woken.clear()
                    continue
                if known is None or found != known:
                    before, known = known, found
                    self._tell(before, found)
                self._woken.wait()
                self._woken.clear()
        except Exception as error:  # noqa: BLE001  the thread's outermost loop: `error` tells of it
            self.error = error
        finally:
            self._registry.unwatch(self._on_change)

    def _on_change(self, _event: object) -> None:
        self._woken.set()


class NamespaceListener(Listener[frozenset[str]]):
    """Calls back with the logs there are, then with every change. The first call tells of all logs, also when there are
    none. A log that was deleted and created again between two looks is not told of. Made by `LogNamespace.listen`.
    """

    def __init__(self, registry: Registry, logs_path: str, callback: LogsChanged, prefix: str) -> None:
        self._logs_path = logs_path
        self._callback = callback
        self._prefix = prefix
        self._there: frozenset[str] = frozenset()
        super().__init__(registry, logs_path)

    def _tell(self, before: frozenset[str] | None, now: frozenset[str]) -> None:
        told = before or frozenset()
        self._callback(sorted(now - told), sorted(told - now))

    def _look(self) -> frozenset[str] | None:
        try:
            nodes = self._registry.children(self._logs_path, self._on_change)
        except NodeMissing:
            if self._registry.find(self._logs_path, self._on_change) is None:
                return frozenset()
            return None
        except (RegistryUnreachable, SessionLost):
            return None
        names = {name: node for node in nodes if (name := from_node_name(node)).startswith(self._prefix)}
        new = [node for name, node in names.items() if name not in self._there]
        try:
            self._there = frozenset([*self._there.intersection(names), *standing(self._registry, self._logs_path, new)])
        except (RegistryUnreachable, SessionLost):
            return None
        return self._there


class SegmentListener(Listener[tuple[SegmentDescriptor, ...]]):
    """Calls back with the segments of a log, then whenever one begins, is completed, compressed or removed. `error` is
    LogNotFound once the log was deleted. Made by `LogNamespace.listen_segments`.
    """

    def __init__(self, metadata: LogMetadata, callback: SegmentsChanged) -> None:
        self._metadata = metadata
        self._callback = callback
        self._directory = metadata.descriptor().directory
        self._known: LogState | None = None
        super().__init__(metadata.registry, metadata.path)

    def _tell(self, _before: tuple[SegmentDescriptor, ...] | None, now: tuple[SegmentDescriptor, ...]) -> None:
        self._callback(now)

    def _look(self) -> tuple[SegmentDescriptor, ...] | None:
        try:
            state = self._known = self._metadata.state(self._known, self._on_change)
            segments = tuple(state.segments)
        except (RegistryUnreachable, SessionLost, SegmentsMoved):
            return None
        if state.head.directory != self._directory:
            raise LogNotFound(f"log '{self._metadata.log}' was deleted, and created again; listen to the new one")
        return segments
