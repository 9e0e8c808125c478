"""Mistakes of protocol in the log store, put in one at a time: what simulations on logs are there to find.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from scribengin.base.failpoints import failpoint
from scribengin.base.threads import pause
from scribengin.connectors.log.sink import LogSinkWriter
from scribengin.log import DLSN
from scribengin.log.format.records import control_entry
from scribengin.log.format.staged import StagedRange, control_payload
from scribengin.log.metadata import writer_lock
from scribengin.log.metadata.segments import LogMetadata, SegmentsHead, WriterEpoch
from scribengin.log.retention.holds import RegisteredReaders
from scribengin.log.scan import recovery, unfinished
from scribengin.log.write.segment_chain import SegmentChain
from scribengin.log.write.writer import LogWriter
from scribengin.testing.memory.segments import MemoryAppender, MemorySegmentStore
from scribengin.testing.simulation.plan import Fault, FaultKind, Plan, Storage, drawn
from scribengin_registry.contract import Set
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, RegistryUnreachable, VersionConflict
from tests.property.simulation_mistakes import Mistake


def look_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Recovery reads the segment, and fences it then: its writer acknowledges more in between."""

    def end_of(log: str, store: Any, segment: Any, start_txid: int, lookup: Any) -> Any:
        with closing(store.open(segment.file)) as view:
            found, tail = unfinished.scan(view, segment, start_txid=start_txid), view.tail()
        store.fence(segment.file)
        return unfinished.decide(segment, found, tail, recovery._looked_up(segment, found, lookup))

    patch.setattr(recovery, "_end_of", end_of)


def never_fence_the_segment(patch: pytest.MonkeyPatch) -> None:
    """Recovery relies on the lock and the epoch alone: whoever wrote the segment can still append to it."""
    patch.setattr(MemorySegmentStore, "fence", lambda _self, _name: None)


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    """A group is acknowledged as soon as it is written; the disk has it when it likes."""

    def sync(self: Any) -> None:
        written, self._fsync = self._fsync, False
        try:
            real(self)
        finally:
            self._fsync = written

    real = MemoryAppender.sync
    patch.setattr(MemoryAppender, "sync", sync)


def show_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Readers are shown a group before it is durable."""

    def sync(self: Any, appender: Any) -> None:
        if not self.staging:
            self._show(appender)
        real(self, appender)

    real = SegmentChain._sync
    patch.setattr(SegmentChain, "_sync", sync)


def new_names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A segment's file is durable, and its name is not."""
    patch.setattr(MemorySegmentStore, "_sync_directory", lambda _self, _path: None)


def complete_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """Recovery completes a segment with what it has read, and does not make that durable."""
    patch.setattr(MemorySegmentStore, "make_durable", lambda _self, _name: None)


def roll_while_staged(patch: pytest.MonkeyPatch) -> None:
    """A segment that is due is completed, whether a round is staged in it or not."""

    def prepare(self: Any) -> StagedRange | None:
        staged = real(self)
        if staged is not None and self._segment is not None and self._roll_is_due(self._segment):
            self._roll(self._segment)
        return staged

    real = SegmentChain.prepare
    patch.setattr(SegmentChain, "prepare", prepare)


def truncate_past_a_reader(patch: pytest.MonkeyPatch) -> None:
    """Truncation and retention ask no registered reader."""
    patch.setattr(RegisteredReaders, "slowest", lambda _self: None)


def hold_back_for_the_fastest_reader(patch: pytest.MonkeyPatch) -> None:
    """A log is kept for the reader that is furthest ahead, of several."""

    def fastest(self: RegisteredReaders) -> Any:
        return max(self.positions().items(), key=lambda item: item[1], default=None)

    patch.setattr(RegisteredReaders, "slowest", fastest)


def readers_stand_where_the_log_ends(patch: pytest.MonkeyPatch) -> None:
    """A log is held back only for what is not written yet, and not for what is not committed."""

    def position(self: Any, _reader: Any) -> DLSN:
        return DLSN(self._metadata.head()[0].max_segment, 0, 0)

    patch.setattr(RegisteredReaders, "_position", position)


def complete_twice(patch: pytest.MonkeyPatch) -> None:
    """A writer that takes over completes the last round, whether it is complete or not."""

    def recover(self: Any, committed: StagedRange | None) -> None:
        real(self, committed)
        if committed is not None and committed.directory == self._owner.directory:
            with self._exclusively() as chain:
                segment, appender = chain._open_segment()
                payload = control_payload(committed.first_entry, committed.last_entry)
                chain._write(segment, appender, [control_entry(payload, chain.last_txid)])
                chain._sync(appender)
                chain._show(appender)

    real = LogWriter.recover
    patch.setattr(LogWriter, "recover", recover)


def stage_again_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    """A new owner rolls back what is staged before it looks which of it was committed."""

    def recover(self: Any, committed: StagedRange | None) -> None:
        with self._calling:
            self.rollback_staged()
        real(self, committed)

    def looked_up(_segment: Any, _found: Any, _lookup: Any) -> None:
        return None

    real = LogWriter.recover
    patch.setattr(LogWriter, "recover", recover)
    patch.setattr(recovery, "_looked_up", looked_up)


def keep_whatever_is_staged(patch: pytest.MonkeyPatch) -> None:
    """Recovery keeps what the writer before has staged, whatever the commit log says."""

    def decide(segment: Any, found: Any, tail: Any, named: Any) -> Any:
        end = real(segment, found, tail, named)
        return found.staged.end if found.staged is not None and not isinstance(end, unfinished.Refusal) else end

    real = unfinished.decide
    patch.setattr(recovery, "decide", decide)


def guess_that_a_change_was_applied(patch: pytest.MonkeyPatch) -> None:
    """The reply to a change of a log's metadata is lost, and it is taken for done."""
    _guess(patch, lambda after: after)


def guess_that_a_change_was_not_applied(patch: pytest.MonkeyPatch) -> None:
    """The reply to a change of a log's metadata is lost, and it is taken for never sent: a roll is put off."""

    def not_sent(_after: SegmentsHead) -> SegmentsHead:
        raise RegistryUnreachable("the change is taken for never sent")

    _guess(patch, not_sent)


def _guess(patch: pytest.MonkeyPatch, guess: Callable[[SegmentsHead], SegmentsHead]) -> None:
    def change(self: Any, owner: WriterEpoch | None, wanted: Any) -> SegmentsHead:
        head, version = self.head()
        if owner is not None:
            owner.check(self.log, head)
        after, operations = wanted(head)
        try:
            with failpoint("log.metadata"):
                self.registry.commit([Set(self.segments_path, after.to_bytes(), version), *operations])
        except OutcomeUnknown:
            return guess(after)
        except (VersionConflict, NodeMissing, NodeExists):
            return real(self, owner, wanted)
        return after  # type: ignore[no-any-return]  # what `wanted` has made of the head

    real = LogMetadata.change
    patch.setattr(LogMetadata, "change", change)


def guess_that_the_lock_was_taken(patch: pytest.MonkeyPatch) -> None:
    """The reply to taking a log's lock is lost, and after a while without a word it is taken for had."""

    def settle(_metadata: LogMetadata, owner: WriterEpoch) -> WriterEpoch:
        pause(1.5)
        return owner

    patch.setattr(writer_lock, "_settle", settle)


def change_without_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A writer changes the log's metadata whoever has the log."""
    patch.setattr(WriterEpoch, "check", lambda _self, _log, _head: None)


def look_up_staged_rounds_as_a_stale_owner(patch: pytest.MonkeyPatch) -> None:
    """A sink's owner that comes late takes the log, and decides what is staged there by what it knew."""
    patch.setattr(LogSinkWriter, "_refuse_if_stale", lambda _self: None)


LASTING: tuple[FaultKind, ...] = ("stall", "zombie")
Where = tuple[tuple[FaultKind, str], ...]


class Aim:
    """The seed that caught a mistake last, and the faults that it does harm at, which a plan has besides its own."""

    def __init__(self, seed: int, *where: tuple[FaultKind, str]) -> None:
        self.seed = seed
        self.where = where


LOG_MISTAKES: dict[Mistake, Aim] = {
    acknowledge_before_sync: Aim(0, ("power off", "log.segment_sync:after")),
    show_before_sync: Aim(7, ("power off", "log.tail_write:after"), ("power off", "log.segment_sync:before")),
    new_names_are_not_synced: Aim(0, ("power off", "log.segment_sync:after")),
    complete_what_is_not_durable: Aim(
        2, ("power off", "log.recovery_complete:after"), ("kill", "log.segment_write:after")
    ),
    roll_while_staged: Aim(18),
    truncate_past_a_reader: Aim(1),
    readers_stand_where_the_log_ends: Aim(23),
    complete_twice: Aim(1, ("kill", "round.commit:before")),
    stage_again_what_was_committed: Aim(0, ("kill", "round.commit:after")),
    keep_whatever_is_staged: Aim(0, ("kill", "round.commit:before")),
    guess_that_a_change_was_applied: Aim(0, ("lose request", "log.segment_roll:before")),
    guess_that_a_change_was_not_applied: Aim(2, ("lose reply", "log.segment_roll:before")),
}

RARE_LOG_MISTAKES: dict[Mistake, Aim] = {
    never_fence_the_segment: Aim(16, ("stall", "log.segment_write:before")),
    change_without_the_epoch: Aim(43, ("stall", "log.segment_roll:before"), ("stall", "log.metadata:before")),
    look_before_the_fence: Aim(
        4,
        ("zombie", "log.segment_write:before"),
        ("zombie", "log.tail_write:after"),
        ("stall", "log.fence:before"),
        ("stall", "log.fence:before"),
    ),
    look_up_staged_rounds_as_a_stale_owner: Aim(
        58,
        ("zombie", "ownership.fence:after"),
        ("kill", "round.commit:after"),
        ("kill", "log.control_write:before"),
    ),
    guess_that_the_lock_was_taken: Aim(
        77, *(("lose request", "log.lock:before"),) * 4, *(("kill", "log.segment_write:after"),) * 3
    ),
}
"""What one schedule in a hundred catches, though it is aimed at it."""


def aimed(seed: int, where: Where, storage: Storage = "logs", stops: Sequence[str] = ()) -> Plan:
    """The plan of a seed, with faults that are likely to meet a mistake."""
    chance, plan = random.Random(seed), drawn(seed, storage, stops, rewound=False, lagging=False)
    faults = tuple(Fault(kind, at, chance.randint(1, 8), 3.5 if kind in LASTING else 0.0) for kind, at in where)
    return replace(plan, records=30, faults=(*plan.faults, *faults))
