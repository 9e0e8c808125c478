"""A registry watch that can be waited for."""

from __future__ import annotations

import threading

from scribengin_registry.contract import Registry, WatchEvent


class Change(threading.Event):
    """Handed to the registry as a watch; set once it has fired. Taken back where the block ends."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def __call__(self, _event: WatchEvent) -> None:
        self.set()

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *_error: object) -> None:
        self._registry.unwatch(self)
