"""Namespaces: where logs are created, found, opened and deleted."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from scribengin.clock import SYSTEM_CLOCK, Clock
from scribengin.effect import effect
from scribengin.errors import ConfigInvalid, EndOfStream, LogExists, NamespaceNotBound
from scribengin.log import ownership
from scribengin.log.catalog import LogCatalog
from scribengin.log.chain import SegmentChain
from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN
from scribengin.log.filestore import FileSegmentStore
from scribengin.log.metadata import (
    LockDescriptor,
    LogDescriptor,
    LogMetadata,
    LogState,
    NamespaceDescriptor,
    Owner,
    SegmentDescriptor,
    SegmentsHead,
)
from scribengin.log.names import NamespaceUri, check_log_name
from scribengin.log.reader import LogReader, Start
from scribengin.log.records import LogRecord
from scribengin.log.recovery import Judge, commit_log_judge, recover_unfinished
from scribengin.log.writer import LogWriter
from scribengin.model import from_node_name, node_name
from scribengin_registry.contract import Create, Delete, Operation, Registry
from scribengin_registry.errors import NodeExists, NodeMissing, NodeNotEmpty, OutcomeUnknown, VersionConflict

_ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What there is to say about a log. `writer` is who holds its lock, if anybody does."""

    log: LogDescriptor
    head: SegmentsHead
    segments: tuple[SegmentDescriptor, ...]
    writer: str | None
    first: DLSN
    end: DLSN
    records: int
    bytes: int


class LogNamespace:
    """A set of logs that share a registry node and a store. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        path: str,
        descriptor: NamespaceDescriptor,
        config: LogConfig,
        clock: Clock,
        *,
        own: bool,
    ) -> None:
        self.path = path
        self.descriptor = descriptor
        self._registry, self._config, self._clock, self._own_registry = registry, config, clock, own
        self._store = FileSegmentStore(descriptor.location)

    @classmethod
    def bind(cls, uri: str, store_dir: str | Path, *, registry: Registry | None = None) -> NamespaceDescriptor:
        """Create the namespace, with its segments in the directory `store_dir`. Idempotent for the same directory.

        Raises ConfigInvalid, RegistryUnreachable, NamespaceNotBound (it is bound to another directory).
        """
        wanted = NamespaceDescriptor(store="file", location=str(Path(store_dir).resolve()))
        session, path, own = _session(uri, registry)
        try:
            _bind(session, path, wanted)
        finally:
            if own:
                session.close()
        return wanted

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        registry: Registry | None = None,
        config: LogConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> LogNamespace:
        """Open a namespace that was bound. `config` is what logs are created with that do not say otherwise.

        With `registry`, that session is used and `close` leaves it open; `uri` may be a bare node path then.
        Raises ConfigInvalid, RegistryUnreachable, NamespaceNotBound.
        """
        session, path, own = _session(uri, registry)
        try:
            node = session.find(path)
            if node is None or not node.data:
                raise NamespaceNotBound(f"{uri} is bound to no store: bind it with LogNamespace.bind, or run a sandbox")
            descriptor = NamespaceDescriptor.from_bytes(node.data, path=path)
        except BaseException:
            if own:
                session.close()
            raise
        return cls(session, path, descriptor, config or LogConfig(), clock, own=own)

    def create(self, name: str, config: LogConfig | None = None) -> LogDescriptor:
        """Create a log. Raises InvalidLogName, LogExists, LogWriteFailed."""
        name = check_log_name(name)
        metadata = self._metadata(name)
        log = LogDescriptor(
            name=name,
            directory=f"{node_name(name)}-{uuid.uuid4().hex[:12]}",
            created_ms=self._clock.now_ms(),
            config=config or self._config,
        )
        self._store.create_log(log.directory)
        operations = [
            Create(metadata.path, log.to_bytes()),
            Create(metadata.segments_path, SegmentsHead(directory=log.directory).to_bytes()),
        ]
        try:
            with effect("log.create"):
                self._registry.commit(operations)
        except NodeExists:
            self._store.delete_log(log.directory)
            raise LogExists(f"log '{name}' exists already in {self.path}; open it, or choose another name") from None
        except OutcomeUnknown:
            self._registry.sync(metadata.path)
            if metadata.descriptor().directory != log.directory:  # raises LogNotFound if it was not created
                raise LogExists(f"log '{name}' was created by somebody else just now; open it") from None
        return log

    def delete(self, name: str) -> None:
        """Delete a log and its segments; whoever writes it is fenced. Raises LogNotFound."""
        metadata = self._metadata(name)
        log = metadata.descriptor()
        for _attempt in range(_ATTEMPTS_MAX):
            state = metadata.state()
            if state.in_progress is not None:
                self._store.fence(state.in_progress.file)
            try:
                with effect("log.delete"):
                    self._registry.commit(_deletes(self._registry, metadata, state))
                break
            except (NodeMissing, NodeNotEmpty, VersionConflict):
                continue  # something was added or removed meanwhile: look again
            except OutcomeUnknown:
                self._registry.sync(metadata.path)
                if self._registry.find(metadata.path) is None:
                    break
        else:
            raise LogExists(f"log '{name}' keeps changing and could not be deleted; stop its writers and try again")
        self._store.delete_log(log.directory)

    def exists(self, name: str) -> bool:
        """Whether there is a log of that name. Raises InvalidLogName."""
        return self._registry.find(self._metadata(name).path) is not None

    def names(self, prefix: str = "") -> list[str]:
        """The names of all logs that begin with `prefix`, sorted."""
        try:
            nodes = self._registry.children(f"{self.path}/logs")
        except NodeMissing:
            return []
        return sorted(name for node in nodes if (name := from_node_name(node)).startswith(prefix))

    def open_writer(
        self,
        name: str,
        *,
        timeout_s: float = 10.0,
        steal: bool = False,
        commit_log: str | None = None,
        judge: Judge | None = None,
    ) -> LogWriter:
        """Become the writer of a log: wait for its lock (or with `steal` take it), recover what was left unfinished.

        A writer that is to stage rounds names the registry path of the `commit_log` that decides about them. `judge`
        says which staged range of an unfinished segment has committed; without one, the commit log that the segment
        names is fenced and believed. Raises LogNotFound, OwnershipAcquireFailed, RecoveryRefused, EndOfStream (the log
        is sealed).
        """
        metadata = self._metadata(name)
        log = metadata.descriptor()
        owner = ownership.acquire(metadata, self._clock, timeout_s=timeout_s, steal=steal)
        try:
            judge = judge or commit_log_judge(self._registry, log.name)
            head = self._take_over(metadata, owner, judge)
            chain = SegmentChain(metadata, self._store, owner, log, head, commit_log=commit_log, clock=self._clock)
            stages = commit_log is not None
            return LogWriter(metadata, owner, chain, log.config, stages=stages, clock=self._clock)
        except BaseException:
            ownership.release(metadata, owner)
            raise

    def open_reader(self, name: str, start: Start = None) -> LogReader:
        """A reader from `start`: the first record at or behind it; None or DLSN.INITIAL: the first that is kept.

        Raises LogNotFound, PositionTruncated, InconsistentLog (the log never had such a position).
        """
        catalog = self._catalog(name, follow=True)
        try:
            return LogReader(catalog, start, self._clock)
        except BaseException:
            catalog.close()
            raise

    def last_record(self, name: str) -> LogRecord | None:
        """The last visible record; None if there is none. Raises LogNotFound, DamagedEntry."""
        with closing(self._catalog(name)) as catalog:
            position = catalog.position_of(catalog.end_sequence() - 1)
            if catalog.end_sequence() == 0 or position < catalog.state().head.first:
                return None
            records = LogReader(catalog, position, self._clock).read(1)
            return records[0] if records else None

    def first_dlsn(self, name: str) -> DLSN:
        """The position of the first record that is kept (or would be, if there is none yet). Raises LogNotFound."""
        return self._metadata(name).head()[0].first

    def end_dlsn(self, name: str) -> DLSN:
        """The position behind the last visible record. Raises LogNotFound."""
        with closing(self._catalog(name)) as catalog:
            return catalog.end_position()

    def segments(self, name: str) -> tuple[SegmentDescriptor, ...]:
        """All segments, in order. Raises LogNotFound, InconsistentLog."""
        return self._metadata(name).state().segments

    def count(self, name: str, start: DLSN | None = None, end: DLSN | None = None) -> int:
        """How many visible records stand in [start, end); None means the first kept, and all. Raises as a reader."""
        with closing(self._catalog(name)) as catalog:
            first = catalog.sequence_at(start or catalog.state().head.first)
            return (catalog.end_sequence() if end is None else catalog.sequence_at(end)) - first

    def truncate(self, name: str, before: DLSN) -> bool:
        """Give up the records before `before`, and return whether that changed anything. Only metadata: disk space is
        freed by retention. Raises LogNotFound, InconsistentLog (the log has no such position)."""
        with closing(self._catalog(name)) as catalog:
            if before <= catalog.state().head.first:
                return False
            catalog.check_position(before)
        first = {"first_segment": before.segment, "first_entry": before.entry, "first_slot": before.slot}

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            return (head.model_copy(update=first) if before > head.first else head), []

        self._metadata(name).change(None, change)
        return True

    def info(self, name: str) -> LogInfo:
        """What there is to say about a log. Raises LogNotFound, InconsistentLog."""
        metadata = self._metadata(name)
        lock = self._registry.find(metadata.lock_path)
        with closing(self._catalog(name)) as catalog:
            state = catalog.state()
            return LogInfo(
                log=catalog.log,
                head=state.head,
                segments=state.segments,
                writer=None if lock is None else LockDescriptor.from_bytes(lock.data, path=metadata.lock_path).owner,
                first=state.head.first,
                end=catalog.end_position(),
                records=catalog.end_sequence() - catalog.sequence_at(state.head.first),
                bytes=sum(catalog.end(segment).end for segment in state.segments),
            )

    def close(self) -> None:
        """End the registry session, if `open` made it. Readers and writers must be closed before. Idempotent."""
        if self._own_registry:
            self._registry.close()

    def __enter__(self) -> LogNamespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _metadata(self, name: str) -> LogMetadata:
        return LogMetadata(self._registry, self.path, check_log_name(name))

    def _catalog(self, name: str, *, follow: bool = False) -> LogCatalog:
        metadata = self._metadata(name)
        return LogCatalog(metadata, self._store, metadata.descriptor(), self._clock, follow=follow)

    def _take_over(self, metadata: LogMetadata, owner: Owner, judge: Judge) -> SegmentsHead:
        state = metadata.state()
        if state.head.end_of_stream:
            raise EndOfStream(f"log '{metadata.log}' was sealed: nothing can be written to it; create another log")
        head = recover_unfinished(metadata, self._store, owner, state, self._clock, judge)
        kept = frozenset((segment.segment, segment.epoch) for segment in state.segments)
        self._store.sweep(owner.directory, kept, owner.epoch)
        return head


def _session(uri: str, registry: Registry | None) -> tuple[Registry, str, bool]:
    """A registry session for `uri`, the namespace's path in it, and whether the session is the caller's to close."""
    parsed = NamespaceUri.parse(uri)
    if registry is None:
        if not parsed.hosts:
            raise ConfigInvalid(f"'{uri}' names no ZooKeeper hosts; write distributedlog-file://<hosts>{uri}")
        from scribengin_registry.kazoo_registry import connect  # only who connects needs the client

        return connect(parsed.hosts), parsed.path, True
    if not parsed.hosts:
        return registry, parsed.path, False
    hosts, _slash, root = registry.hosts.partition("/")
    root = f"/{root}" if root else ""
    if not set(parsed.hosts.split(",")) & set(hosts.split(",")):
        raise ConfigInvalid(f"'{uri}' lies in another ensemble than the registry {registry.hosts}; use one for both")
    if root and not parsed.path.startswith(f"{root}/"):
        raise ConfigInvalid(f"'{uri}' lies outside {root}, which is all that the registry {registry.hosts} can see")
    return registry, parsed.path.removeprefix(root), False


def _bind(registry: Registry, path: str, wanted: NamespaceDescriptor) -> None:
    FileSegmentStore(wanted.location).create_log("")  # the directory itself
    for _attempt in range(_ATTEMPTS_MAX):
        try:
            node = registry.find(path)
            if node is None:
                with effect("log.bind_create"):
                    registry.create(path, wanted.to_bytes(), parents=True)
            elif not node.data:
                with effect("log.bind_set"):
                    registry.set(path, wanted.to_bytes(), node.version)
            elif (bound := NamespaceDescriptor.from_bytes(node.data, path=path)) != wanted:
                raise NamespaceNotBound(f"{path} is bound to {bound.location} already; use that, or another path")
            else:
                break
        except (NodeExists, NodeMissing, VersionConflict, OutcomeUnknown):
            registry.sync()  # somebody else binds it, or our reply was lost: look again
    try:
        with effect("log.bind_logs"):
            registry.create(f"{path}/logs")
    except NodeExists:
        return


def _deletes(registry: Registry, metadata: LogMetadata, state: LogState) -> list[Operation]:
    """Everything below the log's node, deepest first. The head's version makes it fail if a segment came or went."""
    deletes: list[Operation] = []

    def below(path: str) -> None:
        for child in registry.children(path):
            below(f"{path}/{child}")
        deletes.append(Delete(path, state.head_version if path == metadata.segments_path else -1))

    below(metadata.path)
    return deletes
