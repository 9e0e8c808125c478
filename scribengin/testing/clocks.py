"""A clock that tests move by hand, and one that is set forward and back again and again."""

from __future__ import annotations

import random
import threading

from scribengin.base.clock import SYSTEM_CLOCK


class ManualClock:
    """Stands still until `advance_s` or `set_wall_ms`. Starts at the machine's time. Thread-safe.

    A `scribengin.base.clock.Clock`.
    """

    def __init__(self) -> None:
        self._start_ms = SYSTEM_CLOCK.now_ms()
        self._lock = threading.Lock()
        self._passed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._passed_s * 1000)

    def set_wall_ms(self, now_ms: int) -> None:
        """Let it be that time, as when somebody sets a clock, forward or back: no time passes."""
        with self._lock:
            self._start_ms += now_ms - self.now_ms()

    def monotonic_s(self) -> float:
        return self._passed_s

    def advance_s(self, seconds: float) -> None:
        """Let so much time pass."""
        with self._lock:
            self._passed_s += seconds


class JumpingClock:
    """The machine's clock, but that its wall time jumps at every look, by hours, forward and back; durations are true.

    Thread-safe. A `scribengin.base.clock.Clock`.
    """

    def __init__(self, seed: int = 0, jump_hours_max: float = 6.0) -> None:
        self._chance = random.Random(seed)
        self._jump_ms = jump_hours_max * 3_600_000

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + round(self._chance.uniform(-self._jump_ms, self._jump_ms))

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()
