"""Telling a log where nothing happens from one that is dead."""

from __future__ import annotations

from collections.abc import Callable

from scribengin.base.clock import Clock
from scribengin.errors import ReaderIdle
from scribengin.log.config import ReaderConfig
from scribengin.log.read.catalog import Writer
from scribengin_registry.errors import RegistryUnreachable, SessionLost


class IdleWatch:
    """How long a reader has seen nothing. Keep-alive entries count as something.

    A log that its last writer has closed is at rest and not idle: the time begins again when it is found so. One whose
    writer has died is idle until somebody recovers it.
    """

    def __init__(self, log: str, config: ReaderConfig, clock: Clock, writer: Callable[[], Writer]) -> None:
        self._log, self._clock, self._writer = log, clock, writer
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
        """Nothing was there. Raises ReaderIdle after `idle_error_s`, unless the registry cannot be asked just now."""
        if self._error_s is None or self.idle_s < self._error_s:
            return
        try:
            writer = self._writer()
        except (RegistryUnreachable, SessionLost):
            return
        if writer == "died":
            raise ReaderIdle(
                f"log '{self._log}': nothing came for {self.idle_s:.0f} s, and its writer has died and left a segment "
                "unfinished; start a writer, or run `scribengin log recover`, then open a new reader"
            )
        if writer == "there":
            raise ReaderIdle(
                f"log '{self._log}': nothing came for {self.idle_s:.0f} s, not even a keep-alive, though it has a "
                "writer; look at that writer (does its log have keep_alive_ms?), then open a new reader"
            )
        self.saw_entry()
