"""Bringing a segment that was left unfinished to its end: fence, look, decide (scan/unfinished.py), make durable,
complete.

Every step may be the last one before a crash. Fencing is idempotent; deciding changes nothing; completing is one
registry transaction that fails for anybody whose epoch is not the log's. So the next writer simply starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitLog, fence_commit_log
from scribengin.base.failpoints import failpoint
from scribengin.base.model import plain_path
from scribengin.base.names import log_command
from scribengin.errors import DescriptorUnreadable, LogNotFound, RecoveryRefused
from scribengin.log.format.staged import StagedRange
from scribengin.log.metadata.segments import LogMetadata, LogState, SegmentDescriptor, SegmentsHead, WriterEpoch
from scribengin.log.scan.unfinished import Found, Refusal, decide, scan
from scribengin.log.store.contract import SegmentStore, Tail
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, VersionConflict

StagedLookup = Callable[[SegmentDescriptor], StagedRange | None]
"""Says which staged range of an unfinished segment has committed. Whoever it is has fenced the commit log before it
looked."""


def commit_log_lookup(registry: Registry, log: str, namespace: str) -> StagedLookup:
    """The lookup for whoever does not own the round: fence the commit log that the segment names, and believe it."""

    def lookup(segment: SegmentDescriptor) -> StagedRange | None:
        if segment.commit_log is None:
            raise RecoveryRefused(f"log '{log}', segment {segment.segment} has staged entries and names no commit log")
        path = commit_log_path(segment.commit_log, namespace)
        found = _fenced(registry, path)
        if found.prepared is not None:
            decision = found.prepared.decision
            raise RecoveryRefused(
                f"log '{log}', segment {segment.segment}: round {decision.round} of task {found.task} of "
                f"{found.dataflow} is staged and prepared, and '{decision.coordinator}' decides about it; start "
                f"{found.dataflow}, which asks there, or delete it, which does the same"
            )
        committed = found.committed
        if committed is None or committed.kind != "log":
            return None
        return StagedRange.from_json(committed.data, path=path)

    return lookup


def commit_log_path(commit_log: str, namespace: str) -> str:
    """The node of a commit log that a segment names. A path without a leading slash begins at `namespace`, the
    namespace's node, so that it is the same for sessions with different roots."""
    return commit_log if commit_log.startswith("/") else f"{namespace}/{commit_log}"


def recover_unfinished(
    metadata: LogMetadata, store: SegmentStore, owner: WriterEpoch, state: LogState, clock: Clock, lookup: StagedLookup
) -> SegmentsHead:
    """Complete the segment in progress, if there is one, and return the head. Raises RecoveryRefused, LogWriteFailed,
    Fenced."""
    segment = state.in_progress
    if segment is None:
        return state.head
    end = _end_of(metadata, store, segment, state.head.last_txid, lookup)
    store.make_durable(segment.file)
    with failpoint("log.recovery_complete"):
        return metadata.complete_segment(owner, completed(segment, end, clock))


def completed(segment: SegmentDescriptor, end: Tail, clock: Clock) -> SegmentDescriptor:
    """`segment` as it came to be, ending at `end`."""
    return segment.model_copy(
        update={
            "completed_ms": clock.now_ms(),
            "bytes": end.end,
            "entries": end.entries,
            "records": end.sequence - segment.start_sequence,
            "last_txid": end.last_txid,
        }
    )


def _end_of(
    metadata: LogMetadata, store: SegmentStore, segment: SegmentDescriptor, start_txid: int, lookup: StagedLookup
) -> Tail:
    log = metadata.log
    try:
        with closing(store.open(segment.file)) as cached:  # before anything is made beside a file that is not there
            store.fence(segment.file)
            tail = cached.tail()
        store.make_durable(segment.file)
        view = store.open(segment.file, from_disk=True)
    except LogNotFound as error:
        raise RecoveryRefused(
            f"log '{log}', segment {segment.segment}: {error}; bring the file back, or, if the registry was restored "
            f"from a backup, look for what is there by {log_command(metadata.namespace, 'recover', log)}"
        ) from None
    try:
        found = scan(view, segment, start_txid=start_txid)
        end = decide(segment, found, tail, _looked_up(segment, found, lookup))
    finally:
        view.close()
    if isinstance(end, Refusal):
        raise RecoveryRefused(
            f"log '{log}', segment {segment.segment} ({store.location(segment.file)}): {end.reason}; "
            "nothing was cut: bring the file back from a copy, or delete the log"
        )
    return end


def _looked_up(segment: SegmentDescriptor, found: Found, lookup: StagedLookup) -> StagedRange | None:
    """Ask the lookup only when it matters: if nothing was ever to be staged here, or nothing is and nobody can tell."""
    if found.staged is None and segment.commit_log is None:
        return None
    try:
        return lookup(segment)
    except RecoveryRefused:
        if found.staged is None:
            return None
        raise


def _fenced(registry: Registry, path: str) -> CommitLog:
    def attempt() -> CommitLog:
        try:
            with failpoint("log.commit_log_fence"):
                return fence_commit_log(registry, path)
        except (NodeMissing, DescriptorUnreadable) as error:
            raise RecoveryRefused(
                f"the commit log {plain_path(path)} of staged entries cannot be read: {error}; restore it"
            ) from None

    # It was just committed, or rewritten by a lost request: look again.
    what = f"the commit log {plain_path(path)} keeps changing: its task is running; stop it, or let it write the log"
    return win_race(attempt, races=(VersionConflict,), registry=registry, exhausted=lambda: RecoveryRefused(what))
