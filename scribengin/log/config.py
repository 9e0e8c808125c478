"""What a user can say about a log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from scribengin.base.model import Config

RECORD_BYTES_MAX = 1_040_384
"""DistributedLog's limit (1 MiB - 8 KiB). A log may be configured for more."""


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """How many bookies a ledger is spread over, how many hold each entry, and how many of those must have it on their
    disks before it is acknowledged."""

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2


class LogConfig(Config):
    """How a log is written. It is kept with the log when it is created, and every writer and reader obeys it."""

    segment_bytes_max: int | None = Field(default=256 * 1024 * 1024, ge=4096)
    """A segment that has grown to this size is completed before the next group (never with a round staged). None: its
    size does not matter."""
    segment_age_max_s: float | None = Field(default=None, gt=0)
    """A segment that its writer has had open this long is completed before the next group, in the same way. None: its
    age does not matter. Nothing is completed while nothing is written."""
    entry_bytes_max: int = Field(default=1024 * 1024, ge=1024, le=512 * 1024 * 1024)
    """Batches are cut into entries of about this size. A single larger record is an entry of its own. What is written
    at once, all or nothing, must fit into one."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1, le=1024 * 1024 * 1024)
    """The largest payload, and the largest key."""
    pending_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1024)
    """A writer with this much unwritten makes its callers wait."""
    transmit_bytes: int = Field(default=0, ge=0)
    """A writer sends what waits once it is this much. With this and `transmit_interval_ms` 0 it sends whatever waits as
    soon as the disk is free. With this alone, less may wait until `flush` or `close`."""
    transmit_interval_ms: int = Field(default=0, ge=0)
    """A writer sends what waits once the first of it has waited this long. 0: its age does not matter."""
    durable_writes: bool = True
    """Acknowledge a record when it is durable. Without it, when it is queued: its future has no position
    (DLSN.INVALID), `flush` says when it is durable, and what fails later ends the writer. Readers see the same in both
    cases: what is durable."""
    keep_alive_ms: int = Field(default=0, ge=0)
    """A writer that wrote nothing for this long says that it is there, with an entry that holds no record. 0: never."""
    outstanding_writes_max: int | None = Field(default=None, ge=0)
    """A writer with this many records unacknowledged refuses more (OverCapacity). None: as many as there is room for in
    `pending_bytes_max`."""
    outstanding_dark_mode: bool = False
    """Only count what `outstanding_writes_max` would refuse. DistributedLog's default is to count; here a limit that
    somebody sets holds."""
    retention_hours: float | None = Field(default=None, ge=0)
    """Segments that were completed longer ago than this are removed, oldest first, but for what a registered reader has
    not read. None: nothing is removed that was not truncated."""
    explicit_truncation: bool = False
    """Remove nothing that was not truncated, whatever `retention_hours` says."""
    copy_codec: Literal["lz4", "zstd"] | None = None
    """Write a compressed copy of every segment beside it once it is completed, while it still is in the page cache."""
    raw_retention_hours: float | None = Field(default=None, ge=0)
    """Segments that were completed longer ago than this are kept as their compressed copy alone. None: as both."""
    cold_url: str | None = None
    """Copy every segment, once it is completed, into a directory of the log's own below this URL: hdfs://, what fsspec
    opens for writing, or an absolute path. None: nothing is copied. What was copied before stays where it is."""
    hot_hours: float | None = Field(default=None, ge=0)
    """Segments that were completed longer ago than this are kept as their cold copy alone. None: their age does not
    matter."""
    hot_bytes_max: int | None = Field(default=None, ge=0)
    """Of the completed segments the last ones stay in the store, up to this many bytes of files; older ones are kept as
    their cold copy alone. None: their size does not matter."""
    codec: Literal["none", "lz4", "zstd"] = "none"
    """How entry bodies are compressed. Only `none` lets readers map records without copying."""
    fsync: bool = True
    """Make every group durable before it is acknowledged. Without it a power failure may take acknowledged records,
    and recovery cuts the segment at the first hole instead of refusing."""
    check_txids: bool = True
    """Refuse transaction ids that decrease. Without it, starting at a transaction id is only approximate."""

    ensemble_size: int | None = Field(default=None, ge=1, le=100)
    """On BookKeeper: how many bookies a segment is spread over. None: three. Where fewer run, no segment is made. As
    the two below it is for segments that are made from then on."""
    write_quorum: int | None = Field(default=None, ge=1, le=100)
    """On BookKeeper: how many of them hold each entry. None: three, or all where there are fewer."""
    ack_quorum: int | None = Field(default=None, ge=1, le=100)
    """On BookKeeper: how many of those have an entry on their disks before it is acknowledged. None: two, or the only
    one."""

    @property
    def copies(self) -> LedgerCopies:
        """What a log on BookKeeper is written with."""
        usual = LedgerCopies()
        ensemble = self.ensemble_size or usual.ensemble
        write = self.write_quorum or min(usual.write_quorum, ensemble)
        return LedgerCopies(ensemble, write, self.ack_quorum or min(usual.ack_quorum, write))

    @model_validator(mode="after")
    def _copies_make_sense(self) -> LogConfig:
        if self.copy_codec is not None and self.codec != "none":
            raise ValueError("copy_codec goes with codec: none; entries are compressed already")
        if self.raw_retention_hours is not None and self.copy_codec is None:
            raise ValueError("raw_retention_hours goes with copy_codec, and only with it")
        if self.cold_url is None and (self.hot_hours, self.hot_bytes_max) != (None, None):
            raise ValueError("hot_hours and hot_bytes_max go with cold_url, and only with it")
        copies = self.copies
        if not copies.ack_quorum <= copies.write_quorum <= copies.ensemble:
            raise ValueError(
                f"ack_quorum {copies.ack_quorum}, write_quorum {copies.write_quorum} and ensemble_size "
                f"{copies.ensemble}: none of them may be more than the next"
            )
        return self

    @property
    def decoded_bytes_max(self) -> int:
        """No entry's body expands to more: one that says it does is damaged. Generous, since characters are up to four
        bytes long."""
        return 4 * (self.entry_bytes_max + 2 * self.record_bytes_max) + 64 * 1024


@lru_cache(maxsize=100)
def _equal_one(config: LogConfig) -> LogConfig:
    return config


SharedLogConfig = Annotated[LogConfig, AfterValidator(_equal_one)]
"""One object for all that are equal: of ten thousand logs of a process most are configured alike."""


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
    """How many threads verify."""


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
