"""A registry that stops answering while a command is at work: whoever waits for the command is told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from scribengin_registry.contract import Registry, SessionState
from scribengin_registry.threads import delayed
from scribengin_tools.rendering.text import note, silent_max_s


@contextmanager
def outages_told(registry: Registry) -> Iterator[None]:
    """Say on stderr when the registry has not answered for longer than people wait without a word, and when it answers
    again. Nothing of it is said later than the block's end."""
    teller = _OutageTeller(registry.hosts)
    registry.on_session(teller.heard)
    try:
        yield
    finally:
        registry.off_session(teller.heard)
        teller.end()


class _OutageTeller:
    """For any thread."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._saying: threading.Timer | None = None
        self._said = False

    def heard(self, state: SessionState) -> None:
        """What has become of the session."""
        with self._lock:
            if state is SessionState.CONNECTED:
                self._forget()
                if self._said:
                    self._said = False
                    note(f"the registry at {self._hosts} answers again")
            elif state is SessionState.SUSPENDED and self._saying is None:
                self._saying = delayed("outage-told", silent_max_s(), self._say)
                self._saying.start()

    def end(self) -> None:
        """Say nothing any more."""
        with self._lock:
            self._forget()

    def _say(self) -> None:
        with self._lock:
            if self._saying is not None:
                self._said = True
                note(f"the registry at {self._hosts} does not answer: waiting for it ...")

    def _forget(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None
