"""How soon to start something again that keeps dying. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

YOUNG_S = 30.0
"""What dies younger than this died of itself; what lived longer had a reason of the moment."""
_FIRST_DELAY_S = 1.0
_DELAY_MAX_S = 30.0


def delay_s(failures: int) -> float:
    """How long to wait after so many failures in a row: not at all after the first, then ever longer."""
    return 0.0 if failures < 2 else min(_FIRST_DELAY_S * 2.0 ** (failures - 2), _DELAY_MAX_S)


@dataclass(slots=True)
class Backoff:
    """The deaths in a row of one kind of thing."""

    failures: int = 0
    not_before_s: float = 0.0

    def died(self, now_s: float, age_s: float) -> None:
        """One of them has died at this age."""
        self.failures = self.failures + 1 if age_s < YOUNG_S else 1
        self.not_before_s = now_s + delay_s(self.failures)

    def may_start(self, now_s: float) -> bool:
        """Whether another one may be started now."""
        return now_s >= self.not_before_s
