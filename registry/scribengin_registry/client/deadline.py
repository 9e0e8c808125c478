"""How long something may still take. Below `scribengin.base.clock`, this package reads time here, only here."""

from __future__ import annotations

import time
from collections.abc import Callable

from scribengin_registry.threads import pause

_SLICE_S = 0.5
_LOOK_MAX_S = 2.0


class Deadline:
    """So much time, of which counts what this process runs: no more than 2 s pass from one look to the next.

    A machine that stood still for longer than the time there was leaves whoever waited the time to hear an answer that
    has come meanwhile, and to ask again. For one thread.
    """

    __slots__ = ("_left_s", "_looked_s")

    def __init__(self, timeout_s: float) -> None:
        self._left_s = timeout_s
        self._looked_s = time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether there is no time left."""
        before_s, self._looked_s = self._looked_s, time.monotonic()
        self._left_s -= min(self._looked_s - before_s, _LOOK_MAX_S)
        return self._left_s <= 0.0

    def wait(self, waits: Callable[[float], object]) -> bool:
        """Whether `waits`, called with the seconds that it may wait, came true in time. It is asked once more when no
        time is left: a standstill may have taken all of it."""
        while not self.passed:
            if waits(min(_SLICE_S, self._left_s)):
                return True
        return bool(waits(0.0))

    def pause(self, longest_s: float) -> None:
        """Give others the time to do what we wait for: `longest_s`, or what remains."""
        pause(min(longest_s, max(0.0, self._left_s)))
