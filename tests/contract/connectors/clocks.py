"""Clocks of the tests of sources that look again after a while."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK


class LaterClock:
    """The machine's clock, or `later_s` ahead of it."""

    def __init__(self) -> None:
        self.later_s = 0.0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(self.later_s * 1000)

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s() + self.later_s
