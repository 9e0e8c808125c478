"""What a user can say about a proxy, and about the clients of proxies."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from scribengin.base.model import Config
from scribengin.base.process.openness import is_loopback


class RateConfig(Config):
    """Records and bytes a second. None: as many as come."""

    records_s_soft: int | None = Field(default=None, ge=1)
    """Above it the proxy warns, and counts."""
    records_s_hard: int | None = Field(default=None, ge=1)
    """Above it requests are refused with OverCapacity."""
    bytes_s_soft: int | None = Field(default=None, ge=1)
    bytes_s_hard: int | None = Field(default=None, ge=1)


class ProxyConfig(Config):
    """How a proxy runs."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen at. Nothing on the wire is encrypted, and nobody says who they are: other addresses than
    the loopback one need `insecure`."""
    insecure: bool = False
    """Listen to other machines, too: only in a network whose machines are trusted."""
    port: int = Field(default=0, ge=0, le=65535)
    """0: one that is free."""
    advertised_host: str | None = None
    """The host by which clients reach it. None: the one it listens at."""
    logs_max: int = Field(default=10_000, ge=1)
    """It writes so many logs at most."""
    acquire_timeout_s: float = Field(default=5.0, ge=0)
    """So long it waits for the lock of a log that somebody else writes, who is no proxy."""
    answer_timeout_s: float = Field(default=20.0, gt=0)
    """So long records may wait for the disk before their client is told to ask again."""
    cache_bytes_max: int = Field(default=256 * 1024 * 1024, ge=0)
    """It keeps so many bytes of segments in memory at most, for all readers together."""
    tail_waits_max: int = Field(default=1000, ge=1)
    """So many readers may wait here for more at the same time. Others ask from time to time."""

    log_rates: RateConfig = RateConfig()
    """Of each log."""
    service_rates: RateConfig = RateConfig()
    """Of all logs together."""

    @model_validator(mode="after")
    def _others_are_let_in_on_purpose(self) -> Self:
        if not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is reached by other machines, and clients are not asked who they are; say "
                "`insecure: true`, or listen at 127.0.0.1"
            )
        return self


class ProxyClientConfig(Config):
    """How a client uses proxies."""

    patience_s: float = Field(default=60.0, gt=0)
    """A request that no proxy has done after that long fails."""
    call_timeout_s: float = Field(default=30.0, gt=0)
    """A proxy that has not answered a call after that long is taken for dead."""
    request_bytes_max: int = Field(default=1024 * 1024, ge=1024)
    """Records that gather while a request is under way go together, up to about this size."""
    reads: Literal["auto", "proxy", "store"] = "auto"
    """Where readers get segments: from proxies, or from the store itself. `auto`: a directory of this machine is read
    there, and all else through proxies."""
    read_ahead_bytes_max: int = Field(default=4 * 1024 * 1024, ge=0)
    """So many bytes more than it needs a reader asks a proxy for at most, when it reads one after the other."""
