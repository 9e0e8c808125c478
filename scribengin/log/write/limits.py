"""How many records may be unacknowledged at once, by one writer or by all that share a limit."""

from __future__ import annotations

import threading

from scribengin.errors import OverCapacity


class WriteLimiter:
    """Counts unacknowledged records, and refuses more than `records_max`. Thread-safe; give it to many writers to make
    them share the limit.

    In dark mode it refuses nothing and only counts what it would have refused, to find a limit that fits. With None
    for `records_max` it only counts what is outstanding. `what` names it in errors: "the writer", "the namespace".
    """

    def __init__(self, records_max: int | None, *, dark_mode: bool = False, what: str) -> None:
        self._records_max = records_max
        self._dark_mode = dark_mode
        self._what = what
        self._lock = threading.Lock()
        self._outstanding = self._over_capacity = 0

    @property
    def outstanding(self) -> int:
        """Records that were queued and are not acknowledged yet."""
        return self._outstanding

    @property
    def over_capacity(self) -> int:
        """Records that were refused, or in dark mode would have been."""
        return self._over_capacity

    def acquire(self, records: int) -> bool:
        """Count `records` more, and return whether they are within the limit. Raises OverCapacity, and then counts
        none of them, if they are not (never in dark mode)."""
        with self._lock:
            within = self._records_max is None or self._outstanding + records <= self._records_max
            if not within:
                self._over_capacity += records
                if not self._dark_mode:
                    raise OverCapacity(
                        f"{self._what}: {records} more records over {self._outstanding} unacknowledged ones, the limit "
                        f"is {self._records_max}; wait for acknowledgements, or raise outstanding_writes_max"
                    )
            self._outstanding += records
            return within

    def release(self, records: int) -> None:
        """That many were acknowledged, or failed."""
        with self._lock:
            self._outstanding -= records


class WriteLimits:
    """All the limits that one writer obeys: as one, so that a refusal by the last gives back what the first let in.
    False if there are none."""

    def __init__(self, *limiters: WriteLimiter) -> None:
        self._limiters = limiters

    def __bool__(self) -> bool:
        return bool(self._limiters)

    def acquire(self, records: int) -> bool:
        """As `WriteLimiter.acquire`, for each."""
        within = True
        for at, limiter in enumerate(self._limiters):
            try:
                within = limiter.acquire(records) and within
            except OverCapacity:
                for acquired in self._limiters[:at]:
                    acquired.release(records)
                raise
        return within

    def release(self, records: int) -> None:
        """As `WriteLimiter.release`, for each."""
        for limiter in self._limiters:
            limiter.release(records)
