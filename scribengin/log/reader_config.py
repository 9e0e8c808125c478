"""What a user can say about a reader."""

from __future__ import annotations

from pydantic import Field

from scribengin.model import Config


class ReadAhead(Config):
    """Threads that verify the next entries (their checksums, and the page faults of that) while the caller works.

    Off unless asked for. It pays where the caller computes on what it reads and a processor is free for the threads; a
    caller that only counts gains nothing and pays a sixth more processor time. Entries below 32 KiB are verified when
    they are asked for, with or without it. Compressed entries take more than `bytes_max` once they are expanded: up to
    `entries_max` times the log's `entry_bytes_max`.
    """

    entries_max: int = Field(default=16, ge=1)
    """How many entries may be verified ahead."""
    bytes_max: int = Field(default=32 * 1024 * 1024, ge=1)
    """And how much they may take, as stored. One entry is read ahead however large it is."""
    threads: int = Field(default=1, ge=1, le=16)


class ReaderConfig(Config):
    """How a log is read. All of it may be left out."""

    channels: tuple[str, ...] = ()
    """Only records whose channel begins with one of these; none without a channel. Empty: all records."""
    skip_damaged: bool = False
    """Pass over entries that do not hold, and count them, instead of failing."""
    whole_entries: bool = False
    """Never cut an entry, whatever `records_max` says: what was written as one is read as one."""
    idle_warn_s: float | None = Field(default=120.0, gt=0)
    """`LogReader.is_idle` says so when nothing came for that long. DistributedLog's default."""
    idle_error_s: float | None = Field(default=None, gt=0)
    """A reader that saw nothing for that long, not even a keep-alive, fails with ReaderIdle if the log has a writer."""
    read_ahead: ReadAhead | None = None
    """None: the caller's thread does it all."""
