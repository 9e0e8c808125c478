"""A registry watch that can be waited for."""

from __future__ import annotations

import threading

from scribengin_registry.contract import WatchEvent


class Change(threading.Event):
    """Handed to the registry as a watch; set once it has fired."""

    def __call__(self, _event: WatchEvent) -> None:
        self.set()
