"""Ledgers, through BookKeeper's own client in a JVM (base/jvm.py). Nothing here knows of segments.

A ledger is a sequence of entries with one writer. An entry is acknowledged once so many bookies have it on their disks
(the ack quorum). Entries are acknowledged in order. Whoever opens a ledger to recover it fences its writer.

The jars are not inside PySpark. They are those of the bookies' own version: SCRIBENGIN_BOOKKEEPER_JARS names them, as
the `lib` directory of a BookKeeper that was unpacked.

What costs time here is the step between Python and Java, some microseconds for each call. So an entry of a ledger is
what a writer gives at once, and nothing is called for a record.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from scribengin.base.jvm import (
    add_jars,
    is_java,
    java,
    java_bytes,
    java_outside_room,
    java_raising,
    java_reason,
    silence,
    start_jvm,
)
from scribengin.errors import ConfigInvalid
from scribengin.log.config import LedgerCopies

_T = TypeVar("_T")
JARS_VARIABLE = "SCRIBENGIN_BOOKKEEPER_JARS"
"""Jars, or directories of jars, as in PATH."""
SETTINGS_VARIABLE = "SCRIBENGIN_BOOKKEEPER_SETTINGS"
"""A file of settings for BookKeeper's client, as in its `conf` directory: what it says goes before what we say. With
`firstSpeculativeReadTimeout=200` a read that a bookie has not answered for 200 ms is sent to another one, too."""
ENTRY_BYTES_MAX = 1024 * 1024
_UNACKNOWLEDGED_BYTES_MAX = 32 * 1024 * 1024
"""So much is on its way to bookies at once: Java's heap is small."""
_LOGGING_JARS = re.compile(r"(?:^|[._-])(?:slf4j|log4j|jcl-over-slf4j|commons-logging)[._-]")
_NO_PASSWORD = b""
_TIMEOUT_S = 10
_FENCED = ("BKLedgerFencedException", "BKUnauthorizedAccessException", "BKMetadataVersionException")
_GONE = ("BKNoSuchLedgerExistsException", "BKNoSuchLedgerExistsOnMetadataServerException")
_NO_ENTRY = "BKNoSuchEntryException"
_TOO_FEW = "BKNotEnoughBookiesException"
_PASSING = (
    _TOO_FEW,
    "BKBookieHandleNotAvailableException",
    "BKTimeoutException",
    "BKAddEntryQuorumTimeoutException",
    "BKReadException",
    "BKWriteException",
    "BKLedgerRecoveryException",
    "BKMetaStoreException",
    "ZKException",
    "BKNetworkException",
    "TimeoutException",
    "BKClientClosedException",
    "BKLedgerClosedException",
)


class LedgerFenced(OSError):
    """Somebody has opened the ledger to recover it: nothing that is added to it is acknowledged any more."""


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Entries of a ledger that follow each other: the bytes [start, end) of all that it holds."""

    first: int
    last: int
    start: int
    data: bytes
    last_start: int
    """Where the last of the entries begins."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class LedgerWriter:
    """A ledger that this process writes to. After any error it is only good for `close`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.ledger = int(handle.getId())
        self.entries = 0
        """How many were added."""
        self._adding: deque[tuple[Any, int]] = deque()
        self._adding_bytes = 0

    def add(self, data: bytes) -> None:
        """Behind what was added: as one entry, or as more where it is large. Returns before it is acknowledged, unless
        too much is on its way. Raises OSError, LedgerFenced."""
        whole = memoryview(data)
        with _plain_errors(self.ledger):
            for start in range(0, len(whole), ENTRY_BYTES_MAX):
                piece = whole[start : start + ENTRY_BYTES_MAX]
                self._adding.append((self._handle.appendAsync(java_bytes(piece)), len(piece)))
                self._adding_bytes += len(piece)
                self.entries += 1
                while self._adding_bytes > _UNACKNOWLEDGED_BYTES_MAX:
                    self._wait_for_first()

    def wait(self) -> None:
        """Return once all that was added is acknowledged. Raises OSError, LedgerFenced."""
        if not self._adding:
            return
        last, _ = self._adding[-1]  # they are acknowledged in order
        with suppress(OSError), _plain_errors(self.ledger):
            last.get()
            self._adding.clear()
            self._adding_bytes = 0
        while self._adding:  # the first that failed says why: what came later finds a ledger that is closed
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        first, size = self._adding[0]
        with _plain_errors(self.ledger):
            first.get()
        self._adding.popleft()
        self._adding_bytes -= size

    def close(self) -> None:
        """Let go of it: it ends with what was acknowledged. Raises OSError, as for one that was taken over."""
        with _plain_errors(self.ledger):
            self._handle.close()


class _Room(threading.local):
    """Where entries come out of Java, which is twice as fast as a byte[]: one for each thread that reads."""

    _room: Any = None
    _seen: memoryview

    def read(self, entry: Any) -> bytes:
        """The bytes of an entry that `LedgerWriter` has added."""
        if self._room is None:
            self._room = java_outside_room(ENTRY_BYTES_MAX)
            self._seen = memoryview(self._room)
        stored = entry.getEntryBuffer()
        size = int(stored.readableBytes())
        stored.readBytes(self._room.clear().limit(size))
        return bytes(self._seen[:size])


_room = _Room()


class AskedEntries:
    """Entries of a ledger that bookies were asked for, and may not have sent yet."""

    def __init__(self, ledger: int, first: int, last: int, coming: Any) -> None:
        self._ledger = ledger
        self.first = first
        self._last = last
        self._coming = coming

    def come(self) -> LedgerPart:
        """Wait for them. To be called once. Raises OSError."""
        with _plain_errors(self._ledger):
            entries = self._coming.get()
            try:
                parts = [_room.read(entry) for entry in entries]
                first_end = int(entries.getEntry(self.first).getLength())  # all bytes of the ledger up to its end
            finally:
                entries.close()
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        start = first_end - len(parts[0])
        return LedgerPart(self.first, self._last, start, data, start + len(data) - len(parts[-1]))

    def abandon(self) -> None:
        """Nobody wants them any more. Waits for nothing: what has come by then is released by who asks next."""
        _unwanted.append(self._coming)


_unwanted: deque[Any] = deque()
"""What bookies were asked for in vain. Their answers stand in memory that Java does not collect."""


def _release_unwanted() -> None:
    """Those that have come."""
    for _ in range(len(_unwanted)):
        try:
            coming = _unwanted.popleft()
        except IndexError:  # another thread has seen to it
            return
        if not coming.isDone():
            _unwanted.append(coming)
            continue
        with suppress(OSError, IndexError), _plain_errors("unwanted"):
            coming.get().close()


class LedgerReader:
    """A ledger, whoever writes to it. Not thread-safe.

    Entries are read whether they are confirmed or not: the caller knows how far they are durable.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.ledger = int(handle.getId())
        self._known = -1
        """An entry that is there, and with it all before it."""

    @property
    def closed_bytes(self) -> int | None:
        """How many bytes it has; None while it may grow."""
        with _plain_errors(self.ledger):
            return int(self._handle.getLength()) if self._handle.isClosed() else None

    def has(self, entry: int) -> None:
        """The caller knows that this entry is there."""
        self._known = max(self._known, entry)

    def last(self) -> int:
        """The last entry that there is, acknowledged or not; -1: there is none. Raises OSError."""
        with _plain_errors(self.ledger):
            self.has(int(self._handle.getLastAddConfirmed()))
            if self._handle.isClosed():
                return self._known
            self.has(int(self._handle.readLastAddConfirmed()))
        return self.last_by_trying()

    def last_by_trying(self) -> int:
        """As `last`, of a ledger whose entries are never confirmed. What is not there every bookie is asked for, one
        after the other: where there is one entry more, or none, as at a tail, that is tried once."""
        step = following = 1
        while self._is_there(self._known + step):
            self._known += step
            step = following
            following *= 2
        while step > 1:
            step //= 2
            if self._is_there(self._known + step):
                self._known += step
        return self._known

    def await_confirmed(self, beyond: int, limit_s: float) -> int:
        """The last entry that bookies know to be confirmed, as soon as it is one after `beyond`, or the limit has
        passed: a bookie waits for it, so that nobody need ask again. Raises OSError, IndexError (it has no entry)."""
        with _plain_errors(self.ledger):
            found = self._handle.readLastAddConfirmedAndEntryAsync(beyond + 1, int(limit_s * 1000), False).get()
            try:
                return int(found.getLastAddConfirmed())
            finally:
                found.close()

    def read(self, first: int, last: int) -> LedgerPart:
        """These entries, which are there. Raises OSError."""
        return self.ask(first, last).come()

    def ask(self, first: int, last: int) -> AskedEntries:
        """As `read`, for who does something else before they come. Raises OSError."""
        _release_unwanted()
        with _plain_errors(self.ledger):
            return AskedEntries(self.ledger, first, last, self._handle.readUnconfirmedAsync(first, last))

    def read_if_there(self, entry: int) -> LedgerPart | None:
        """That entry, or None where it is not there (yet). Raises OSError."""
        found = self._if_there(lambda: self.read(entry, entry))
        if found is not None:
            self.has(entry)
        return found

    def _is_there(self, entry: int) -> bool:
        return self._if_there(lambda: self._handle.readUnconfirmed(entry, entry).close() or True) is not None

    def _if_there(self, read: Callable[[], _T]) -> _T | None:
        try:
            with _plain_errors(self.ledger):
                return read()
        except (IndexError, FileNotFoundError):  # bookies know of no ledger that they have no entry of
            return None
        except ConnectionError:  # some do not answer, and no other has it: nor was it acknowledged, if enough answer
            with _plain_errors(self.ledger):
                self._handle.readLastAddConfirmed()
            return None

    def close(self) -> None:
        """Release it. Idempotent."""
        with suppress(OSError), _plain_errors(self.ledger):
            self._handle.close()


class Ledgers:
    """The ledgers of one BookKeeper. Thread-safe. Everything raises OSErrors: a missing ledger is FileNotFoundError, a
    missing entry IndexError, and bookies that do not answer, or are too few, ConnectionError."""

    def __init__(self, hosts: str, root: str) -> None:
        """`hosts` of its ZooKeeper, as in `host:port,host:port`, and the node that its ledgers are below. Starts the
        JVM when it is used first: raises ConfigInvalid (no JPype, no jars), LauncherError (no Java)."""
        self._uri = f"zk+hierarchical://{hosts.replace(',', ';')}{root}"

    def create(self, labels: Mapping[str, str], copies: LedgerCopies, *, durable: bool = True) -> LedgerWriter:
        """A ledger with these labels. One that is not `durable` acknowledges what bookies have in memory, and none of
        its entries is ever confirmed. Raises ConnectionError where there are fewer bookies than `copies` wants."""
        client = self._client  # starts the JVM
        custom = java("java.util.HashMap")()
        for name, value in labels.items():
            custom.put(name, java_bytes(value.encode()))
        with _plain_errors("new"):
            operation = (
                client.newCreateLedgerOp()
                .withEnsembleSize(copies.ensemble)
                .withWriteQuorumSize(copies.write_quorum)
                .withAckQuorumSize(copies.ack_quorum)
                .withPassword(java_bytes(_NO_PASSWORD))
                .withDigestType(_digest())
                .withCustomMetadata(custom)
            )
            if not durable:
                deferred = java("org.apache.bookkeeper.client.api.WriteFlag").DEFERRED_SYNC
                operation = operation.withWriteFlags(java("java.util.EnumSet").of(deferred))
            return LedgerWriter(operation.execute().get())

    def open(self, ledger: int) -> LedgerReader:
        """For reading; its writer goes on."""
        return LedgerReader(self._opened(ledger, recover=False))

    def fence(self, ledger: int) -> None:
        """Return once nobody can write to it any more, and its end is final: it has all that was acknowledged. What was
        not may be there, too. Idempotent."""
        with _plain_errors(ledger):
            self._opened(ledger, recover=True).close()

    def delete(self, ledger: int) -> None:
        """Bookies let go of its bytes some time later. Idempotent."""
        with suppress(FileNotFoundError), _plain_errors(ledger):
            self._client.newDeleteLedgerOp().withLedgerId(ledger).execute().get()

    def all(self) -> Iterator[int]:
        """Every ledger that there is, whoever made it."""
        with _plain_errors("all"):
            listed = self._client.newListLedgersOp().execute().get()
            try:
                yield from map(int, listed.toIterable())
            finally:
                listed.close()

    def labels(self, ledger: int) -> dict[str, str]:
        """What it was made with."""
        with _plain_errors(ledger):
            custom = self._metadata(ledger).getCustomMetadata()
            return {str(name): bytes(custom.get(name)).decode("utf-8", "replace") for name in custom.keySet()}

    def bookies(self, ledger: int) -> list[str]:
        """Those that hold parts of it now, as `host:port`, sorted."""
        with _plain_errors(ledger):
            return sorted(self._holding(ledger))

    def repair(self, ledger: int) -> int:
        """Copy what bookies that are gone had of a closed ledger to others, as BookKeeper's own recovery does: how many
        bookies were gone. What of it may still grow is left alone. Raises ConnectionError: too few are there."""
        with _plain_errors(ledger):
            admin = self._admin
            there = {str(bookie) for bookie in (*admin.getAvailableBookies(), *admin.getReadOnlyBookies())}
            gone = [bookie for name, bookie in self._holding(ledger).items() if name not in there]
            if gone:
                admin.recoverBookieData(ledger, java("java.util.HashSet")(gone), False, True)
            return len(gone)

    def _holding(self, ledger: int) -> dict[str, Any]:
        """The bookies that hold parts of it now, by name."""
        ensembles = self._metadata(ledger).getAllEnsembles().values()
        return {str(bookie): bookie for ensemble in ensembles for bookie in ensemble}

    def _metadata(self, ledger: int) -> Any:
        return self._client.getLedgerMetadata(ledger).get()

    def _opened(self, ledger: int, *, recover: bool) -> Any:
        with _plain_errors(ledger):
            return (
                self._client.newOpenLedgerOp()
                .withLedgerId(ledger)
                .withPassword(java_bytes(_NO_PASSWORD))
                .withDigestType(_digest())
                .withRecovery(recover)
                .execute()
                .get()
            )

    @property
    def _client(self) -> Any:
        with _starting:
            return _client(self._uri)

    @property
    def _admin(self) -> Any:
        with _starting:
            return _admin(self._uri)


_starting = threading.Lock()


@cache
def _client(uri: str) -> Any:
    start_jvm()
    add_jars(_client_jars())
    silence("org.apache.bookkeeper", "org.apache.zookeeper", "io.netty")  # what it cannot do it also throws
    with _plain_errors(uri):
        return java("org.apache.bookkeeper.client.BookKeeper")(_settings(uri))


@cache
def _admin(uri: str) -> Any:
    """Made without settings it copies nothing, and never says so."""
    return java("org.apache.bookkeeper.client.BookKeeperAdmin")(_client(uri), _settings(uri))


def _settings(uri: str) -> Any:
    """A ClientConfiguration. Raises ConfigInvalid for a file of settings that cannot be read."""
    settings = java("org.apache.bookkeeper.conf.ClientConfiguration")()
    settings.setThrottleValue(0)  # the writer waits for its acknowledgements
    settings.setDelayEnsembleChange(True)  # with one bookie gone a ledger goes on, while an ack quorum answers
    settings.setAddEntryTimeout(_TIMEOUT_S)
    settings.setReadEntryTimeout(_TIMEOUT_S)
    settings.setNumIOThreads(2)
    settings.setNumWorkerThreads(2)
    said = os.environ.get(SETTINGS_VARIABLE)
    if said:
        if not Path(said).is_file():
            raise ConfigInvalid(f"{SETTINGS_VARIABLE} names {said}, which is no file: name one of key=value lines")
        properties = java("java.util.Properties")()
        with closing(java("java.io.FileReader")(said)) as file:
            properties.load(file)
        for name in properties.stringPropertyNames():
            settings.setProperty(name, properties.getProperty(name))
    settings.setMetadataServiceUri(uri)
    return settings


def _client_jars() -> list[Path]:
    """Without those that log: Hadoop's are there. Raises ConfigInvalid."""
    places = [Path(place) for place in os.environ.get(JARS_VARIABLE, "").split(os.pathsep) if place]
    jars = [jar for place in places for jar in (sorted(place.glob("*.jar")) if place.is_dir() else [place])]
    if not any("bookkeeper-server" in jar.name and jar.is_file() for jar in jars):
        raise ConfigInvalid(
            f"logs on BookKeeper need its client: let {JARS_VARIABLE} name the lib directory of a BookKeeper of the "
            "bookies' version (bookkeeper-server-<version>-bin, unpacked)"
        )
    return [jar for jar in jars if _LOGGING_JARS.search(jar.name) is None]


def _digest() -> Any:
    return java("org.apache.bookkeeper.client.api.DigestType").CRC32C


@contextmanager
def _plain_errors(ledger: int | str) -> Iterator[None]:
    """Turn what BookKeeper's client throws into OSErrors, and IndexError."""
    with java_raising(partial(_turned, ledger)):
        yield


def _turned(ledger: int | str, error: Any) -> Exception:
    while is_java(error, "ExecutionException", "CompletionException") and error.getCause() is not None:
        error = error.getCause()
    words = f"{java_reason(error)} (ledger {ledger})"
    if is_java(error, _NO_ENTRY):
        return IndexError(words)
    if is_java(error, *_GONE):
        return FileNotFoundError(errno.ENOENT, "there is no such ledger", str(ledger))
    if is_java(error, *_FENCED):
        return LedgerFenced(errno.EPERM, words)
    if is_java(error, _TOO_FEW):
        return ConnectionError(errno.EHOSTUNREACH, f"too few bookies run for so many copies (ledger {ledger})")
    if is_java(error, *_PASSING):
        return ConnectionError(errno.EHOSTUNREACH, words)
    return OSError(errno.EIO, words)
