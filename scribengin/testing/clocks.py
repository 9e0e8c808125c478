"""A clock that tests move by hand."""

from __future__ import annotations

import threading

from scribengin.clock import SYSTEM_CLOCK


class ManualClock:
    """Stands still until `advance_s`. Starts at the machine's time. Thread-safe. A `scribengin.clock.Clock`."""

    def __init__(self) -> None:
        self._start_ms = SYSTEM_CLOCK.now_ms()
        self._lock = threading.Lock()
        self._passed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._passed_s * 1000)

    def monotonic_s(self) -> float:
        return self._passed_s

    def advance_s(self, seconds: float) -> None:
        """Let so much time pass."""
        with self._lock:
            self._passed_s += seconds
