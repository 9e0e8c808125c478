"""The segments that one writer writes, one after the other. Not thread-safe; after any exception good only for
`abandon`.

A segment is made when there is something to write, so a writer that writes nothing leaves nothing. Its file exists
before its node does, and is announced before that: a crash between leaves a file that no node names, and the next
writer sweeps it away.

A segment that is large or old enough is *rolled*: the file of the next is made, then one transaction completes the old
segment and registers the next. What fails before that transaction was sent (no room for a file, no registry just now)
changes nothing: the old segment is used on, and the roll is tried again later. Once it was sent and its outcome cannot
be learnt, the old segment may be completed, and what is appended to it lost: then the writer ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.errors import EndOfStream, InconsistentLog, LogError, LogWriteFailed, ScribenginError
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import GROUP_ENTRIES_MAX, EncodedEntry, EntryType
from scribengin.log.format.records import control_entry
from scribengin.log.format.staged import StagedRange, control_payload
from scribengin.log.metadata.segments import LogDescriptor, LogMetadata, SegmentDescriptor, SegmentsHead, WriterEpoch
from scribengin.log.metrics import LogMetrics
from scribengin.log.scan.recovery import completed
from scribengin.log.store.contract import PlacedEntry, SegmentAppender, SegmentStore, Tail
from scribengin_registry.contract import SessionState
from scribengin_registry.errors import RegistryUnreachable, SessionLost

_ROLL_RETRY_S = 5.0
"""How long a roll that failed is left alone."""
Mark = Callable[[bool], EncodedEntry | None]
"""Makes what a group begins with, if anything; told whether the segment begins with it, too."""


class BegunAppend(NamedTuple):
    """A group that is written and not durable yet."""

    appender: SegmentAppender
    first: DLSN
    """Where the first record of its first entry stands; the others follow."""
    entries: int
    written_s: float


class SegmentChain:
    """Appends groups of entries, and stages rounds, as the owner of a log."""

    def __init__(
        self,
        metadata: LogMetadata,
        store: SegmentStore,
        owner: WriterEpoch,
        log: LogDescriptor,
        head: SegmentsHead,
        *,
        commit_log: str | None,
        clock: Clock,
        senders: bool = False,
    ) -> None:
        """With `senders`, segments begin with what is known of senders, and say so."""
        self._metadata = metadata
        self._store = store
        self._owner = owner
        self._log = log
        self._clock = clock
        self.metrics = LogMetrics(metadata.namespace, log.name)
        self._head = head
        self._commit_log = commit_log
        self._senders = senders
        self._segment: SegmentDescriptor | None = None
        self._appender: SegmentAppender | None = None
        self._spare: SegmentAppender | None = None
        """Of the segment that follows: a roll made its file and got no further."""
        self._begun_s = 0.0
        self._roll_not_before_s = 0.0
        self._roll_failure: ScribenginError | None = None
        self._completed = False
        self._visible = self._written = Tail(0, 0, head.last_txid, head.next_sequence)
        self._group_entries = 0
        self._staged_first: Tail | None = None
        self._prepared: StagedRange | None = None

    @property
    def last_txid(self) -> int:
        """Of the last record written, staged ones included."""
        return self._written.last_txid

    @property
    def staging(self) -> bool:
        """Whether anything is staged that is neither committed nor rolled back."""
        return self._staged_first is not None

    @property
    def roll_failure(self) -> ScribenginError | None:
        """Why the last roll was put off, while it is."""
        return self._roll_failure

    def take_completed(self) -> bool:
        """Whether a segment was completed, other than by the writer's end, since this was last asked."""
        completed, self._completed = self._completed, False
        return completed

    @property
    def quick(self) -> bool:
        """Whether the next group takes but a write and a sync of a file. A hint, while somebody else uses the chain."""
        segment, appender = self._segment, self._appender
        if segment is None or appender is None or appender.file_to_sync() is None:
            return False
        return not self._roll_is_due(segment)

    def begin_append(self, entries: Sequence[EncodedEntry], mark: Mark | None = None) -> BegunAppend:
        """Write one group, which `end_append` makes durable: nothing else may be done before.

        What `mark` makes comes before the entries. Raises LogWriteFailed, Fenced, and what the registry raises.
        """
        segment, appender = self._open_segment()  # asked once: it may come to another one by the next look at the clock
        made = None if mark is None else mark(self._written.entries == 0)
        begin = [] if made is None else [made]
        first_entry = self._written.entries + len(begin)
        self._write(segment, appender, [*begin, *entries])
        first = DLSN(segment.segment, first_entry, 0)
        return BegunAppend(appender, first, len(entries), self._clock.monotonic_s())

    def end_append(self, begun: BegunAppend, fdatasync: Callable[[int], object] | None = None) -> list[DLSN]:
        """Make it durable, with `fdatasync` as `SegmentAppender.synced_by`, and visible, and return where each entry's
        first record stands. Raises LogWriteFailed, Fenced."""
        self._sync(begun.appender, fdatasync, begun.written_s)
        self._show(begun.appender)
        segment, entry, _slot = begun.first
        return [DLSN(segment, entry + at, 0) for at in range(begun.entries)]

    def stage(self, entries: Sequence[EncodedEntry]) -> None:
        """Write entries that nobody sees. Raises as `begin_append`, and LogError after `prepare`."""
        if self._prepared is not None:
            raise LogError(f"log '{self._log.name}': the staged round is prepared; commit it or roll it back first")
        if self._staged_first is None:
            self._open_segment()
            self._staged_first = self._written
        segment, appender = self._opened()
        for start in range(0, len(entries), GROUP_ENTRIES_MAX):
            part = entries[start : start + GROUP_ENTRIES_MAX]
            if self._group_entries + len(part) > GROUP_ENTRIES_MAX:
                self._sync(appender)
            with failpoint("log.stage_write"):
                self._write(segment, appender, [entry.as_type(EntryType.STAGED) for entry in part])

    def prepare(self) -> StagedRange | None:
        """Make what is staged durable, and say what it is. None: nothing is. Raises as `begin_append`."""
        if self._staged_first is None or self._prepared is not None:
            return self._prepared
        segment, appender = self._opened()
        with failpoint("log.stage_sync"):
            self._sync(appender)
            if not segment.fsync:
                appender.make_durable()  # what a round commits is durable, whatever else of the log is
        self._prepared = StagedRange(
            log=self._log.name,
            directory=self._log.directory,
            segment=segment.segment,
            first_entry=self._staged_first.entries,
            last_entry=self._written.entries - 1,
            records=self._written.sequence - self._staged_first.sequence,
            bytes=self._written.end - self._staged_first.end,
        )
        return self._prepared

    def commit_staged(self, named: StagedRange) -> None:
        """Show readers the round `named`. Idempotent. Raises as `begin_append`, and InconsistentLog if it was rolled
        back."""
        if self._prepared is None or self._prepared != named:
            self._check_committed(named)
            return
        segment, appender = self._opened()
        payload = control_payload(named.first_entry, named.last_entry)
        with failpoint("log.control_write"):
            self._write(segment, appender, [control_entry(payload, self._written.last_txid)])
        with failpoint("log.control_sync"):
            self._sync(appender)
        with failpoint("log.round_show"):
            self._show(appender)
        self._staged_first = self._prepared = None

    def rollback_staged(self) -> None:
        """Drop what is staged: the segment ends before it. Raises as `complete`."""
        if self._staged_first is not None:
            self._staged_first = self._prepared = None
            self.complete()

    def complete(self, *, release: bool = False) -> None:
        """Complete the open segment, if there is one; with `release`, give the log's lock back in the same
        transaction.

        Raises Fenced, LogWriteFailed, and what the registry raises.
        """
        if self._segment is None:
            return
        end = self._end_of(*self._opened())
        with failpoint("log.segment_complete"):
            self._head = self._metadata.complete_segment(self._owner, end, release=release)
        self._leave_segment(end)
        self._completed = not release

    def seal(self) -> None:
        """Complete the open segment, and let nothing follow. Raises as `complete`."""
        self.complete()
        self._head = self._metadata.seal(self._owner)

    def abandon(self) -> None:
        """Close the segment's file as it is. What is in it, the next writer judges. Idempotent."""
        self.metrics.close()
        for appender in (self._appender, self._spare):
            if appender is not None:
                appender.close()
        self._segment = self._appender = self._spare = None

    def _opened(self) -> tuple[SegmentDescriptor, SegmentAppender]:
        if self._segment is None or self._appender is None:
            raise LogError(f"log '{self._log.name}': the writer has no open segment; open a new writer")
        return self._segment, self._appender

    def _open_segment(self) -> tuple[SegmentDescriptor, SegmentAppender]:
        if self._segment is None:
            if self._head.end_of_stream:
                raise EndOfStream(f"log '{self._log.name}' was sealed: nothing can be written to it")
            segment, appender = self._following()
            with failpoint("log.segment_register"):
                self._head = self._metadata.create_segment(self._owner, segment)
            self._enter_segment(segment, appender)
        elif self._roll_is_due(self._segment):
            try:
                self._roll(self._segment)
            except (RegistryUnreachable, SessionLost) as error:  # nothing was sent
                self._postpone_roll(error)
        return self._opened()

    def _roll_is_due(self, segment: SegmentDescriptor) -> bool:
        size, age = self._log.config.segment_bytes_max, self._log.config.segment_age_max_s
        large = size is not None and self._written.end >= size
        if not large and (age is None or self._written.sequence == segment.start_sequence):
            return False
        now_s = self._clock.monotonic_s()
        return (large or (age is not None and now_s >= self._begun_s + age)) and now_s >= self._roll_not_before_s

    def _roll(self, segment: SegmentDescriptor) -> None:
        """Complete the open segment and begin the next: both, or neither and it is tried again later."""
        if self._metadata.registry.state is not SessionState.CONNECTED:  # asking would make every writer wait
            raise RegistryUnreachable(f"log '{self._log.name}': no registry, the segment grows on; check that it runs")
        try:
            following, appender = self._following()
        except LogWriteFailed as error:
            self._postpone_roll(error)
            return
        end = self._end_of(*self._opened())
        with failpoint("log.segment_roll"):
            self._head = self._metadata.roll_segment(self._owner, end, following)
        self._leave_segment(end)
        self._enter_segment(following, appender)
        self._completed = True
        self._roll_failure = None
        self.metrics.rolled()

    def _postpone_roll(self, error: ScribenginError) -> None:
        self._roll_failure = error
        self._roll_not_before_s = self._clock.monotonic_s() + _ROLL_RETRY_S
        self.metrics.roll_postponed()

    def _following(self) -> tuple[SegmentDescriptor, SegmentAppender]:
        """The segment that comes next, its file made, not registered yet."""
        segment = SegmentDescriptor(
            segment=self._head.max_segment + 1,
            epoch=self._owner.epoch,
            directory=self._log.directory,
            start_sequence=self._written.sequence,
            created_ms=self._clock.now_ms(),
            commit_log=self._commit_log,
            fsync=self._log.config.fsync,
            senders=self._senders,
            decoded_bytes_max=self._log.config.decoded_bytes_max,
        )
        if self._spare is None:
            self._spare = self._store.create(segment.file, fsync=segment.fsync)
        return segment, self._spare

    def _enter_segment(self, segment: SegmentDescriptor, appender: SegmentAppender) -> None:
        self._segment = segment
        self._appender = appender
        self._spare = None
        self._begun_s = self._clock.monotonic_s()

    def _end_of(self, segment: SegmentDescriptor, appender: SegmentAppender) -> SegmentDescriptor:
        if not segment.fsync:
            appender.make_durable()  # a completed segment is durable, whatever its groups were
        return completed(segment, self._visible, self._clock)

    def _leave_segment(self, end: SegmentDescriptor) -> None:
        if self._appender is not None:
            self._appender.close()
        self._segment = self._appender = None
        self._visible = self._written = Tail(0, 0, end.last_txid, end.end_sequence)
        self._group_entries = 0

    def _write(self, segment: SegmentDescriptor, appender: SegmentAppender, entries: Sequence[EncodedEntry]) -> None:
        placed = []
        for encoded in entries:
            at = self._written
            header = encoded.place(
                entry=at.entries, group_index=self._group_entries, sequence=at.sequence, epoch=segment.epoch
            )
            placed.append(PlacedEntry(at.end, header, encoded))
            self._written = at.after(header)
            self._group_entries += 1
        appender.write(placed)

    def _sync(
        self,
        appender: SegmentAppender,
        fdatasync: Callable[[int], object] | None = None,
        begun_s: float | None = None,
    ) -> None:
        begun_s = self._clock.monotonic_s() if begun_s is None else begun_s
        if fdatasync is None:
            appender.sync()
        else:
            appender.synced_by(fdatasync)
        self.metrics.synced(self._clock.monotonic_s() - begun_s)
        self._group_entries = 0

    def _show(self, appender: SegmentAppender) -> None:
        self._visible = self._written
        appender.publish(self._visible)

    def _check_committed(self, named: StagedRange) -> None:
        if named.directory != self._log.directory:
            raise LogError(f"log '{self._log.name}' is not the one that holds the round {named}: it was created again")
        if self._segment is not None and named.segment == self._segment.segment:
            entries = self._visible.entries
        else:
            found = self._metadata.completed_segment(named.segment)
            if found is None and named.segment < self._metadata.head()[0].first.segment:
                return  # committed, read and truncated since
            entries = 0 if found is None else found.entries
        if named.last_entry >= entries:
            raise InconsistentLog(
                f"log '{self._log.name}': entries {named.first_entry} to {named.last_entry} of segment {named.segment} "
                f"were committed, but the segment ends at entry {entries}: another writer rolled them back"
            )
