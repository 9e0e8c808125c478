"""What a user can say about a log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scribengin.model import Config

RECORD_BYTES_MAX = 1_040_384
"""DistributedLog's limit (1 MiB - 8 KiB). A log may be configured for more."""


class LogConfig(Config):
    """How a log is written. It is kept with the log when it is created, and every writer and reader obeys it."""

    segment_bytes_max: int = Field(default=256 * 1024 * 1024, ge=4096)
    """A segment that has grown to this size is completed before the next group (never with a round staged)."""
    entry_bytes_max: int = Field(default=1024 * 1024, ge=1024)
    """Batches are cut into entries of about this size. A single larger record is an entry of its own."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1, le=1024 * 1024 * 1024)
    """The largest payload, and the largest key."""
    pending_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1024)
    """A writer with this much unwritten makes its callers wait."""
    codec: Literal["none", "lz4", "zstd"] = "none"
    """How entry bodies are compressed. Only `none` lets readers map records without copying."""
    fsync: bool = True
    """Make every group durable before it is acknowledged. Without it a power failure may take acknowledged records,
    and recovery cuts the segment at the first hole instead of refusing."""
    check_txids: bool = True
    """Refuse transaction ids that decrease. Without it, starting at a transaction id is only approximate."""
