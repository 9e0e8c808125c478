"""What a segment store must offer: where the bytes of log segments are kept. `file` is the embedded default.

A segment is written by one writer, from its beginning to its end, and its bytes are never written twice. It is named
by its number and the epoch of the writer that made it, so no two writers ever write the same one.

The mistakes this contract invites:
- An append that acknowledges without having looked, *after* the data was durable, whether the segment has been fenced:
  unless the store itself makes nothing durable in a segment that is fenced, as HDFS and BookKeeper do.
- A `fence` that returns while an append of the old writer may still be acknowledged.
- A reader that looks beyond the tail: what lies there may be staged, torn, or not durable.

Not promised: that the tail survives a power failure. It may be behind then, never ahead (unless the log does without
fsync). Nor that a view that is open still reads what was removed: on HDFS the bytes go some seconds later.

What a system does not answer in time raises StoreUnreachable, which is a LogWriteFailed worth waiting for.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa

from scribengin.errors import ConfigInvalid
from scribengin.log.config import LogConfig
from scribengin.log.format.entry import EncodedEntry, EntryHeader

IndexKind = Literal["positions", "keys"]
"""Where entries begin (index.py), and which keys stand where (read/key_index.py)."""


ASIDE = "aside"
"""The directory, below a log's, of files that the registry does not name (write/restored.py)."""
COLD = "cold-"
"""How the `copy` begins in the name of one in cold storage."""


class SegmentName(NamedTuple):
    """A segment of one log, in the directory that the log's descriptor names. `copy` is empty for what its writer
    wrote, and names a compressed copy (retention/compression.py) otherwise. With a `place`, it is a copy in cold
    storage (store/cold.py), in the directory of that URL, and not in the store."""

    directory: str
    segment: int
    epoch: int
    copy: str = ""
    place: str = ""

    def copied(self, copy: str) -> SegmentName:
        """The name of that copy of it."""
        return self._replace(copy=copy)

    def moved(self, place: str, token: str) -> SegmentName:
        """The name of its copy in cold storage that has that token."""
        return self._replace(copy=f"{COLD}{token}", place=place)

    @property
    def file(self) -> str:
        """What its files are called, wherever they are, without an ending."""
        return f"{self.segment:018d}-{self.epoch}" + (f".{self.copy}" if self.copy else "")

    def __str__(self) -> str:
        return f"{self.place or self.directory}/{self.file}"


SEGMENT_MAX = 10**18 - 1
"""No segment has a higher number."""


class Announced(NamedTuple):
    """Of the segments that were announced, the last: by epoch (0: none), then by number. `segment` is None where the
    store cannot tell for certain, as of one that was copied."""

    epoch: int
    segment: int | None


@dataclass(frozen=True, slots=True)
class Tail:
    """How far readers may read: the first `end` bytes, which hold `entries` entries (control entries counted).

    `sequence` is the sequence id of the record that comes next, `last_txid` the transaction id of the one before.
    """

    end: int
    entries: int
    last_txid: int
    sequence: int

    def after(self, header: EntryHeader) -> Tail:
        """The tail once the entry with that header stands after it."""
        last_txid = max(self.last_txid, header.last_txid) if header.carries_records else self.last_txid
        return Tail(self.end + header.size, self.entries + 1, last_txid, header.end_sequence)


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry and the place it is written to."""

    offset: int
    header: EntryHeader
    encoded: EncodedEntry


class SegmentAppender(ABC):
    """Writes one segment. After any exception it is only good for `close`."""

    @abstractmethod
    def write(self, entries: Sequence[PlacedEntry]) -> None:
        """Append entries; they need not be durable yet. Raises LogWriteFailed, Fenced (if it is heard of already)."""

    @abstractmethod
    def sync(self) -> None:
        """Make all that was written durable, then look for the fence. Raises LogWriteFailed, Fenced.

        Only what was written before a `sync` that returned may be acknowledged.
        """

    def file_to_sync(self) -> int | None:
        """The descriptor of the file that `sync` would wait for, by one `os.fdatasync` of it: for whoever does that for
        several at once, and then calls `synced_by`. None: only `sync` can."""
        return None

    def synced_by(self, fdatasync: Callable[[int], object]) -> None:
        """As `sync`, but by that function. It is called with what `file_to_sync` said, and raises as `os.fdatasync`."""
        self.sync()

    @abstractmethod
    def make_durable(self) -> None:
        """Make all that was written durable, also where `sync` does not. Raises LogWriteFailed, also for what the disk
        refused since the segment was made, whoever was told of it before."""

    @abstractmethod
    def publish(self, tail: Tail) -> None:
        """Show readers everything up to `tail`. Raises LogWriteFailed."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; writes nothing. Idempotent."""


class SegmentView(ABC):
    """Reads one segment. Not thread-safe. What `read` returned stays valid after `close`, and after the segment is
    gone."""

    @abstractmethod
    def tail(self) -> Tail | None:
        """How far the writer of a segment in progress lets readers read. None: nothing yet."""

    def tail_beyond(self, entries: int) -> Tail | None:
        """For who has read so many entries and follows: as `tail`, but one that shows more of them need not be the
        newest. It is to be asked for again until there is none."""
        return self.tail()

    def leave_tail(self) -> None:  # noqa: B027 - most have nothing open for it
        """Release what is open for the tail alone: the segment is complete. Idempotent. Does not fail."""

    @abstractmethod
    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        """Set `moved` whenever the tail may have moved, until what this returns is called.

        None: this store cannot tell just now, and readers look from time to time. What moved before the watch began is
        not told of: look once more after it has.
        """

    @abstractmethod
    def size(self) -> int:
        """Bytes there are, visible or not: all that were synced, and perhaps more."""

    @abstractmethod
    def read(self, offset: int, length: int) -> pa.Buffer:
        """The bytes [offset, offset + length), fewer at the end of the segment. No copy where the store can."""

    def read_once(self, offset: int, length: int) -> pa.Buffer:
        """As `read`, for who reads nothing near it after that: no more is fetched."""
        return self.read(offset, length)

    def doubt(self) -> None:  # noqa: B027 - most keep nothing that others read, too
        """What was read of it does not hold. Keep nothing of it in between: its file may be brought back. Does not
        fail."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""


class SegmentLocation(ABC):
    """Where a segment is, and how it is opened: picklable, and small, so that any process that reaches the store reads
    the segment without a registry. As text it is what people look for it by: a path, or what the store has for one."""

    @abstractmethod
    def open(self) -> SegmentView:
        """The segment there, for reading. Raises LogNotFound."""

    @abstractmethod
    def __str__(self) -> str: ...


class SegmentStore(ABC):
    """Where the segments of a namespace are kept."""

    def for_log(self, config: LogConfig) -> SegmentStore:
        """The store for a log of that configuration: what it makes is kept as that wants it. Raises ConfigInvalid for
        what this store cannot do."""
        if (config.ensemble_size, config.write_quorum, config.ack_quorum) != (None, None, None):
            raise ConfigInvalid("ensemble_size, write_quorum and ack_quorum are for logs on BookKeeper: leave them out")
        return self

    @abstractmethod
    def check_mounted(self) -> None:
        """Raises StoreNotMounted where this process sees another place than the one that the namespace is bound to.
        Whatever makes, lists or removes something looks first, and so does what misses something."""

    @abstractmethod
    def why_unwritable(self) -> str | None:
        """Why this user cannot keep logs there, for people; None: nothing is known to be in the way."""

    @abstractmethod
    def create_log(self, directory: str) -> None:
        """Make a place for the segments of one log. Idempotent."""

    @abstractmethod
    def delete_log(self, directory: str) -> None:
        """Remove all segments of one log. Idempotent. Views that are open stay readable."""

    @abstractmethod
    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        """Create a segment that must not exist. It survives a power failure from here on. One that is no copy is
        announced first.

        Raises LogWriteFailed (nothing is left of it, and it may be tried again), Fenced (the log was deleted).
        """

    @abstractmethod
    def fence(self, name: SegmentName) -> None:
        """When this returns, no append that has not been acknowledged yet ever will be, unless it stands whole in the
        segment by then, durable. Idempotent. Raises LogWriteFailed."""

    @abstractmethod
    def make_durable(self, name: SegmentName) -> None:
        """Make every byte of a segment durable that is not yet. Raises LogWriteFailed.

        What a sync has failed for before is not made durable by this one, and this one does not fail.
        """

    @abstractmethod
    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        """Open a segment for reading. With `from_disk` it is read past the cache, where the store can: after a failed
        sync the cache holds what the disk does not. Raises LogNotFound.
        """

    @abstractmethod
    def location(self, name: SegmentName) -> SegmentLocation:
        """Where that segment is, whether it is there or not."""

    def machines(self, name: SegmentName) -> Sequence[str]:
        """Which machines hold the segment's bytes, for people. Empty: this store does not tell. Raises LogNotFound,
        LogWriteFailed."""
        return ()

    def repair(self, name: SegmentName) -> int:
        """Let a completed segment have all its copies again: how many machines that are gone were replaced by others.
        0: none was, or this store leaves that to what it is on (HDFS), or has one copy. Idempotent. Raises
        StoreUnreachable (too few machines), LogNotFound, LogWriteFailed."""
        return 0

    @abstractmethod
    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        """An index of the segment as it was kept, empty if it was not. A hint: whoever uses it checks it."""

    @abstractmethod
    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        """Keep a whole index, in place of the one that was kept, and return whether that was possible.

        It is a hint: a store that is full, or that readers may only read, keeps none, and lookups take longer.
        """

    @abstractmethod
    def names(self, directory: str) -> list[SegmentName]:
        """Every segment and copy that one log has a file of, sorted by number. Empty if the log is gone."""

    @abstractmethod
    def announce(self, name: SegmentName) -> None:
        """Say that there may be files of segments up to that one from here on. It survives a power failure, and no
        announcement of a lower epoch, nor of a lower number under this one, takes it back. Raises LogWriteFailed."""

    @abstractmethod
    def announced(self, directory: str) -> Announced:
        """What was announced last for that log: then nobody need look at all its `names` who looks for segments that
        were made later. Raises LogWriteFailed."""

    @abstractmethod
    def remove(self, name: SegmentName) -> int:
        """Remove a segment that nobody will open any more, with all that stands beside it, and return how many bytes it
        had. Idempotent. Views that are open stay readable. Raises LogWriteFailed."""

    @abstractmethod
    def move(self, name: SegmentName, to: SegmentName) -> None:
        """Give a segment another name, with all that stands beside it, durably. Idempotent: what a crash has left
        half-way is moved by the same call. Views that are open stay readable. Raises LogWriteFailed."""
