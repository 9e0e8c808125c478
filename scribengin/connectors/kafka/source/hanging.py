"""Transactions of others that hang: who reads what is committed reads nothing of a partition behind their first record.

Brokers abort a transaction once its producer has been silent for as long as it asked for: 15 minutes at most, unless
they are set otherwise (`transaction.max.timeout.ms`). One that stays open for longer may never end, and the partition
looks as if nothing came any more. So it is said, and what it holds back counts as lag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import tagged

_LOG = logging.getLogger(__name__)

OPEN_MAX_S = 900.0
LOOK_EVERY_S = 60.0


@dataclass(slots=True)
class _Open:
    """A transaction, by its first record."""

    offset: int
    since_s: float
    told: bool = False


class HangingTransaction:
    """The one of a partition, if there is one, for its one reader."""

    def __init__(self, what: str, abort: str, clock: Clock, written: Callable[[], int]) -> None:
        """`abort` is the command that ends a transaction of the partition, but for where that began. `written` asks
        where the partition ends, with all that is not committed."""
        self._what = what
        self._abort = abort
        self._clock = clock
        self._written = written
        self._open: _Open | None = None
        self._looked_s = clock.monotonic_s()
        self._end = 0

    def end(self, stable: int) -> int:
        """Where the partition ends: at `stable`, behind all that is committed, or behind what is held back for too
        long. Raises what `written` does."""
        now_s = self._clock.monotonic_s()
        if self._open is not None and self._open.offset != stable:
            self._open = None
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._end = self._written()
            if self._end > stable and self._open is None:
                self._open = _Open(stable, now_s)
        if self._open is None or now_s - self._open.since_s < OPEN_MAX_S:
            return stable
        self._tell(self._open, now_s)
        return max(stable, self._end)

    def _tell(self, hanging: _Open, now_s: float) -> None:
        if not hanging.told:
            hanging.told = True
            _LOG.warning(
                f"{self._what}: a transaction of another producer has been open for {now_s - hanging.since_s:.0f} s, "
                f"and holds back {self._end - hanging.offset} offsets from {hanging.offset} on; if it hangs, end it: "
                f"`{self._abort} --start-offset {hanging.offset}`",
                extra=tagged("transaction_hangs"),
            )
