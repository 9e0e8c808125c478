"""How long something may still take. This package stands below `scribengin.clock`: it reads time here, only here."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point of monotonic time."""

    at_s: float

    @classmethod
    def after(cls, timeout_s: float) -> Deadline:
        """The deadline that passes `timeout_s` from now."""
        return cls(time.monotonic() + timeout_s)

    @property
    def remaining_s(self) -> float:
        """Seconds until it passes, 0 when it has."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether there is no time left."""
        return self.remaining_s == 0.0

    def pause(self, longest_s: float) -> None:
        """Give others the time to do what we wait for: `longest_s`, or what remains."""
        threading.Event().wait(min(longest_s, self.remaining_s))
