"""How tests wait: for a condition, with a limit, never for a fixed time."""

from __future__ import annotations

from collections.abc import Callable

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.threads import pause

_POLL_S = 0.01
_POLL_MAX_S = 0.1
# Whoever is waited for needs the processor, and so do the servers that a look asks. So most of the time nobody looks.
_LOOKS_SHARE = 0.1
# A machine of many may stand still for most of a minute. What it is to do meanwhile has had no time to be done: a look
# counts for so much at most, however long it took.
_LOOK_MAX_S = 5.0


class WaitedInVain(AssertionError):
    """What was waited for has not come in time."""


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = 60,
    what: str = "the condition",
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Return once `condition()` is true. Raises WaitedInVain, naming `what`, when it is not within `timeout_s`: of
    the time that this process ran, as no more than 5 s pass from one look to the next, however long a look takes.

    Between two looks it pauses for ten times as long as the last one took: 10 ms at least, 100 ms at most."""
    left_s, looked_s = timeout_s, clock.monotonic_s()
    while not condition():
        if left_s < 0:
            raise WaitedInVain(f"waited {timeout_s:g} s in vain for {what}")
        pause(_pause_s(clock.monotonic_s() - looked_s))
        before_s, looked_s = looked_s, clock.monotonic_s()
        left_s -= min(looked_s - before_s, _LOOK_MAX_S)


def _pause_s(look_s: float) -> float:
    """For how long nobody looks after a look that took so long."""
    return min(max(_POLL_S, look_s / _LOOKS_SHARE), _POLL_MAX_S)
