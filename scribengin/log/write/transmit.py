"""When a writer sends what waits. Pure: it is told the time."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class TransmitPolicy:
    """At once, at `bytes_min`, or when the first of what waits is `interval_s` old (0: that one does not count)."""

    bytes_min: int
    interval_s: float
    pending_bytes_max: int

    @classmethod
    def of(cls, config: LogConfig) -> TransmitPolicy:
        return cls(config.transmit_bytes, config.transmit_interval_ms / 1000, config.pending_bytes_max)

    @property
    def delays(self) -> bool:
        """Whether anything ever waits longer than for the disk."""
        return bool(self.bytes_min or self.interval_s)

    def wait_s(self, *, waiting_bytes: int, held_bytes: int, waited_s: float) -> float | None:
        """How long what waits has to wait still: 0 if it is to be sent now, None if time alone changes nothing.

        `held_bytes` is what it takes in memory: what makes callers wait for room is sent.
        """
        if not self.delays or held_bytes >= self.pending_bytes_max:
            return 0.0
        if self.bytes_min and waiting_bytes >= self.bytes_min:
            return 0.0
        return max(0.0, self.interval_s - waited_s) if self.interval_s else None
