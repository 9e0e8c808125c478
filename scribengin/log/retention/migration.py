"""A namespace's logs are moved to another store: the same logs, under the same names and places. The order is

1. the lock of every log, so that nobody writes; one that is being written, or was left unfinished, is refused, and so
   is one with records that the registry does not name: recovery takes them back, and none would look for them there;
2. every file of every segment, durable and compared, in the new store under the name that it has in the old one;
3. the namespace's node says where it is moving to: from now on nobody opens it;
4. the old place loses its token: who had opened the namespace before makes no log and opens no writer there any more;
5. what was made meanwhile is taken along: whole logs, and copies of segments that were named since 2;
6. the node says the new store. The locks go back.

A crash before 3 has changed nothing; files that were copied are made durable and compared by the next attempt, and not
copied again. A crash after it leaves a namespace that nobody opens until somebody does the same again, or takes it
back: the old place gets another token, and the node names that alone. Nothing of the old place is removed: readers that
were opened before read on there, up to where it was left.

What is left unfinished between 3 and 4, or in a log that is made there, nobody else could recover: it is done here.

The mistake to avoid: a process that opened the namespace before still has the old store. Its writers have lost their
locks to us, so their epoch; it finds no token when it is to open another one. What keeps its logs, beside their
writers, looks for the token between its look at a log's head and its change of that (compression.py). So each head is
changed once more after 4, then read: what was named is seen, and what was about to be named is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.failpoints import failpoint
from scribengin.base.model import from_node_name
from scribengin.base.names import log_command
from scribengin.errors import InconsistentLog, LogNotFound, LogWriteFailed, NamespaceNotBound, RecoveryRefused
from scribengin.log.metadata import writer_lock
from scribengin.log.metadata.binding import (
    BindOptions,
    NamespaceDescriptor,
    NewPlace,
    check_machine,
    chosen_store,
    how_to_end,
    session_for,
    told,
)
from scribengin.log.metadata.lifecycle import finish_deletion
from scribengin.log.metadata.segments import (
    LogMetadata,
    LogOperator,
    SegmentDescriptor,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.retention.compression import hold_same_bytes
from scribengin.log.retention.copying import refuse_unfinished, write_copy
from scribengin.log.scan.recovery import commit_log_lookup, recover_unfinished
from scribengin.log.store.contract import ASIDE, SegmentName, SegmentStore, SegmentView
from scribengin.log.store.opening import open_store, store_kind
from scribengin_registry.contract import Operation, Registry
from scribengin_registry.errors import OutcomeUnknown, VersionConflict

_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was moved, and what its namespace is bound to now. `copied` files were not there yet."""

    descriptor: NamespaceDescriptor
    logs: int
    copied: int


def migrate_namespace(
    uri: str,
    location: str | Path,
    *,
    registry: Registry | None = None,
    store: str | None = None,
    shared: bool = False,
    timeout_s: float = _WAIT_S,
    clock: Clock = SYSTEM_CLOCK,
) -> Migrated:
    """Move all logs of a namespace to another place, as `LogNamespace.bind` names one, and bind it there. Again with
    the same place goes on where it was cut short; with the place where they were takes it back then.

    Whoever has the namespace open opens it again afterwards. Waits `timeout_s` for the writer of each log. Raises
    NamespaceNotBound, StoreElsewhere (the old place is on another machine), StoreNotMounted, OwnershipAcquireFailed (a
    log is being written), LogBusy (or was left unfinished), InconsistentLog (or has files that the registry does not
    name), RecoveryRefused (a log that was left unfinished since), DamagedEntry, LogWriteFailed, ConfigInvalid.
    """
    session, path, own = session_for(uri, registry)
    try:
        kind = chosen_store(path, store)
        with ExitStack() as locks:
            place = NewPlace(store=kind, location=store_kind(kind).resolved(str(location)), token="")
            return _Migration(session, path, place, locks, timeout_s, clock).run(BindOptions(shared))
    finally:
        if own:
            session.close()


@dataclass(frozen=True, slots=True)
class _Moved:
    """A log of which the new place holds these files, as they should be."""

    directory: str
    files: set[SegmentName] = field(default_factory=set)


class _Migration:
    def __init__(
        self, registry: Registry, path: str, wanted: NewPlace, locks: ExitStack, timeout_s: float, clock: Clock
    ) -> None:
        self._registry = registry
        self._path = path
        self._locks = locks
        self._timeout_s = timeout_s
        self._clock = clock
        self._there, self._version = self._node()
        self._begun = self._there.moving is not None
        self._wanted = wanted
        self._moved: dict[str, _Moved] = {}
        self._copied = 0

    def run(self, options: BindOptions) -> Migrated:
        there, wanted = self._there, self._wanted
        if _is_at(wanted, there):
            return Migrated(there if there.moving is None else self._taken_back(), 0, 0)
        check_machine(there, self._path)
        if there.moving is not None and not _is_at(wanted, there.moving):
            raise NamespaceNotBound(f"{self._path} {how_to_end(there, self._path)}")
        if not self._begun:
            open_store(there.store, there.location, there.token).check_mounted()
        place = wanted.model_copy(update={"token": store_kind(wanted.store).prepare(wanted.location)})
        self._take_along(place)
        if there.moving != place:
            self._said(self._begin, there.model_copy(update={"moving": place}))
        self._begun = True
        store_kind(there.store).retire(there.location, there.token)
        self._take_along(place)
        bound = told(NamespaceDescriptor(store=place.store, location=place.location, token=place.token), options)
        self._said(self._end, bound)
        return Migrated(bound, len(self._moved), self._copied)

    def _taken_back(self) -> NamespaceDescriptor:
        there, kind = self._there, store_kind(self._there.store)
        check_machine(there, self._path)
        kind.retire(there.location, there.token)  # first: whoever moves it yet takes that one away, and no other
        bound = there.model_copy(update={"token": kind.prepare(there.location), "moving": None})
        self._said(self._end, bound)
        return bound

    def _node(self) -> tuple[NamespaceDescriptor, int]:
        node = self._registry.find(self._path)
        if node is None or not node.data:
            raise NamespaceNotBound(f"{self._path} is bound to no store: bind it, without --migrate")
        return NamespaceDescriptor.from_bytes(node.data, path=self._path), node.version

    def _begin(self, descriptor: NamespaceDescriptor) -> None:
        with failpoint("log.migrate_begin"):
            self._version = self._registry.set(self._path, descriptor.to_bytes(), self._version)

    def _end(self, descriptor: NamespaceDescriptor) -> None:
        with failpoint("log.migrate_end"):
            self._registry.set(self._path, descriptor.to_bytes(), self._version)

    def _said(self, say: Callable[[NamespaceDescriptor], None], descriptor: NamespaceDescriptor) -> None:
        """Raises NamespaceNotBound if somebody else has changed the node."""
        try:
            say(descriptor)
        except (VersionConflict, OutcomeUnknown):  # or it was us, and the reply was lost
            self._registry.sync(self._path)
            now, self._version = self._node()
            if now != descriptor:
                raise NamespaceNotBound(f"{self._path} was bound by somebody else just now: look at it") from None

    def _take_along(self, place: NewPlace) -> None:
        """Copy every log that was not copied yet, and keep its lock; of the others what is new."""
        source = open_store(self._there.store, self._there.location, None)
        target = open_store(place.store, place.location, place.token)
        for node in self._registry.children(f"{self._path}/logs"):
            name = from_node_name(node)
            metadata = LogMetadata(self._registry, self._path, name)
            if finish_deletion(metadata, source):
                continue
            moved = self._moved.get(name)
            if moved is None or not _touched(metadata, moved):
                owner = writer_lock.acquire(metadata, self._clock, timeout_s=self._timeout_s, steal=False)
                self._locks.enter_context(writer_lock.given_back(metadata, owner))
                moved = self._moved[name] = _Moved(owner.directory)
                if self._begun:  # nobody else could recover it
                    self._recover(metadata, source, owner)
                else:
                    _refuse_unnamed(metadata, source)
            self._copied += copy_files(metadata, source, target, moved.files)

    def _recover(self, metadata: LogMetadata, source: SegmentStore, owner: WriterEpoch) -> None:
        lookup = commit_log_lookup(self._registry, metadata.log, self._path)
        try:
            recover_unfinished(metadata, source, owner, metadata.state(), self._clock, lookup)
        except RecoveryRefused as refused:
            back = log_command(self._path, "bind", "--migrate", self._there.location)
            raise RecoveryRefused(
                f"{refused}. Nobody opens the namespace while it is being moved: take that back first, by {back}"
            ) from None


def _is_at(wanted: NewPlace, there: NewPlace | NamespaceDescriptor) -> bool:
    return (there.store, there.location) == (wanted.store, wanted.location)


def _refuse_unnamed(metadata: LogMetadata, store: SegmentStore) -> None:
    """Raises InconsistentLog where files hold what no node of the log names."""
    state = metadata.whole()
    head = state.head
    aside = store.names(f"{head.directory}/{ASIDE}")
    named = {(segment.segment, segment.epoch) for segment in state.segments}
    unnamed = (
        name
        for name in store.names(head.directory)
        if name.segment >= head.begin and (name.segment, name.epoch) not in named
    )
    for name in chain(aside, unnamed):
        if _has_bytes(store, name):
            recover = log_command(metadata.namespace, "recover", metadata.log)
            raise InconsistentLog(
                f"log '{metadata.log}': the file {store.location(name)} holds records that the registry does not name: "
                f"it went back, as to an older backup; {recover} takes them back (move what that leaves there out of "
                "the log's directory), then move the namespace"
            )


def _has_bytes(store: SegmentStore, name: SegmentName) -> bool:
    try:
        view = store.open(name)
    except LogNotFound:  # all that is left is what stood beside it
        return False
    try:
        return view.size() > 0
    finally:
        view.close()


def _touched(metadata: LogMetadata, moved: _Moved) -> bool:
    """Change the log's head, and nothing that it says: whoever is about to change it looks again. False: it is another
    log by now."""

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        return head.model_copy(update={"revisions": head.revisions + 1}), []  # else a lost one would count as done

    try:
        metadata.change(LogOperator(moved.directory), change)
    except LogNotFound:
        return False
    return True


def copy_files(metadata: LogMetadata, source: SegmentStore, target: SegmentStore, known: set[SegmentName]) -> int:
    """Make `target` hold every file that the log's nodes name in `source`; how many were not there. `known` are those
    that it does hold, and in the end all. Raises as `migrate_namespace`."""
    log = metadata.descriptor()
    state = metadata.whole()
    refuse_unfinished(metadata, state)
    store = target.for_log(log.config)
    store.create_log(log.directory)
    present = set(store.names(log.directory))
    copied = 0
    try:
        for segment in state.segments:
            for name, size in _files_of(segment):
                if name not in known:
                    copied += _copy_file(metadata.log, source, store, segment, name, size, there=name in present)
                    known.add(name)
    except LogNotFound:
        if metadata.head()[1] == state.head_version:
            raise
        return copied + copy_files(metadata, source, target, known)  # a purge has taken it away: look again
    return copied


def _files_of(segment: SegmentDescriptor) -> Iterator[tuple[SegmentName, int]]:
    """The files of a completed segment in its store, and how much of each counts."""
    if segment.hot_dropped_ms is not None:
        return
    if segment.raw_dropped_ms is None:
        yield segment.raw_file, segment.bytes
    if segment.copy_file is not None and segment.compressed is not None:
        yield segment.copy_file, segment.compressed.bytes


def _copy_file(
    log: str,
    source: SegmentStore,
    store: SegmentStore,
    segment: SegmentDescriptor,
    name: SegmentName,
    size: int,
    *,
    there: bool,
) -> bool:
    view = source.open(name)
    try:
        if there and _made_durable(store, name) and _holds(store, view, name, size):
            return False
        if there:
            store.remove(name)  # what an attempt that was cut short has left
        write_copy(log, view, segment, size, store, name)
        if not _holds(store, view, name, size):
            raise LogWriteFailed(
                f"log '{log}': segment {segment.segment} does not hold in {store.location(name)} what was copied; the "
                "namespace stays where it is: check the machine's memory and disk"
            )
        return True
    finally:
        view.close()


def _made_durable(store: SegmentStore, name: SegmentName) -> bool:
    """Make what is there of a file durable: whoever wrote it may have died before that. False: nothing is there."""
    try:
        store.open(name).close()
    except LogNotFound:  # all that is left is what stood beside it
        return False
    store.fence(name)  # on HDFS nobody else may have it open for that
    store.make_durable(name)
    return True


def _holds(store: SegmentStore, view: SegmentView, name: SegmentName, size: int) -> bool:
    """Whether the new store holds the file as it is."""
    try:
        written = store.open(name, from_disk=True)
    except LogNotFound:
        return False
    try:
        return written.size() == size and hold_same_bytes(view, written, size)
    finally:
        written.close()
