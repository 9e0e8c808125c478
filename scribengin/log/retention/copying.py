"""A log is copied into another namespace, to whatever store: every entry as it stands, under the same numbers.

So positions hold in both: whoever has read one log up to a place goes on there in the other. The order is

1. the segments' bytes, each durable and compared with what was read, in a directory that no node names;
2. the log's node, marked as one that is being deleted: nobody sees it, and who creates that name removes it;
3. the segments' nodes, in as many transactions as they need;
4. one transaction that takes the marks off, if nobody has written the log meanwhile that was copied.

A crash before 2 leaves a directory that `scribengin registry check` finds, one before 4 a log that is not there.
What is not taken along: who reads the log (registered readers belong to their namespace), segments of which no record
is kept, and of a segment with a compressed copy the one of the two files that readers do not open.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.base.model import node_name
from scribengin.base.names import log_command
from scribengin.errors import LogBusy, LogExists, LogNotFound, LogWriteFailed
from scribengin.log.config import LogConfig
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.metadata.lifecycle import finish_deletion
from scribengin.log.metadata.segments import LogDescriptor, LogMetadata, LogState, SegmentDescriptor, SegmentsHead
from scribengin.log.retention.compression import bodies_of, hold_same_bytes, write_entries
from scribengin.log.store.contract import PlacedEntry, SegmentName, SegmentStore, SegmentView
from scribengin_registry.client import batches
from scribengin_registry.contract import Create, Operation, Set
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The nodes of a log, which may be there or not, and the store of its namespace."""

    metadata: LogMetadata
    store: SegmentStore


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy of a log came to."""

    segments: int
    bytes: int


def copy_log(source: LogPlace, target: LogPlace, config: LogConfig | None, clock: Clock) -> Copied:
    """Make the log `target`, which is not there yet, hold what `source` holds. None: with its configuration.

    Raises LogNotFound, LogExists, LogBusy (the log is being written, or was left unfinished), DamagedEntry,
    LogWriteFailed, ConfigInvalid (the store cannot keep such a log): then nothing was made.
    """
    config = config or source.metadata.descriptor().config
    store = target.store.for_log(config)
    state = source.metadata.whole()
    refuse_unfinished(source.metadata, state)
    _refuse_existing(target)
    log = LogDescriptor(
        name=target.metadata.log,
        directory=f"{node_name(target.metadata.log)}-{uuid.uuid4().hex[:12]}",
        created_ms=clock.now_ms(),
        config=config,
    )
    store.create_log(log.directory)
    try:
        segments = [
            _copied(source, store, segment, log.directory)
            for segment in state.segments
            if segment.segment >= state.head.first.segment
        ]
        _name(source, state, target.metadata, log, segments)
    except BaseException:
        _take_away(target.metadata, store, log)
        raise
    return Copied(len(segments), sum(segment.bytes for segment in segments))


def _take_away(target: LogMetadata, store: SegmentStore, log: LogDescriptor) -> None:
    """Leave nothing of a copy that came to nothing. What somebody else makes under that name stays."""
    there = target.find_descriptor()
    if there is None or there[0].directory != log.directory:
        store.delete_log(log.directory)
    elif there[0].deleting:
        finish_deletion(target, store)


def repair_segments(metadata: LogMetadata, store: SegmentStore) -> int:
    """Let the files of completed segments have all their copies again, where machines that had some are gone: of how
    many segments copies were made. Raises as `SegmentStore.repair`."""
    state = metadata.whole()
    completed = {(segment.segment, segment.epoch) for segment in state.segments if not segment.in_progress}
    repaired: set[int] = set()
    for name in store.names(state.head.directory):
        if (name.segment, name.epoch) in completed:
            with suppress(LogNotFound):  # purged since
                if store.repair(name):
                    repaired.add(name.segment)
    return len(repaired)


def refuse_unfinished(metadata: LogMetadata, state: LogState) -> None:
    """Raises LogBusy."""
    if state.head.in_progress:
        raise LogBusy(
            f"log '{metadata.log}' is being written, or its writer has left segment {state.head.max_segment} "
            "unfinished: end its writer, or complete the segment with "
            f"{log_command(metadata.namespace, 'recover', metadata.log)}, then copy it"
        )


def _refuse_existing(target: LogPlace) -> None:
    metadata = target.metadata
    if metadata.find_descriptor() is not None and not finish_deletion(metadata, target.store):
        raise LogExists(f"log '{metadata.log}' exists already in {metadata.namespace}: choose another name (--as)")


# -- the bytes


def _copied(source: LogPlace, store: SegmentStore, segment: SegmentDescriptor, directory: str) -> SegmentDescriptor:
    """Copy what readers open of a segment, and return how it is described there."""
    view, segment = _opened(source, segment)
    copied = segment.model_copy(
        update={
            "directory": directory,
            "bytes": segment.file_bytes,
            "compressed": None,
            "raw_dropped_ms": None,
            "cold": None,
            "hot_dropped_ms": None,
            "taken_from": None,
            "fsync": True,
        }
    )
    log = source.metadata.log
    try:
        write_copy(log, view, segment, segment.file_bytes, store, copied.raw_file)
        _compare(log, view, store, copied)
    finally:
        view.close()
    return copied


def _opened(source: LogPlace, segment: SegmentDescriptor) -> tuple[SegmentView, SegmentDescriptor]:
    """What readers open of the segment, and the segment as it is by now: its raw file may have gone for a copy."""
    while True:
        try:
            return source.store.open(segment.file), segment
        except LogNotFound:
            now = source.metadata.completed_segment(segment.segment)
            if now is None or now.file == segment.file:
                raise
            segment = now


def write_copy(
    log: str, view: SegmentView, segment: SegmentDescriptor, end: int, store: SegmentStore, name: SegmentName
) -> None:
    """Write the entries in the first `end` bytes of a segment to a file of another store, as they stand: durable when
    this returns. Raises DamagedEntry, LogWriteFailed."""
    appender = store.create(name, fsync=True)
    try:
        write_entries(appender, _stored(log, view, segment, end), lambda: False)
        appender.make_durable()
    finally:
        appender.close()


def _stored(log: str, view: SegmentView, segment: SegmentDescriptor, end: int) -> Iterator[PlacedEntry]:
    for place, body, _ in bodies_of(log, view, segment, end):
        yield PlacedEntry(place.offset, place.header, EncodedEntry.of_stored(place.header, body))


def _compare(log: str, view: SegmentView, store: SegmentStore, copied: SegmentDescriptor) -> None:
    """Raises LogWriteFailed unless both hold the same bytes."""
    written = store.open(copied.raw_file, from_disk=True)
    try:
        if not hold_same_bytes(view, written, copied.bytes):
            raise LogWriteFailed(
                f"log '{log}': segment {copied.segment} does not hold in {store.location(copied.raw_file)} what "
                "was copied; nothing was kept of the copy: check the machine's memory and disk"
            )
    finally:
        written.close()


# -- the nodes


def _name(
    source: LogPlace, state: LogState, target: LogMetadata, log: LogDescriptor, segments: list[SegmentDescriptor]
) -> None:
    """Let everybody see the copy, if the log still is what it was when the copy began."""
    head = _head_of(state.head, log, segments)
    path, segments_path, registry = target.path, target.segments_path, target.registry
    hidden = {"deleting": True}
    try:
        with failpoint("log.copy_begin"):
            registry.commit(
                [
                    Create(path, log.model_copy(update=hidden).to_bytes()),
                    Create(target.same(log.directory).path),
                    Create(segments_path, head.model_copy(update=hidden).to_bytes()),
                ]
            )
        nodes: list[Operation] = [Create(f"{segments_path}/{one.node}", one.to_bytes()) for one in segments]
        for batch in batches(nodes):
            with failpoint("log.copy_segments"):
                registry.commit([target.same(log.directory), *batch])
        now, _version = source.metadata.head()
        if (now.max_segment, now.in_progress, now.first) != (state.head.max_segment, False, state.head.first):
            raise LogBusy(
                f"log '{source.metadata.log}' has changed while it was copied: end what uses it, and try again"
            )
        with failpoint("log.copy_end"):
            shown = [Set(path, log.to_bytes(), 0), Set(segments_path, head.to_bytes(), 0)]
            registry.commit([target.same(log.directory), *shown])
    except OutcomeUnknown:
        registry.sync(path)
        if not _is_named(target, log):
            raise
    except (NodeExists, NodeMissing, VersionConflict):
        raise LogExists(
            f"log '{log.name}' was made in {target.namespace} by somebody else just now: look at it"
        ) from None


def _head_of(head: SegmentsHead, log: LogDescriptor, segments: list[SegmentDescriptor]) -> SegmentsHead:
    kept = {segment.segment for segment in segments}
    return head.model_copy(
        update={
            "directory": log.directory,
            "begin": min(kept, default=head.max_segment + 1),
            "bytes": sum(segment.bytes for segment in segments),
            "senders": head.senders if head.senders in kept else 0,
            "revisions": 0,
            "revised": (),
            "cold_places": (),
            "cold_tokens": {},
        }
    )


def _is_named(target: LogMetadata, log: LogDescriptor) -> bool:
    """Whether the copy is the log of that name, for everybody. Raises what the registry raises."""
    try:
        return target.descriptor().directory == log.directory
    except LogNotFound:
        return False
