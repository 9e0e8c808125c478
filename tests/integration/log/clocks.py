"""Clocks of the tests of what a log does when its time has come."""

from __future__ import annotations

from scribengin.testing.clocks import ManualClock


class HastyClock(ManualClock):
    """Whenever somebody looks, a minute has passed. `asked`: how often that was."""

    asked = 0

    def monotonic_s(self) -> float:
        self.asked += 1
        self.advance_s(60)
        return super().monotonic_s()
