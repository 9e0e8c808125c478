"""A log's node from its beginning to its end: created, configured, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.base.model import from_node_name, node_name
from scribengin.errors import (
    ConfigConflict,
    DescriptorUnreadable,
    InconsistentLog,
    LogBusy,
    LogExists,
    LogWriteFailed,
)
from scribengin.log.config import LogConfig
from scribengin.log.metadata.check import MetadataCheck, check_metadata
from scribengin.log.metadata.cold_places import empty_places
from scribengin.log.metadata.names import check_directory
from scribengin.log.metadata.segments import (
    LockDescriptor,
    LogDescriptor,
    LogMetadata,
    SegmentDescriptor,
    SegmentsHead,
)
from scribengin.log.store.contract import SegmentStore
from scribengin_registry.client import batches
from scribengin_registry.compare_and_set import LookAgain, win_race
from scribengin_registry.contract import ANY_VERSION, Create, Delete, Node, Operation, Registry, Set
from scribengin_registry.errors import NodeExists, NodeMissing, NodeNotEmpty, OutcomeUnknown, VersionConflict


def create_log(metadata: LogMetadata, store: SegmentStore, config: LogConfig, clock: Clock) -> LogDescriptor:
    """Create the log: its directory first, so that a node never names one that is not there.

    Raises LogExists, LogWriteFailed, LogNotFound (the request was lost, and nothing was created), ConfigInvalid (the
    store cannot keep such a log).
    """
    store.for_log(config)
    log = LogDescriptor(
        name=metadata.log,
        directory=f"{node_name(metadata.log)}-{uuid.uuid4().hex[:12]}",
        created_ms=clock.now_ms(),
        config=config,
    )
    store.create_log(log.directory)
    operations = [
        Create(metadata.path, log.to_bytes()),
        Create(metadata.same(log.directory).path),
        Create(metadata.segments_path, SegmentsHead(directory=log.directory).to_bytes()),
    ]
    try:
        with failpoint("log.create"):
            metadata.registry.commit(operations)
    except NodeExists:
        store.delete_log(log.directory)
        if finish_deletion(metadata, store):
            return create_log(metadata, store, config, clock)
        raise LogExists(
            f"log '{log.name}' exists already in {metadata.namespace}; open it, or choose another"
        ) from None
    except OutcomeUnknown:
        metadata.registry.sync(metadata.path)
        if metadata.descriptor().directory != log.directory:  # raises LogNotFound if it was not created
            raise LogExists(f"log '{log.name}' was created by somebody else just now; open it") from None
    return log


def configure_log(metadata: LogMetadata, config: LogConfig, version: int | None) -> LogDescriptor:
    """Replace the log's configuration, if its version still is `version` (None: whatever it is).

    Raises LogNotFound, ConfigConflict.
    """
    return win_race(
        lambda: _configure(metadata, config, version),
        races=(VersionConflict, NodeMissing),
        exhausted=lambda: ConfigConflict(f"log '{metadata.log}': its configuration keeps changing; try again"),
    )


def _configure(metadata: LogMetadata, config: LogConfig, version: int | None) -> LogDescriptor:
    node = metadata.registry.find(metadata.path)
    if node is None:
        raise metadata.not_found()
    log = LogDescriptor.from_bytes(node.data, path=metadata.path)
    if log.deleting:
        raise metadata.not_found()
    if version is not None and log.config_version != version:
        if (log.config_version, log.config) == (version + 1, config):
            return log  # it was this call's own request, whose reply was lost
        raise ConfigConflict(
            f"log '{metadata.log}': its configuration is version {log.config_version} by now, not {version}; "
            "look at it, and try again from there"
        )
    after = log.model_copy(update={"config": config, "config_version": log.config_version + 1})
    try:
        with failpoint("log.configure"):
            metadata.registry.commit([metadata.same(log.directory), Set(metadata.path, after.to_bytes(), node.version)])
    except OutcomeUnknown:
        metadata.registry.sync(metadata.path)
        if metadata.descriptor() != after:
            raise LookAgain from None
    return after


def delete_log(metadata: LogMetadata, store: SegmentStore, *, force: bool, directory: str | None = None) -> None:
    """Delete the log's nodes, then its files. With `force`, whoever writes it is fenced, and a log whose metadata
    contradicts itself, or whose files are gone, is deleted, too. With a `directory`, only the log of that one.

    One transaction deletes it for everybody. Where its nodes are too many for one, or it has files in cold storage,
    that transaction only says so; those files and the nodes follow. A crash in between leaves them to whoever deletes
    or creates a log of that name next.
    Raises LogNotFound, LogBusy, InconsistentLog (not with `force`), StoreUnreachable (cold storage is away: the log is
    gone, and its files go when it is deleted or created again).
    """
    registry = metadata.registry
    if finish_deletion(metadata, store):
        return
    log = metadata.descriptor()
    check_directory(metadata.log, directory, log.directory)
    what = f"log '{log.name}' keeps changing and could not be deleted; stop its users and try again"
    win_race(
        lambda: _delete_as_found(metadata, store, log, force=force),
        races=(NodeMissing, NodeNotEmpty, VersionConflict),  # something was added or removed meanwhile: look again
        registry=registry,
        exhausted=lambda: LogBusy(what),
    )
    if not finish_deletion(metadata, store):
        store.delete_log(log.directory)


def _delete_as_found(metadata: LogMetadata, store: SegmentStore, log: LogDescriptor, *, force: bool) -> None:
    there = metadata.find_descriptor()
    if there is None or there[0].deleting:
        return  # by a request whose reply was lost
    found = check_metadata(metadata)
    if found.head.directory != log.directory:
        return  # a lost request has deleted it, and somebody has created it again
    if not force:  # who takes the lock after this look moves the head's version
        _refuse_if_written(metadata)
        _refuse_if_inconsistent(found)
    for segment in found.segments:
        if segment.in_progress:
            _fence(store, segment, force=force)
    _delete_for_everybody(metadata, found)


def _fence(store: SegmentStore, segment: SegmentDescriptor, *, force: bool) -> None:
    try:
        store.fence(segment.file)
    except LogWriteFailed as error:
        if store.names(segment.directory):
            raise
        if not force:
            raise LogWriteFailed(f"{error}; if the log's directory is gone for good, delete it by force") from error


def finish_deletion(metadata: LogMetadata, store: SegmentStore) -> bool:
    """Delete what is left of a log that is being deleted, and say whether there was anything."""
    begun = metadata.find_descriptor()
    there = begun
    while there is not None and there[0].deleting:
        log, version = there
        try:
            empty_places(metadata)
            for batch in batches(_deletes(metadata, log.directory, version, ANY_VERSION)):
                same = [] if batch[0].path == metadata.path else [metadata.same(log.directory)]
                with failpoint("log.delete_rest"):
                    metadata.registry.commit([*same, *batch])
        except (NodeMissing, NodeNotEmpty, VersionConflict):
            pass  # somebody else deletes it, too
        except OutcomeUnknown:
            metadata.registry.sync(metadata.path)
        there = metadata.find_descriptor()
    if begun is None or not begun[0].deleting:
        return False
    store.delete_log(begun[0].directory)
    return True


def standing(registry: Registry, logs_path: str, nodes: Sequence[str]) -> list[str]:
    """The names of those of the nodes that are logs. One whose deletion was cut short is none, as for
    `LogNamespace.exists`; one that cannot be read is, so that whoever uses it is told."""
    found = registry.find_all([f"{logs_path}/{node}" for node in nodes])
    return [
        from_node_name(node)
        for node, there in zip(nodes, found, strict=True)
        if there is not None and not _is_deleting(there)
    ]


def _is_deleting(node: Node) -> bool:
    try:
        return LogDescriptor.from_bytes(node.data, path="").deleting
    except DescriptorUnreadable:
        return False


def _delete_for_everybody(metadata: LogMetadata, found: MetadataCheck) -> None:
    there = metadata.find_descriptor()
    if there is None:
        return
    log, version = there
    same: list[Operation] = [metadata.same(found.head.directory)] if found.named else []
    changes = _deletes(metadata, found.head.directory, version, found.head_version)
    if len(list(batches(changes))) > 1 or found.head.cold_places:
        head = found.head.model_copy(update={"epoch": found.head.epoch + 1, "deleting": True})
        same = same or [Create(metadata.same(found.head.directory).path)]
        changes = [
            Set(metadata.path, log.model_copy(update={"deleting": True}).to_bytes(), version),
            Set(metadata.segments_path, head.to_bytes(), found.head_version),
        ]
    with failpoint("log.delete"):
        metadata.registry.commit([*same, *changes])


def _refuse_if_written(metadata: LogMetadata) -> None:
    lock = metadata.registry.find(metadata.lock_path)
    if lock is not None:
        owner = LockDescriptor.from_bytes(lock.data, path=metadata.lock_path).owner
        raise LogBusy(f"log '{metadata.log}' is being written by {owner}: end that first, or delete it by force")


def _refuse_if_inconsistent(found: MetadataCheck) -> None:
    if found.findings:
        raise InconsistentLog(f"log '{found.log.name}': {found.findings[0]}; look into it, or delete it by force")


def _deletes(metadata: LogMetadata, directory: str, version: int, head_version: int) -> list[Operation]:
    """The log's node and everything below, deepest first; what tells it from others of its name goes last but one. The
    versions make it fail if a segment came or went, or the log was made anew."""
    deletes: list[Operation] = []
    versions = {metadata.path: version, metadata.segments_path: head_version}
    same = metadata.same(directory).path

    def below(path: str) -> None:
        for child in sorted(metadata.registry.children(path), key=lambda child: f"{path}/{child}" == same):
            below(f"{path}/{child}")
        deletes.append(Delete(path, versions.get(path, ANY_VERSION)))

    below(metadata.path)
    return deletes
