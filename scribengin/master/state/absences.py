"""For how long the registry was away, as this process saw it: what a leading master tells the history."""

from __future__ import annotations

import threading

from scribengin.base.clock import Clock
from scribengin_registry.contract import SessionState

AWAY_MIN_S = 1.0
"""Less is a reconnection, which happens."""
REMEMBERED_S = 60.0
"""Who comes to lead later than that has nothing to tell of it: who led then has."""


class Absences:
    """Hears of the session's states on the registry's threads, and is asked by the one that leads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._over: list[tuple[float, float]] = []

    def heard(self, state: SessionState) -> None:
        """The session has come to this state."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if state is SessionState.SUSPENDED:
                self._since_s = now_s if self._since_s is None else self._since_s
            elif state is SessionState.CONNECTED and self._since_s is not None:
                away_s, self._since_s = now_s - self._since_s, None
                if away_s >= AWAY_MIN_S:
                    self._over.append((now_s, away_s))

    def take(self) -> list[float]:
        """How long each took that has ended lately, and was not taken yet."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            over, self._over = self._over, []
        return [away_s for ended_s, away_s in over if now_s - ended_s <= REMEMBERED_S]
