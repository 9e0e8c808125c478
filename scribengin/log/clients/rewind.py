"""Reading again what was written lately. DistributedLog's StreamRewinder."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.log import LogNamespace, LogReader, Time


def rewind(namespace: LogNamespace, log: str, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> LogReader:
    """A reader that starts at the first record that was written `seconds` ago or later, as `Time` finds it; if all are
    older, it waits for the next one. Raises as `LogNamespace.open_reader`."""
    return namespace.open_reader(log, Time(clock.now_ms() - round(seconds * 1000)))
