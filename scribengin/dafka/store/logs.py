"""The logs of a store, and what of each partition is in them."""

from __future__ import annotations

import math
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from urllib.parse import quote, unquote

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.role import new_address
from scribengin.dafka.state import DafkaPartition, StoredRange, StoreState
from scribengin.dafka.store.failures import PASSING, LogFailures, next_try_s
from scribengin.errors import DamagedEntry, LogNotFound
from scribengin.log import LogConfig, LogNamespace, LogReader, LogWriter, TransactionId
from scribengin_registry.errors import RegistryError

_PACKED = "%_"
"""A topic that quoted takes too much of a name begins so, and goes on as base64: no quoted one begins so."""
_NAME_MAX = 200
"""So many bytes of a node's name the log store takes for that of a log."""
_DOTS = (".", "..")
"""Topics that no part of a name may be."""


class StoredPartitions:
    """The logs of a store, and what it decides by. `lock` is held by whichever role uses `state`. `unreadable` are
    partitions of which it could not be found what is stored."""

    def __init__(
        self, namespace: LogNamespace, prefix: str, log_config: LogConfig | None, *, take_over: bool, batches: bool
    ) -> None:
        self.namespace = namespace
        self.lock = threading.Lock()
        self.unreadable = LogFailures()
        self._prefix = prefix
        self._log_config = log_config
        self._take_over = take_over
        self._look_again_s = 0.0
        store = f"{namespace.descriptor.token}/{prefix}"
        self.state = StoreState(new_address(store), new_address(store), self._found(), batches=batches)
        for partition in self.unreadable.failing:
            self.state.refuse(partition, math.inf)

    def name(self, partition: DafkaPartition) -> str:
        """The log of a partition."""
        subject, address = partition.subject, quote(partition.address, safe="")
        quoted = subject.replace(".", "%2E") if subject in _DOTS else quote(subject, safe="")
        name = f"{self._prefix}/{quoted}/{address}"
        packed = f"{self._prefix}/{_packed(subject)}/{address}"
        takes_too_much = len(quote(name, safe="")) > _NAME_MAX and len(packed) < len(name)
        return packed if takes_too_much else name

    def look_again(self, now_s: float) -> None:
        """Try now and then to find what is stored of partitions that could not be read. Until then nothing is taken of
        them, and nothing said. Raises what is of no single log."""
        unreadable = self.unreadable.failing
        if not unreadable or now_s < self._look_again_s:
            return
        begun_s = SYSTEM_CLOCK.monotonic_s()
        waited_s = 0.0
        for partition in unreadable:
            try:
                stored = self._range(self.name(partition))
            except LogNotFound:  # deleted meanwhile
                stored = StoredRange(0, 0)
            except PASSING as error:
                self.unreadable.failed(partition, error)
                if isinstance(error, RegistryError):  # it does not answer about the others either
                    waited_s = SYSTEM_CLOCK.monotonic_s() - begun_s
                    break
                continue
            with self.lock:
                self.state.found(partition, stored)
            self.unreadable.worked(partition)
        self._look_again_s = next_try_s(now_s, waited_s)

    def open_writer(self, partition: DafkaPartition) -> tuple[LogWriter, int]:
        """The writer of a partition's log, which is made if it is not there, and the sequence that comes next in it:
        what a store wrote that died before it was told so, is recovered, and comes a second time. Who holds the log is
        not waited for: the others would wait, too."""
        name = self.name(partition)
        if not self.namespace.exists(name):
            self.namespace.create(name, self._log_config)
        writer = self.namespace.open_writer(name, timeout_s=0, steal=self._take_over)
        try:
            return writer, self._next(name)
        except BaseException:
            writer.abort()
            raise

    def open_reader(self, partition: DafkaPartition, sequence: int) -> LogReader:
        """A reader of a partition's log, from that sequence on."""
        return self.namespace.open_reader(self.name(partition), TransactionId(sequence))

    def nothing_before(self, partition: DafkaPartition) -> int | None:
        """The sequence before which nothing is kept, where nothing is kept at all. None: something is."""
        try:
            info = self.namespace.info(self.name(partition))
        except LogNotFound:  # somebody has deleted it, with all that was stored
            with self.lock:
                return self.state.stored[partition].next
        return None if info.records else max(0, info.last_txid + 1)

    def _next(self, name: str) -> int:
        """The sequence behind the last one that was ever in a log, kept or not."""
        last = self.namespace.last_record(name)
        return max(0, self.namespace.info(name).last_txid + 1) if last is None else last.txid + 1

    def _found(self) -> dict[DafkaPartition, StoredRange]:
        found = {}
        for name in self.namespace.names(f"{self._prefix}/"):
            subject, slash, address = name.removeprefix(f"{self._prefix}/").partition("/")
            if not slash or "/" in address:  # somebody else's
                continue
            try:
                partition = DafkaPartition(_unpacked(subject), unquote(address))
            except ValueError:  # no store has given it that name
                continue
            try:
                stored = self._range(name)
            except LogNotFound:  # deleted meanwhile
                continue
            except PASSING as error:
                self.unreadable.failed(partition, error)
                continue
            if stored.next:
                found[partition] = stored
        return found

    def _range(self, name: str) -> StoredRange:
        try:
            end = self._next(name)
            with self.namespace.open_reader(name) as reader:
                records = reader.read(1)
        except DamagedEntry:  # what is whole of it can be read
            return StoredRange(0, max(0, self.namespace.info(name).last_txid + 1))
        return StoredRange(records[0].txid if records else end, end)


def _packed(subject: str) -> str:
    """A topic as a part of a log's name, where it is of many letters that take much when they are quoted."""
    return _PACKED + urlsafe_b64encode(subject.encode()).decode().rstrip("=")


def _unpacked(part: str) -> str:
    """The topic. Raises ValueError for a part that is none."""
    if not part.startswith(_PACKED):
        return unquote(part)
    data = part.removeprefix(_PACKED)
    return urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode()
