"""Several clients at once, measured as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from scribengin.base.clock import SYSTEM_CLOCK


def rate_of_all(readers: Sequence[Callable[[], int]]) -> float:
    """Records per second of readers that begin together, a thread each, and say how many they have read."""
    with ThreadPoolExecutor(len(readers)) as threads:
        begun_s = SYSTEM_CLOCK.monotonic_s()
        found = [future.result() for future in [threads.submit(reader) for reader in readers]]
        return sum(found) / (SYSTEM_CLOCK.monotonic_s() - begun_s)
