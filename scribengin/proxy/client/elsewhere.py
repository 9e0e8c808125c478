"""Namespaces whose directory is on another machine, as their writers and readers have them: through the proxies there.

Nothing is different for who uses one. Who owns a log, what was staged and what was committed is decided here, by the
registry, as over any store. What is done to files, a proxy does on their machine (`writing/segments.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.model import JsonObject
from scribengin.errors import (
    ConfigInvalid,
    LogClosed,
    LogNotFound,
    LogWriteFailed,
    ScribenginError,
    StoreNotMounted,
    StoreUnreachable,
    WritersTooMany,
)
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.metadata.binding import NamespaceDescriptor, bound, is_still_bound, session_for
from scribengin.log.metadata.segments import LogMetadata, SegmentsHead, WriterEpoch
from scribengin.log.store.cold import check_cold_url, remove_cold
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    PlacedEntry,
    SegmentAppender,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.log.store.opening import store_kind
from scribengin.proxy.client.credentials import ProxyCredentials
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.segments import ProxiedSegmentStore, SegmentQuestions
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.nodes import ProxyNodes
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import AskDone
from scribengin.proxy.wire.requests import AskRequest
from scribengin_registry.contract import Registry

_CLOSE_S = 2.0
"""So long a proxy is asked to close a segment: it does so later in any case."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A segment that may have been made, under that handle, by the proxy of that address."""

    handle: str
    address: str


class NamespaceElsewhere(LogNamespace):
    """A namespace in a directory of another machine. Thread-safe."""

    @classmethod
    def find(
        cls,
        uri: str,
        registry: Registry | None,
        clock: Clock = SYSTEM_CLOCK,
        client: ProxyClientConfig | None = None,
        transport: ProxyTransport | None = None,
        *,
        awaited: bool = False,
    ) -> NamespaceElsewhere | None:
        """The namespace, as `LogNamespace.open` has it; None: no proxy of it runs. `awaited`: it is opened all the
        same, and what needs a proxy raises StoreUnreachable once none has come. `transport` carries what proxies are
        asked (None: Arrow Flight).

        Raises ConfigInvalid (also for a store that every machine reaches), ReferenceMissing, RegistryUnreachable,
        NamespaceNotBound.
        """
        client = client or ProxyClientConfig()
        session, path, own = session_for(uri, registry)
        with ExitStack() as undo:
            if own:
                undo.callback(session.close)
            descriptor = bound(session, path, uri, anywhere=True)
            if not store_kind(descriptor.store).on_one_machine:
                raise ConfigInvalid(
                    f"{uri} keeps its logs in {descriptor.location}, which is on no machine alone: open it with "
                    "LogNamespace"
                )
            nodes = ProxyNodes(session, path)
            if not awaited and not nodes.servers():
                return None
            if transport is None:
                transport = FlightTransport(ProxyCredentials.of(client))
                undo.callback(transport.close)
            questions = SegmentQuestions(ProxyDelivery(nodes, transport, client, clock))
            store = StoreElsewhereByProxies(questions, descriptor.store, client, _still_at(session, path, descriptor))
            opened = cls(session, path, descriptor, LogConfig(), clock, own=own, store=store)
            opened.questions = questions
            undo.pop_all()
            return opened

    questions: SegmentQuestions

    @property
    def local_directory(self) -> Path:
        """There is none: raises ConfigInvalid."""
        raise ConfigInvalid(
            f"{self.path} keeps its logs in {self.descriptor.location} of another machine, and this needs a directory "
            "of its own there: do it on that machine"
        )

    def delete(self, name: str, *, force: bool = False, directory: str | None = None) -> None:
        """As LogNamespace.delete. Raises ConfigInvalid, too: what is cold in a directory is deleted where that is."""
        _check_cold(self._metadata(name), "delete")
        super().delete(name, force=force, directory=directory)

    def _owned(
        self,
        metadata: LogMetadata,
        timeout_s: float,
        *,
        steal: bool,
        cancel: Event | None = None,
        thorough: bool = False,
    ) -> WriterEpoch:
        self._store.for_log(metadata.descriptor().config)
        _check_cold(metadata, "write")  # recovery looks for segments there, and gives up what it does not find
        return super()._owned(metadata, timeout_s, steal=steal, cancel=cancel, thorough=thorough)

    def close(self) -> None:
        """As LogNamespace.close."""
        self.questions.close()
        self.questions.delivery.close()
        super().close()


def _still_at(registry: Registry, path: str, opened: NamespaceDescriptor) -> Callable[[], None]:
    """What raises StoreNotMounted once the namespace is moved. Whoever looks at a log's head before it, and changes
    that then, does so before the move, or fails: a move changes each head after it has said so (migration.py). A proxy
    cannot tell: one that was started since has the new place."""

    def check() -> None:
        if not is_still_bound(registry, path, opened):
            raise StoreNotMounted(
                f"{path} does not keep its logs in {opened.location} any more, or they are being moved: open the "
                "namespace again"
            )

    return check


def _check_cold(metadata: LogMetadata, doing: str) -> None:
    """Raises ConfigInvalid for a log that has, or had, cold segments in a directory: here it is another one."""
    node = metadata.registry.find(metadata.segments_path)
    places = () if node is None else SegmentsHead.from_bytes(node.data, path=metadata.segments_path).cold_places
    there = next((place for place in places if place.startswith("/")), None)
    if there is not None:
        raise ConfigInvalid(
            f"log '{metadata.log}' has cold segments in {there}, a directory of the machine of the logs: {doing} it "
            "there"
        )


class StoreElsewhereByProxies(ProxiedSegmentStore):
    """A store of another machine, all of it. Raises what that raises, and StoreUnreachable."""

    def __init__(
        self,
        questions: SegmentQuestions,
        kind: str,
        client: ProxyClientConfig,
        check_mounted: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_mounted` tells whether it is the namespace's store yet."""
        super().__init__(questions, kind, client)
        self._check_mounted = check_mounted
        self._begun: dict[SegmentName, _Begun] = {}
        """Segments that may have been made without our having been told."""

    def for_log(self, config: LogConfig) -> SegmentStore:
        if config.cold_url is not None:
            check_cold_url(config.cold_url)
        if config.cold_url is not None and config.cold_url.startswith("/"):
            raise ConfigInvalid(
                f"cold_url {config.cold_url} is a directory of the machine of the logs, and this is another one: write "
                "the log there, or give it a cold_url that both reach"
            )
        return super().for_log(config)

    def check_mounted(self) -> None:
        self._check_mounted()

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        aside = "/" in name.directory  # proxies serve readers no such file
        return _DiskView(self._questions, name) if from_disk or aside else super().open(name)

    def create_log(self, directory: str) -> None:
        self._ask_of(wire.CREATE_LOG, directory)

    def delete_log(self, directory: str) -> None:
        self._ask_of(wire.DELETE_LOG, directory)

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        before = self._begun.get(name)
        if before is not None and self._questions.delivery.runs(before.address):
            begun = before  # it knows the handle
        else:
            handle = uuid.uuid4().hex if before is None else before.handle
            begun = _Begun(handle, self._questions.proxy_for(name.directory))  # all of a log at one, while that runs
        self._begun[name] = begun
        request = wire.about_segment(wire.CREATE, name, handle=begun.handle, fsync=fsync)
        try:
            self._questions.send_to(begun.address, request)
        except WritersTooMany:
            self._begun.pop(name, None)  # it has made nothing: another proxy may have room
            raise
        except StoreUnreachable:
            raise
        except LogWriteFailed:
            if before is None or not self._is_left_empty(name):
                raise
            self.remove(name)
            self._questions.send_to(begun.address, request)
        self._begun.pop(name, None)
        return _AppenderElsewhere(self._questions, name, begun.handle, begun.address)

    def _is_left_empty(self, name: SegmentName) -> bool:
        """Whether the proxy that was asked to make the segment before has made it, and nobody has written into it: no
        registry names it yet. Of copies, empty ones may be somebody's sign."""
        try:
            return not name.copy and self._questions.ask(wire.DISK_SIZE, name).said["size"] == 0
        except LogNotFound:
            return False

    def fence(self, name: SegmentName) -> None:
        self._questions.ask(wire.FENCE, name)

    def make_durable(self, name: SegmentName) -> None:
        self._questions.ask(wire.MAKE_DURABLE, name)

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        if name.place:
            return False
        request = replace(wire.about_segment(wire.SAVE_INDEX, name, kind=kind), data=pa.py_buffer(index))
        try:
            return bool(self._questions.send(str(name), request).said["kept"])
        except ScribenginError:  # it is a hint
            return False

    def names(self, directory: str) -> list[SegmentName]:
        return [wire.segment_named(*name) for name in self._ask_of(wire.NAMES, directory).said["names"]]

    def announce(self, name: SegmentName) -> None:
        self._questions.ask(wire.ANNOUNCE, name)

    def announced(self, directory: str) -> Announced:
        return Announced(*self._ask_of(wire.ANNOUNCED, directory).said["announced"])

    def remove(self, name: SegmentName) -> int:
        if not name.place:
            return int(self._questions.ask(wire.REMOVE, name).said["size"])
        if name.place.startswith("/"):
            raise LogWriteFailed(f"{name} is on the machine of the logs: run `scribengin log purge` there")
        return remove_cold(name)

    def move(self, name: SegmentName, to: SegmentName) -> None:
        self._questions.ask(wire.MOVE, name, to=list(to[:4]))

    def repair(self, name: SegmentName) -> int:
        return 0  # a directory has one copy

    def _ask_of(self, op: str, directory: str) -> AskDone:
        return self._questions.send(directory, wire.about_directory(op, directory))


class _AppenderElsewhere(SegmentAppender):
    """Writes a segment that a proxy has open, at that one."""

    def __init__(self, questions: SegmentQuestions, name: SegmentName, handle: str, address: str) -> None:
        self._questions = questions
        self._name = name
        self._handle = handle
        self._address = address
        self._step = 0
        self._closed = False

    def write(self, entries: Sequence[PlacedEntry]) -> None:
        for offset, data in wire.entries_sent(entries):
            self._do(wire.APPEND, data, offset=offset)

    def sync(self) -> None:
        self._do(wire.SYNC)

    def make_durable(self) -> None:
        self._do(wire.SETTLE)

    def publish(self, tail: Tail) -> None:
        self._do(wire.SHOW, **wire.told_tail(tail))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(ScribenginError):  # then the proxy closes it once the log has another owner, or with itself
            self._questions.send_to(self._address, self._asked(wire.CLOSE), patience_s=_CLOSE_S)

    def _do(self, op: str, data: pa.Buffer | None = None, **fields: object) -> None:
        if self._closed:
            raise LogClosed(f"segment {self._name} is closed; open a new writer")
        self._step += 1
        request = replace(self._asked(op, step=self._step, **fields), data=data)
        self._questions.send_to(self._address, request)

    def _asked(self, op: str, **fields: object) -> AskRequest:
        return wire.about_segment(op, self._name, handle=self._handle, **fields)


class _DiskView(SegmentView):
    """A segment as it is on the disk of its machine, read past the cache there."""

    def __init__(self, questions: SegmentQuestions, name: SegmentName) -> None:
        self._questions = questions
        self._name = name
        self._window = pa.py_buffer(b"")
        self._window_start = 0
        self._looked()  # raises LogNotFound

    def tail(self) -> Tail | None:
        return wire.heard_tail(self._looked())

    def watch_tail(self, moved: Event) -> None:
        return None

    def size(self) -> int:
        return int(self._looked()["size"])

    def read(self, offset: int, length: int) -> pa.Buffer:
        at = offset - self._window_start
        if not 0 <= at <= at + length <= self._window.size:
            self._window = self._fetched(offset, max(length, wire.ANSWER_BYTES_MAX))  # scans go on
            self._window_start = offset
            at = 0
        return self._window.slice(at, min(length, self._window.size - at))

    def close(self) -> None:
        """Nothing is open."""

    def _looked(self) -> JsonObject:
        return self._questions.ask(wire.DISK_SIZE, self._name).said

    def _fetched(self, offset: int, length: int) -> pa.Buffer:
        parts: list[pa.Buffer] = []
        while length > 0:
            part = self._questions.data(wire.DISK_BYTES, self._name, offset=offset, length=length)
            if not part.size:
                break
            parts.append(part)
            offset += part.size
            length -= part.size
        return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(map(memoryview, parts)))
