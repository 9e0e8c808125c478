"""Telling a log where nothing happens from one that is dead."""

from __future__ import annotations

from collections.abc import Callable

from scribengin.clock import Clock
from scribengin.errors import ReaderIdle
from scribengin.log.reader_config import ReaderConfig


class IdleWatch:
    """How long a reader has seen nothing. Keep-alive entries count as something.

    A log without a writer is at rest and not idle: the time begins again when it is found so.
    """

    def __init__(self, log: str, config: ReaderConfig, clock: Clock, has_writer: Callable[[], bool]) -> None:
        self._log, self._clock, self._has_writer = log, clock, has_writer
        self._warn_s, self._error_s = config.idle_warn_s, config.idle_error_s
        self._seen_s = clock.monotonic_s()

    @property
    def idle_s(self) -> float:
        """Seconds since something was seen."""
        return self._clock.monotonic_s() - self._seen_s

    @property
    def is_idle(self) -> bool:
        """Whether that is longer than `idle_warn_s`."""
        return self._warn_s is not None and self.idle_s >= self._warn_s

    def saw_entry(self) -> None:
        """Something came."""
        self._seen_s = self._clock.monotonic_s()

    def saw_nothing(self) -> None:
        """Nothing was there. Raises ReaderIdle, and what the registry raises, after `idle_error_s`."""
        if self._error_s is None or self.idle_s < self._error_s:
            return
        if self._has_writer():
            raise ReaderIdle(
                f"log '{self._log}': nothing came for {self.idle_s:.0f} s, not even a keep-alive, though it has a "
                "writer; look at that writer (does its log have keep_alive_ms?), then open a new reader"
            )
        self.saw_entry()
