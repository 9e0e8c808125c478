"""The only place that reads time. Everything that needs it takes a `Clock`, so tests can hand in their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for people and records; monotonic time for every duration and deadline."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. It may jump; never subtract two of them to decide anything."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that only grow."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK: Clock = SystemClock()
