"""A registry that stops answering while a command is at work: whoever waits for the command is told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from scribengin_registry.contract import Registry, SessionState
from scribengin_registry.threads import background
from scribengin_tools.rendering.text import note, silent_max_s


@contextmanager
def outages_told(registry: Registry) -> Iterator[None]:
    """Say on stderr when the registry has not answered for longer than people wait without a word, and when it answers
    again. Nothing of it is said later than the block's end. Raises ConfigInvalid."""
    teller = _OutageTeller(registry.hosts, silent_max_s())
    thread = background("outages-told", teller.tell)
    thread.start()
    registry.on_session(teller.heard)
    try:
        yield
    finally:
        registry.off_session(teller.heard)
        teller.end()
        thread.join()


class _OutageTeller:
    """Hears of outages on the registry's thread, which it never holds up, and tells of them on one of its own."""

    def __init__(self, hosts: str, silent_s: float) -> None:
        self._hosts = hosts
        self._silent_s = silent_s
        self._changed = threading.Condition()
        self._outages = 0
        self._away = False
        self._ended = False

    def heard(self, state: SessionState) -> None:
        """What has become of the session, perhaps behind the end."""
        with self._changed:
            if state is SessionState.CONNECTED:
                self._away = False
            elif state is SessionState.SUSPENDED and not self._away:
                self._away = True
                self._outages += 1
            self._changed.notify()

    def end(self) -> None:
        """Let `tell` return."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def tell(self) -> None:
        """Say what is heard, until the end: nothing is written while the registry's thread could wait for it."""
        while self._long_outage():
            note(f"the registry at {self._hosts} does not answer: waiting for it ...")
            with self._changed:
                self._changed.wait_for(lambda: self._ended or not self._away)
                if self._ended:
                    return
            note(f"the registry at {self._hosts} answers again")

    def _long_outage(self) -> bool:
        """Wait for an outage that is long enough to be told; False at the end."""
        with self._changed:
            while not self._ended:
                self._changed.wait_for(lambda: self._ended or self._away)
                if not self._changed.wait_for(partial(self._is_over, self._outages), self._silent_s):
                    return True
        return False

    def _is_over(self, outage: int) -> bool:
        """Whether that outage is, though there may be another one already."""
        return self._ended or not self._away or self._outages != outage
