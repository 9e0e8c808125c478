"""Segments on BookKeeper: a segment is a ledger, and what is acknowledged is on the disks of so many bookies as the
ack quorum says.

The bytes of the ledger are those of the segment, whatever its entries are. Fencing is BookKeeper's own: whoever fences
opens the ledger to recover it. Bookies refuse the old writer then, and the ledger's end is agreed on and final. It has
all that was acknowledged, because a quorum had it. So an append that is acknowledged needs no look at anything.

Differences to files (file.py):
- Which ledger is which segment stands in the ZooKeeper of the bookies (nodes.py), and the token of the namespace, too.
- Tails are a second ledger of the segment, and index rows a third, made when there is one. Their entries are
  acknowledged from the memory of bookies: after a power failure a tail may be behind, and an index short.
- Bookies tell who waits that a ledger has grown (long_poll.py), but not of its first entry.
- Where too few bookies run for the copies that are wanted, nothing is made: no segment has fewer.
- Bookies let go of a deleted ledger's bytes minutes later. Who reads it goes on until then.
- What a crash leaves may be a ledger that no node names: `orphans` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from scribengin.base.failpoints import failpoint
from scribengin.errors import (
    DescriptorUnreadable,
    Fenced,
    LogNotFound,
    LogWriteFailed,
    ScribenginError,
)
from scribengin.log.config import LedgerCopies, LogConfig
from scribengin.log.store.bookkeeper.client import LedgerFenced, Ledgers, LedgerWriter
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers, SegmentNodes
from scribengin.log.store.bookkeeper.refusals import refusals
from scribengin.log.store.bookkeeper.view import BookKeeperView, tail_entry
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    PlacedEntry,
    SegmentAppender,
    SegmentLocation,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.log.store.index import INTERVAL_BYTES, IndexRow
from scribengin.log.store.mark import another_place
from scribengin_registry.errors import NodeExists, NodeMissing

DEFAULT_LEDGERS = "/ledgers"
_HOST = r"[A-Za-z0-9_.\[\]-]+:\d+"
_PATH = r"(?:/[^/\s?]+)+"
_LOCATION = re.compile(rf"bk://({_HOST}(?:,{_HOST})*)({_PATH})/*(?:\?ledgers=({_PATH})/*)?")
_OWNER, _SEGMENT, _PART = "scribengin-namespace", "scribengin-segment", "scribengin-part"


@dataclass(frozen=True, slots=True)
class BookKeeperPlace:
    """A node of a ZooKeeper below which a namespace is kept, and the one that BookKeeper's ledgers are below."""

    hosts: str
    root: str
    ledgers: str = DEFAULT_LEDGERS

    @classmethod
    def parse(cls, location: str) -> BookKeeperPlace:
        """Of `bk://<host>:<port>,.../<path>?ledgers=<path>`. Raises ValueError."""
        match = _LOCATION.fullmatch(location)
        if match is None:
            raise ValueError(
                f"'{location}' is no place of BookKeeper: write bk://<zookeeper>:<port>/<path>, and "
                f"?ledgers=<path> behind it unless its ledgers are at {DEFAULT_LEDGERS}"
            )
        return cls(match[1], match[2], match[3] or DEFAULT_LEDGERS)

    def __str__(self) -> str:
        return f"bk://{self.hosts}{self.root}" + ("" if self.ledgers == DEFAULT_LEDGERS else f"?ledgers={self.ledgers}")


@dataclass(frozen=True, slots=True)
class BookKeeperLocation(SegmentLocation):
    """A segment by its name, which any process reads that reaches the bookies and their ZooKeeper."""

    place: BookKeeperPlace
    name: SegmentName

    def open(self) -> SegmentView:
        with refusals(f"open segment {self}"):
            named = SegmentNodes(self.place.hosts, self.place.root).find(self.name)
        if named is None:
            raise LogNotFound(f"segment {self} is gone: its log was deleted or truncated; list the logs there are")
        return BookKeeperView(Ledgers(self.place.hosts, self.place.ledgers), named, str(self))

    def __str__(self) -> str:
        return f"bk://{self.place.hosts}{self.place.root}/{self.name}"


@dataclass(frozen=True, slots=True)
class OrphanLedger:
    """A ledger that was made for a segment, and that no segment has: of a crash, or of one that is being made."""

    ledger: int
    segment: str
    """As it would be called."""


class BookKeeperSegmentStore(SegmentStore):
    """Segments as ledgers. With a `token`, only while the namespace's node holds that."""

    def __init__(self, location: str, token: str | None = None, copies: LedgerCopies | None = None) -> None:
        self._place = BookKeeperPlace.parse(location)
        self._token = token
        self._copies = copies or LedgerCopies()
        self._nodes = SegmentNodes(self._place.hosts, self._place.root)
        self._ledgers = Ledgers(self._place.hosts, self._place.ledgers)

    def for_log(self, config: LogConfig) -> BookKeeperSegmentStore:
        return BookKeeperSegmentStore(str(self._place), self._token, config.copies)

    def mark(self) -> str:
        """Make the namespace's node, and its token if it has none: what stands there. Raises LogWriteFailed."""
        with refusals(f"mark {self._place}"), failpoint("log.mark"):
            token = self._nodes.mark()
        if token is None:
            raise LogWriteFailed(f"{self._place} holds no token: another program's node? use another one")
        return token

    def unmark(self) -> None:
        """Remove the token, if it stands there. Idempotent. Raises LogWriteFailed."""
        with refusals(f"remove the token of {self._place}"), failpoint("log.unmark"):
            if self._nodes.token() == self._token:
                self._nodes.unmark()

    def check_mounted(self) -> None:
        if self._token is None:
            return
        with refusals(f"look at {self._place}"):
            found = self._nodes.token()
        if found != self._token:
            what = f"{self._place} is not the place of this namespace: its node .namespace"
            raise another_place(what, self._token, found, "it is another ZooKeeper")

    def why_unwritable(self) -> str | None:
        return None

    def create_log(self, directory: str) -> None:
        self.check_mounted()
        with refusals(f"make the log {directory}"):
            self._make_log(directory)

    def _make_log(self, directory: str) -> None:
        if not self._nodes.is_log(directory):
            with failpoint("log.log_directory"):
                self._nodes.make_log(directory)

    def delete_log(self, directory: str) -> None:
        self.check_mounted()
        with refusals(f"remove the log {directory}"), failpoint("log.log_directory_remove"):
            for log in [log for log in self._nodes.logs() if log == directory or log.startswith(f"{directory}/")]:
                for name in self._nodes.names(log):
                    self._delete_ledgers(self._nodes.find(name))
                self._nodes.delete_log(log)

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        self.check_mounted()
        if not name.copy:
            self._announce(name)
        with refusals(f"create segment {name}"), failpoint("log.segment_create"):
            if self._nodes.find(name) is not None:
                raise LogWriteFailed(f"cannot create segment {name}: it is there already")
            log = self._new_ledger(name, "log")
            made = [log]
            try:
                made.append(self._new_ledger(name, "tail", durable=False))
                self._nodes.add(name, SegmentLedgers(log=log.ledger, tail=made[1].ledger))
            except (OSError, NodeExists, NodeMissing) as error:
                for ledger in made:
                    self._ledgers.delete(ledger.ledger)
                if isinstance(error, NodeMissing):
                    raise self._deleted(name) from error
                if isinstance(error, NodeExists):
                    raise LogWriteFailed(f"cannot create segment {name}: it is there already") from error
                raise
        return BookKeeperAppender(self, name, log, made[1])

    def _new_ledger(self, name: SegmentName, part: str, *, durable: bool = True) -> LedgerWriter:
        labels = {_OWNER: self._token or "", _SEGMENT: str(name), _PART: part}
        return self._ledgers.create(labels, self._copies, durable=durable)

    def _deleted(self, name: SegmentName) -> Fenced:
        self.check_mounted()
        return Fenced(f"the log {name.directory} is gone from {self._place}: it was deleted; create it again")

    def fence(self, name: SegmentName) -> None:
        with refusals(f"fence segment {name}"), failpoint("log.fence"):
            named = self._nodes.find(name)
            for ledger in [] if named is None else [named.log, *named.beside]:
                with suppress(FileNotFoundError):
                    self._ledgers.fence(ledger)

    def make_durable(self, name: SegmentName) -> None:
        """All that was acknowledged is durable. Of a segment that was fenced, all that it has is."""
        with refusals(f"make segment {name} durable"), failpoint("log.settle"):
            if self._nodes.find(name) is None:
                raise LogWriteFailed(f"cannot make segment {name} durable: it is gone")

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        try:
            return self.location(name).open()
        except LogNotFound:
            self.check_mounted()
            raise

    def location(self, name: SegmentName) -> BookKeeperLocation:
        return BookKeeperLocation(self._place, name)

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        try:
            with refusals(f"load the index of segment {name}"):
                named = self._nodes.find(name)
                ledger = None if named is None else _index_of(named, kind)
                if ledger is None:
                    return b""
                reader = self._ledgers.open(ledger)
                try:
                    last = reader.last()
                    return b"" if last < 0 else reader.read(0, last).data
                finally:
                    reader.close()
        except (LogWriteFailed, FileNotFoundError, DescriptorUnreadable):
            return b""

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        try:
            with refusals(f"keep an index of segment {name}"), failpoint("log.index_save"):
                ledger = self._new_ledger(name, kind)
                ledger.add(index)
                ledger.wait()
                ledger.close()
                self.name_index(name, kind, ledger.ledger)
        except (LogWriteFailed, FileNotFoundError, DescriptorUnreadable):
            return False
        return True

    def name_index(self, name: SegmentName, kind: IndexKind, ledger: int) -> None:
        """Let that ledger be the segment's index, and delete the one before. Raises OSError, RegistryError."""
        try:
            before = self._nodes.change(name, lambda named: named.model_copy(update={kind: ledger}))
        except NodeMissing:
            self._ledgers.delete(ledger)
            raise
        replaced = _index_of(before, kind)
        if replaced is not None:
            self._ledgers.delete(replaced)

    def new_index(self, name: SegmentName) -> LedgerWriter:
        """A ledger for the rows that a writer leaves, named by the segment. Raises OSError, RegistryError."""
        ledger = self._new_ledger(name, "positions", durable=False)
        self.name_index(name, "positions", ledger.ledger)
        return ledger

    def names(self, directory: str) -> list[SegmentName]:
        self.check_mounted()
        with refusals(f"list the segments of {directory}"):
            return self._nodes.names(directory)

    def announce(self, name: SegmentName) -> None:
        self.check_mounted()
        try:
            self._announce(name)
        except Fenced as error:
            raise LogWriteFailed(f"cannot announce a segment of {name.directory}: the log is gone") from error

    def _announce(self, name: SegmentName) -> None:
        """Raises Fenced: the log is gone."""
        try:
            with refusals(f"announce a segment of {name.directory}"), failpoint("log.announce"):
                self._nodes.announce(name)
        except LogWriteFailed as error:
            if isinstance(error.__cause__, NodeMissing):
                raise self._deleted(name) from error
            raise

    def announced(self, directory: str) -> Announced:
        self.check_mounted()
        with refusals(f"look what was announced of {directory}"):
            epoch, segment = self._nodes.announced(directory)
        return Announced(epoch, segment if epoch else None)

    def remove(self, name: SegmentName) -> int:
        self.check_mounted()
        with refusals(f"remove segment {name}"):
            named = self._nodes.find(name)
            if named is None:
                return 0
            try:
                view = BookKeeperView(self._ledgers, named, str(name))
                size = view.size()
                view.close()
            except LogNotFound:
                size = 0
            with failpoint("log.segment_remove"):
                self._delete_ledgers(named)
                self._nodes.remove(name)
        return size

    def move(self, name: SegmentName, to: SegmentName) -> None:
        with refusals(f"move segment {name} to {to}"):
            self._make_log(to.directory)
            with failpoint("log.segment_move"):
                self._nodes.move(name, to)

    def orphans(self) -> Iterator[OrphanLedger]:
        """Ledgers of this namespace that no segment has, those that are being made just now among them. Looks at every
        ledger of that BookKeeper. Raises LogWriteFailed."""
        with refusals(f"list the ledgers of {self._place}"):
            ours = [(ledger, labels) for ledger in self._ledgers.all() if (labels := self._own_labels(ledger))]
            named = self._nodes.ledgers()
        for ledger, labels in ours:
            if ledger not in named:
                yield OrphanLedger(ledger, labels[_SEGMENT])

    def machines(self, name: SegmentName) -> Sequence[str]:
        """Its bookies, as `host:port`, sorted."""
        try:
            with refusals(f"look where segment {name} is"):
                named = self._nodes.find(name)
                if named is not None:
                    return self._ledgers.bookies(named.log)
        except FileNotFoundError:
            pass
        raise LogNotFound(f"segment {self.location(name)} is gone; list the logs there are")

    def repair(self, name: SegmentName) -> int:
        try:
            with refusals(f"repair segment {name}"):
                named = self._nodes.find(name)
                if named is not None:
                    return sum(map(self._ledgers.repair, (named.log, *named.beside)))
        except FileNotFoundError:
            pass
        raise LogNotFound(f"segment {self.location(name)} is gone; list the logs there are")

    def _own_labels(self, ledger: int) -> dict[str, str] | None:
        try:
            labels = self._ledgers.labels(ledger)
        except FileNotFoundError:
            return None
        return labels if _SEGMENT in labels and labels.get(_OWNER) == (self._token or "") else None

    def _delete_ledgers(self, named: SegmentLedgers | None) -> None:
        """That of the bytes goes last."""
        for ledger in [] if named is None else [*named.beside, named.log]:
            self._ledgers.delete(ledger)


class BookKeeperAppender(SegmentAppender):
    """Writes the ledgers of one segment."""

    def __init__(self, store: BookKeeperSegmentStore, name: SegmentName, log: LedgerWriter, tail: LedgerWriter) -> None:
        self._store = store
        self._name = name
        self._log = log
        self._tail = tail
        self._index: LedgerWriter | None = None
        self._closed = self._index_failed = False
        self._indexed_end = 0
        self._index_rows: list[IndexRow] = []

    def write(self, entries: Sequence[PlacedEntry]) -> None:
        buffers: list[bytes | memoryview] = []
        for entry in entries:
            buffers.append(entry.header.to_bytes())
            buffers.extend(memoryview(buffer) for buffer in entry.encoded.buffers if len(buffer))
            if entry.offset - self._indexed_end >= INTERVAL_BYTES:
                self._index_rows.append(IndexRow.of(entry.header, entry.offset))
                self._indexed_end = entry.offset
        with self._failing("write to"), failpoint("log.segment_write"):
            self._log.add(b"".join(buffers))

    def sync(self) -> None:
        with self._failing("sync"), failpoint("log.segment_sync"):
            self._log.wait()

    def make_durable(self) -> None:
        with self._failing("sync"), failpoint("log.segment_settle"):
            self._log.wait()

    def publish(self, tail: Tail) -> None:
        with self._failing("write the tail of"), failpoint("log.tail_write"):
            self._tail.add(tail_entry(tail, self._log.entries - 1))
            self._tail.wait()
        if self._index_rows and not self._index_failed:
            self._write_index_rows()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for ledger in (self._log, self._tail, self._index):
            if ledger is not None:
                with suppress(OSError):  # it was taken over, or bookies are away: whoever recovers it closes it
                    ledger.close()

    def _write_index_rows(self) -> None:
        """A hint: where it cannot be kept there is none."""
        rows = b"".join(row.to_bytes() for row in self._index_rows)
        self._index_rows.clear()
        try:
            with failpoint("log.index_write"):
                if self._index is None:
                    self._index = self._store.new_index(self._name)
                self._index.add(rows)
                self._index.wait()
        except (OSError, ScribenginError):
            self._index_failed = True

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            with refusals(f"{what} segment {self._name}"):
                yield
        except (LogWriteFailed, FileNotFoundError) as error:
            if isinstance(error.__cause__, LedgerFenced):
                self._store.check_mounted()
                raise Fenced(
                    f"segment {self._name} was fenced: another writer owns the log now; open a new writer to go on"
                ) from error
            if isinstance(error, LogWriteFailed):
                raise
            raise LogWriteFailed(f"cannot {what} segment {self._name}: {error}; open a new writer") from error


def _index_of(named: SegmentLedgers, kind: IndexKind) -> int | None:
    return named.positions if kind == "positions" else named.keys
