"""Giving up the beginning of a log: truncation says where it begins, purging removes the segments before that.

Truncation is metadata, exact to the record. Purging takes whole segments, from the first on, and stops at the first one
that holds anything that is kept: their nodes in one transaction that checks the version of the log's head, their files
after it, those in cold storage last. A crash between leaves files that no node names; numbers only grow, so whoever
purges next removes whatever is older than the first segment there is. Readers that have such a file open in the store
read on in it.

Neither goes past a registered reader (retention/holds.py), unless a person forces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from scribengin.base.clock import Clock
from scribengin.errors import DamagedEntry, LogError, LogNotFound, PositionTruncated, ReaderBehind
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.metadata.names import check_directory
from scribengin.log.metadata.segments import LogMetadata, LogOperator, LogState, SegmentDescriptor, SegmentsHead
from scribengin.log.metrics import LogMetrics
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.retention.compression import drop_raw_segments, is_dead_copy
from scribengin.log.retention.holds import RegisteredReaders, check_visible
from scribengin.log.retention.offloading import dead_cold, drop_hot_segments, failures_counted
from scribengin.log.store.contract import SegmentName, SegmentStore
from scribengin_registry.client import BATCH_OPERATIONS_MAX, batches
from scribengin_registry.contract import Delete, Operation

_MS_AN_HOUR = 3_600_000
SENDERS_HOURS = 24
"""So long what is known of senders is kept, once segments follow that others have written."""

OpenCatalog = Callable[[], LogCatalog]


@dataclass(frozen=True, slots=True)
class Purged:
    """What went while a log was purged: how many segments of its list, and how many bytes of files."""

    segments: int
    bytes: int


def truncate_log(
    metadata: LogMetadata, open_catalog: OpenCatalog, before: DLSN, *, force: bool, directory: str | None = None
) -> bool:
    """Let the log begin at `before`, and say whether that changed anything. With a `directory`, only the log of that
    one.

    Raises LogNotFound, InconsistentLog (it has no such position), ReaderBehind.
    """
    changed = False

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        nonlocal changed
        with closing(open_catalog()) as catalog:
            if before <= head.first:  # another was faster; or this very change was applied, and its reply lost
                changed = changed and head.first == before
                return head, []
            check_visible(catalog, before)
            given_up_to = _given_up_to(catalog, head, before)
        slowest = None if force else RegisteredReaders(metadata).slowest()
        if slowest is not None and slowest[1] < given_up_to:
            raise ReaderBehind(
                f"log '{metadata.log}': reader '{slowest[0]}' stands at {slowest[1]} and still wants what lies before "
                f"{before}; wait for it, unregister it, or truncate by force"
            )
        changed = True
        return head.truncated(before, given_up_to), []

    now = metadata.head()[0]
    check_directory(metadata.log, directory, now.directory)
    if before <= now.first:
        return False
    metadata.change(LogOperator(now.directory), change)
    return changed


def purge_log(
    metadata: LogMetadata,
    store: SegmentStore,
    open_catalog: OpenCatalog,
    clock: Clock,
    state: LogState,
    *,
    sweep: bool = True,
    metrics: LogMetrics | None = None,
) -> Purged:
    """Remove the segments that lie wholly before the first record kept, or are older than the log's configuration wants
    them, files in the store that it wants only as their compressed or cold copy, and with `sweep` (every file is
    looked at) what earlier purges have left. Idempotent; anybody may do it, at any time, several at once.

    Raises LogNotFound, InconsistentLog, LogWriteFailed, StoreUnreachable (a file could not be removed: the next purge
    tries again), DamagedEntry (a copy does not hold: what it is of is kept, all else was done). `metrics` hears what
    became of cold copies.
    """
    before = state.head.begin
    freed = 0
    cold: list[SegmentName] = []
    while _droppable_now(metadata, state, clock):
        dropped, state = _drop(metadata, open_catalog, clock, state)
        freed += sum(store.remove(name) for segment in dropped for name in _files(segment))
        cold += [segment.cold_file for segment in dropped if segment.cold_file is not None]
    now_ms, config = clock.now_ms(), metadata.descriptor().config

    def remove(names: Iterable[SegmentName]) -> None:
        nonlocal freed
        for name in names:
            freed += store.remove(name)

    def dead() -> Iterable[SegmentName]:
        return [name for name in store.names(state.head.directory) if is_dead(name, state, now_ms)] if sweep else []

    def drop_hot() -> None:
        with failures_counted(metrics):
            drop_hot_segments(metadata, store, state, config, now_ms, metrics)

    def dead_in_cold() -> list[SegmentName]:
        if not sweep or not state.head.cold_places:
            return []
        return list(dead_cold(metadata, store, metadata.state(state)))  # which dropping has changed

    all_tried(
        lambda: drop_raw_segments(metadata, store, state, config, now_ms),
        drop_hot,
        lambda: remove(dead()),
        lambda: remove(cold),
        lambda: remove(dead_in_cold()),
    )
    return Purged(state.head.begin - before, freed)


def all_tried(*steps: Callable[[], object]) -> None:
    """Take all steps, in order, also if one fails: the first failure is raised in the end."""
    failure: LogError | None = None
    for step in steps:
        try:
            step()
        except LogError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _files(segment: SegmentDescriptor) -> list[SegmentName]:
    """Those in the store."""
    return [segment.raw_file] + ([] if segment.copy_file is None else [segment.copy_file])


def droppable(state: LogState, config: LogConfig, slowest: DLSN | None, now_ms: int) -> tuple[SegmentDescriptor, ...]:
    """The segments, from the first on, that a purge removes next. `slowest` is where the slowest registered reader
    stands.

    The one that says which numbers of senders are in the log is kept, though all its records were truncated, until
    retention takes it; for SENDERS_HOURS only, once others follow, since it keeps those, too. Retention goes by the
    time at which a segment was completed, as the wall clock had it then and has it now.
    """
    dropped = []
    for segment in state.segments:
        if segment.completed_ms is None:
            break
        read = slowest is None or _lies_before(segment, slowest)
        expired = (
            config.retention_hours is not None
            and not config.explicit_truncation
            and segment.completed_ms + config.retention_hours * _MS_AN_HOUR <= now_ms
        )
        truncated = _lies_before(segment, state.head.first) and not _says_of_senders(segment, state.head, now_ms)
        if not (truncated or (expired and read)):
            break
        dropped.append(segment)
        if len(dropped) == BATCH_OPERATIONS_MAX:
            break
    return tuple(dropped)


def is_dead(name: SegmentName, state: LogState, now_ms: int) -> bool:
    """Whether nobody will ever open that file again, whatever happens after `state` was read."""
    if name.segment < state.head.begin:
        return True
    listed = state.find(name.segment) if name.copy or state.head.revisions else None  # else it has no copies
    return listed is not None and is_dead_copy(name, listed, now_ms)


def _drop(
    metadata: LogMetadata, open_catalog: OpenCatalog, clock: Clock, state: LogState
) -> tuple[Sequence[SegmentDescriptor], LogState]:
    """Remove segments from the list, as many as one transaction takes: these, and the log's state now."""
    dropped: list[SegmentDescriptor] = []

    def change(_head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        nonlocal dropped, state
        state = metadata.state(state)  # if it is not the one whose version is checked, the transaction fails
        # Of a transaction that failed all are still listed, and a reader that has gone back may want their files.
        dropped = [segment for segment in dropped if segment.segment < state.head.begin]
        found = _droppable_now(metadata, state, clock)
        if not found:
            return state.head, []
        dropped += found
        with closing(open_catalog()) as catalog:
            return _head_without(found, state.head, catalog), _deletes(metadata, found)

    metadata.change(LogOperator(state.head.directory), change)
    return dropped, metadata.state(state)


def _deletes(metadata: LogMetadata, segments: Sequence[SegmentDescriptor]) -> list[Operation]:
    return [Delete(f"{metadata.segments_path}/{segment.node}") for segment in segments]


def _droppable_now(metadata: LogMetadata, state: LogState, clock: Clock) -> Sequence[SegmentDescriptor]:
    slowest = RegisteredReaders(metadata).slowest()
    config = metadata.descriptor().config
    found = droppable(state, config, None if slowest is None else slowest[1], clock.now_ms())
    return found[: len(next(batches(_deletes(metadata, found)), []))]  # as many as one transaction takes


def _head_without(dropped: Sequence[SegmentDescriptor], head: SegmentsHead, catalog: LogCatalog) -> SegmentsHead:
    first = DLSN(dropped[-1].segment + 1, 0, 0)
    after = head.without(dropped)
    return after if head.first >= first else after.truncated(first, _given_up_to(catalog, head, first))


def _given_up_to(catalog: LogCatalog, head: SegmentsHead, first: DLSN) -> DLSN:
    """The position behind the last record before `first`: whoever stands there loses nothing when the log begins with
    `first`. If damage hides it, `first` itself: then a reader that has read everything may be told otherwise."""
    try:
        end = catalog.sequence_at(first)
        if end == catalog.sequence_at(head.first):
            return head.given_up_to
        last = catalog.position_of(end - 1)
    except (DamagedEntry, LogNotFound, PositionTruncated):
        return first
    return DLSN(last.segment, last.entry, last.slot + 1)


def _says_of_senders(segment: SegmentDescriptor, head: SegmentsHead, now_ms: int) -> bool:
    """Whether a completed segment is what a writer goes by that takes the numbers of senders."""
    if segment.segment != head.senders:
        return False
    is_last = segment.segment == head.max_segment - head.in_progress
    return is_last or now_ms < (segment.completed_ms or 0) + SENDERS_HOURS * _MS_AN_HOUR


def _lies_before(segment: SegmentDescriptor, position: DLSN) -> bool:
    """Whether the whole of a completed segment lies before `position`."""
    return (position.segment, position.entry) >= (segment.segment + 1, 0) or (
        position.segment == segment.segment and position.entry >= segment.entries
    )
