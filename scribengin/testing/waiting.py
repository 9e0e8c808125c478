"""How tests wait: for a condition, with a limit, never for a fixed time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.clock import SYSTEM_CLOCK

_POLL_S = 0.01


def wait_until(condition: Callable[[], object], timeout_s: float = 60, what: str = "the condition") -> None:
    """Return once `condition()` is true. Raises AssertionError, naming `what`, when it is not within `timeout_s`."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while not condition():
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}")
        threading.Event().wait(_POLL_S)
