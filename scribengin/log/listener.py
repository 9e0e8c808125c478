"""Watching the logs of a namespace come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.log.closing import ClosedAtExit
from scribengin.model import from_node_name
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, RegistryUnreachable, SessionLost

LogsChanged = Callable[[list[str], list[str]], None]
"""Called with the names of logs that were added, and of those that were removed, each sorted."""

_RETRY_S = 1.0


class NamespaceListener(ClosedAtExit):
    """Calls back with the logs there are, then with every change, on a thread of its own, until `close`.

    The first call tells of all logs, also when there are none. Several changes may come as one call, and a log that was
    deleted and created again between two looks is not told of. A lost session is survived: the names are listed again.
    Made by `LogNamespace.listen`.
    """

    def __init__(self, registry: Registry, logs_path: str, callback: LogsChanged, prefix: str) -> None:
        self._registry, self._logs_path, self._callback, self._prefix = registry, logs_path, callback, prefix
        self._woken = threading.Event()
        self._closed = False
        self.error: BaseException | None = None
        """What the callback raised, or why the registry could not be asked any more: nothing is told after that."""
        self._thread = threading.Thread(target=self._run, name=f"listener-{logs_path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. Unless the callback itself calls this, no call is under way when it returns. Idempotent."""
        self._closed = True
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        known: set[str] | None = None
        try:
            while not self._closed:
                names = self._names()
                if names is None:
                    self._woken.wait(_RETRY_S)
                    self._woken.clear()
                    continue
                if known is None or names != known:
                    before, known = known or set(), names
                    self._callback(sorted(names - before), sorted(before - names))
                self._woken.wait()
                self._woken.clear()
        except Exception as error:  # noqa: BLE001  the thread's outermost loop: `error` tells of it
            self.error = error

    def _names(self) -> set[str] | None:
        """The names there are, with a watch on the next change; None: ask again later."""
        try:
            nodes = self._registry.children(self._logs_path, self._on_change)
        except NodeMissing:
            if self._registry.find(self._logs_path, self._on_change) is None:
                return set()
            return None
        except (RegistryUnreachable, SessionLost):
            return None
        names = (from_node_name(node) for node in nodes)
        return {name for name in names if name.startswith(self._prefix)}

    def _on_change(self, _event: object) -> None:
        self._woken.set()
