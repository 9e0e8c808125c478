"""What is done when the registry went back behind the files of a log, as a restored backup makes it.

A writer registers a segment before it writes to it. So a file that no node names and that holds bytes was named once:
somebody was told that its records are safe. The next writer therefore sets such files aside, into `aside/`, under their
own names, and never deletes one. `take_back`, on request, makes them part of the log again, from what their entries
say of themselves:

- in place, where the log ends with the record before their first;
- as copies at its end, where other records were written since. Such a segment says what it was `taken_from`, so a crash
  before that file is removed does not bring its records twice. Until then the file stays where it was set aside.

What was announced before it was made (store/announced.py) tells whether there are such files, without a look at all.
Where an older engine wrote, that announces nothing, and the registry went back behind that later, it tells too little:
`log verify` and `log recover` always list.

Epochs tell histories apart: a writer's is above that of every file there is (`sort_out`), so (epoch, segment) is the
order in which files were written, and no two ever have one name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.errors import LogNotFound, RecoveryRefused
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import HEADER_BYTES, Damage, EncodedEntry, EntryHeader, EntryType, encode, read_body
from scribengin.log.format.sender_marks import read_mark
from scribengin.log.format.staged import StagedRange
from scribengin.log.metadata.cold_places import why_not_all_there
from scribengin.log.metadata.segments import (
    Change,
    LogDescriptor,
    LogMetadata,
    LogState,
    SegmentDescriptor,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.scan.recovery import StagedLookup, completed
from scribengin.log.scan.unfinished import Found, Refusal, decide, scan
from scribengin.log.store.contract import ASIDE, SEGMENT_MAX, PlacedEntry, SegmentName, SegmentStore, Tail
from scribengin.log.store.index import EntryPlace, walk
from scribengin_registry.client import batches
from scribengin_registry.contract import Delete, Operation

TAKING = "taking-0"
"""Marks a file as a copy that is being written: until it is registered, what it was taken from still stands."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What came of it: the segments that are part of the log again, which files could not be, and why, how many
    segments at its beginning were given up because their files are gone. And how many of those that are listed were
    found in cold storage alone, or as their compressed copies alone, and are read from there."""

    segments: tuple[SegmentDescriptor, ...] = ()
    refused: tuple[str, ...] = ()
    given_up: int = 0
    from_cold: int = 0
    from_copies: int = 0

    def __bool__(self) -> bool:
        return bool(self.segments or self.refused or self.given_up or self.from_cold or self.from_copies)


def aside_of(directory: str) -> str:
    """Where files of that log are set aside."""
    return f"{directory}/{ASIDE}"


def unnamed(names: Sequence[SegmentName], state: LogState, *, thorough: bool = True) -> list[list[SegmentName]]:
    """Those of a log's files that no node names, and that no purge has left: of each segment those there are, in the
    order in which segments were written.

    Each descriptor of a segment with a file is looked at. Without `thorough` only those of numbers that two epochs have
    a file of: enough but for what a crash has left of taking back. Such a file may have the number of a segment that is
    cold alone, and has no file beside it.
    """
    suspects = None if thorough else _several_epochs(names)
    if thorough:
        state = replace(state, segments=tuple(state.segments))  # all at once
    last = state.head.max_segment
    found: dict[tuple[int, int], list[SegmentName]] = {}
    for name in names:
        if suspects is not None and name.segment <= last and name.segment not in suspects:
            continue
        if not _named(name, state):
            found.setdefault((name.epoch, name.segment), []).append(name)
    return [found[place] for place in sorted(found)]


def _several_epochs(names: Sequence[SegmentName]) -> set[int]:
    """The numbers that two epochs have a file of."""
    epochs: dict[int, int] = {}
    several: set[int] = set()
    for name in names:  # of very many, so nothing is made for each
        if epochs.setdefault(name.segment, name.epoch) != name.epoch:
            several.add(name.segment)
    return several


def holder_of(store: SegmentStore, files: Sequence[SegmentName]) -> SegmentName | None:
    """Of the files of one segment, the one that holds its records; None: it never had any.

    What its writer wrote, if that is there: else it went since a copy was found to hold it all. One that was being
    taken back stands where it was taken from.
    """
    if any(is_marker(name) for name in files):
        return None
    sizes = {name: size_of(store, name) for name in files}
    return max((name for name in files if sizes[name]), key=lambda name: (not name.copy, sizes[name]), default=None)


def is_marker(name: SegmentName) -> bool:
    """Whether that file only says that another is being written."""
    return name.copy == TAKING


def _named(name: SegmentName, state: LogState) -> bool:
    """Whether the log names that segment, or has named it and purged it since."""
    if name.segment < state.head.begin:
        return True
    listed = state.find(name.segment)
    return listed is not None and listed.epoch == name.epoch


@dataclass(frozen=True, slots=True)
class SortedOut:
    """What came of it: the highest epoch that a file of the log has, or had, and what the owner announces once his own
    is higher (None: nothing), so that the next one need not list the files."""

    epoch: int
    last_segment: int | None


def sort_out(metadata: LogMetadata, store: SegmentStore, owner: WriterEpoch, *, thorough: bool = False) -> SortedOut:
    """Set aside what no node names and holds bytes, remove what is empty; bring back what is named again.

    What no node names is told by a look at the registry after the files were listed, at which the log is still the
    owner's: whoever has it later makes files that this owner does not know of, and none of them can be in the list.

    The log's files are listed only if the segment that was announced last is not the last one that the registry names,
    or its writer's epoch is given a second time: all others were made before. `thorough`: in any case, and by the next
    owner, too, since files are about to be moved.
    For the log's owner, before it makes files of its own. Raises LogWriteFailed, Fenced.
    """
    state = metadata.state()
    aside = store.names(aside_of(owner.directory))
    for name in aside:
        listed = state.find(name.segment)
        if listed is not None and listed.raw_file == name._replace(directory=owner.directory):
            store.move(name, listed.raw_file)
    said = store.announced(owner.directory)
    epoch = max((said.epoch, *(name.epoch for name in aside)))
    if not thorough and said.segment == state.head.max_segment and said.epoch < owner.epoch:
        return SortedOut(epoch, None)
    names = store.names(owner.directory)
    state = metadata.state(state)
    owner.check(metadata.log, state.head)
    _sort_out(store, unnamed(names, state, thorough=thorough or said.segment == SEGMENT_MAX))
    for name in names:
        if is_marker(name):
            store.remove(name)
    epoch = max((epoch, *(name.epoch for name in names)))
    return SortedOut(epoch, SEGMENT_MAX if thorough else state.head.max_segment if names else None)


def _sort_out(store: SegmentStore, segments: Sequence[Sequence[SegmentName]]) -> None:
    for files in segments:
        holder = holder_of(store, files)
        if holder is not None:
            there = SegmentName(aside_of(holder.directory), holder.segment, holder.epoch)
            if not size_of(store, there):  # else it was moved before, and this is a copy that was to go
                store.move(holder, there)
        for name in files:
            store.remove(name)


def size_of(store: SegmentStore, name: SegmentName) -> int:
    """How many bytes a file has; 0 if there is none."""
    try:
        view = store.open(name)
    except LogNotFound:
        return 0
    try:
        return view.size()
    finally:
        view.close()


def records_in(store: SegmentStore, name: SegmentName) -> int:
    """How many records its whole entries say they have, whether they were committed or not."""
    view = store.open(name)
    try:
        places = walk(view, 0, view.size())
        headers = (place.header for place in places if isinstance(place, EntryPlace))
        return sum(header.records for header in headers if header.carries_records)
    finally:
        view.close()


def without_files(
    segments: Iterable[SegmentDescriptor], present: Container[tuple[int, int]]
) -> list[SegmentDescriptor]:
    """The segments, from the first on, that have no file. `present` are those that have one, by number and epoch. One
    that is named as cold counts as having one, whatever is seen there: it was read there whole, and never missed."""
    return list(takewhile(lambda each: each.cold is None and (each.segment, each.epoch) not in present, segments))


def give_up_missing(
    metadata: LogMetadata,
    store: SegmentStore,
    owner: WriterEpoch,
    state: LogState,
    config: LogConfig,
    present: Container[tuple[int, int]],
) -> int:
    """Let the log begin with the first segment that has a file, and return how many segments went (`without_files`).

    They were purged after the backup was made. If that is true of all that are listed, the log begins with what was set
    aside. Where nothing was, it is left alone: its disk may be away. Raises RecoveryRefused (they may be in cold
    storage that is not there), StoreUnreachable.
    """
    gone = without_files(state.segments, present)
    all_gone = len(gone) == len(state.segments)
    following = _first_aside(store, owner.directory) if all_gone else None
    if all_gone and following is None:
        return 0
    unseen = why_not_all_there(state.head, config) if gone else None
    if unseen is not None:
        raise RecoveryRefused(
            f"log '{metadata.log}': no file is there of segments {gone[0].segment} to {gone[-1].segment}, and they are "
            f"not given up, for they may be cold: {unseen}"
        )
    left = list(gone)
    while left:
        deletes: list[Operation] = [Delete(f"{metadata.segments_path}/{segment.node}") for segment in left]
        now = left[: len(next(batches(deletes)))]
        metadata.change(owner, _forgetting(now, deletes[: len(now)]))
        left = left[len(now) :]
    if following is not None:
        metadata.change(owner, _beginning_with(*following))
    return len(gone)


def _first_aside(store: SegmentStore, directory: str) -> tuple[SegmentName, EntryHeader] | None:
    """What was set aside of the segment that was written first, and how it begins."""
    for name in sorted(store.names(aside_of(directory)), key=lambda name: (name.epoch, name.segment)):
        header = _first_header(store, name)
        if header is not None:
            return name, header
    return None


def _beginning_with(name: SegmentName, header: EntryHeader) -> Change:
    """An empty log goes on with that file, under its own number: what lay between was purged."""
    first = DLSN(name.segment, 0, 0)

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        if head.begin <= head.max_segment or name.segment <= head.max_segment or header.sequence < head.next_sequence:
            return head, []
        begin = {"begin": name.segment, "max_segment": name.segment - 1, "next_sequence": header.sequence}
        after = head.model_copy(update=begin)
        return (after if head.first >= first else after.truncated(first, first)), []

    return change


def _forgetting(dropped: Sequence[SegmentDescriptor], deletes: list[Operation]) -> Change:
    first = DLSN(dropped[-1].segment + 1, 0, 0)

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        if head.begin > dropped[-1].segment:  # after a lost reply
            return head, []
        after = head.without(dropped)
        if dropped[-1].in_progress:
            after = after.model_copy(update={"in_progress": False})
        return (after if head.first >= first else after.truncated(first, first)), deletes

    return change


class Restoration:
    """Takes back what was set aside, as the log's owner."""

    def __init__(
        self,
        metadata: LogMetadata,
        store: SegmentStore,
        owner: WriterEpoch,
        log: LogDescriptor,
        clock: Clock,
        lookup: StagedLookup,
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._owner = owner
        self._log = log
        self._clock = clock
        self._lookup = lookup
        self._last_epoch = 0

    def take_back(self, state: LogState) -> TakenBack:
        """All that can be, in the order in which it was written. Raises Fenced, LogWriteFailed."""
        names = self._store.names(aside_of(self._owner.directory))
        waiting = sorted(names, key=lambda name: (name.epoch, name.segment))
        head = state.head
        self._last_epoch = state.segments[-1].epoch if state.segments else 0
        commit_log = state.segments[-1].commit_log if state.segments else None
        taken = {segment.taken_from for segment in state.segments} - {None} if waiting else set()
        made: list[SegmentDescriptor] = []
        refused: list[str] = []
        for at, name in enumerate(waiting):
            if label(name) in taken:  # its records are there since a run that ended before this
                self._store.remove(name)
                continue
            try:
                following = waiting[at + 1] if at + 1 < len(waiting) else None
                segment = self._take(name, following, head, commit_log)
            except RecoveryRefused as error:
                refused.append(str(error))
                continue
            head = self._metadata.adopt_segment(self._owner, segment)
            self._last_epoch = segment.epoch
            if segment.taken_from is not None:
                self._store.remove(segment.raw_file.copied(TAKING))
                self._store.remove(name)
            made.append(segment)
        return TakenBack(tuple(made), tuple(refused))

    def _take(
        self, name: SegmentName, following: SegmentName | None, head: SegmentsHead, commit_log: str | None
    ) -> SegmentDescriptor:
        """The segment that stands for that file, complete, its file in its place; not registered yet. What is copied
        stays where it is meanwhile: in the log's directory it would have the number of another segment, and a purge
        takes away there what is older than the first."""
        store, directory = self._store, self._owner.directory
        begin = _first_header(store, name)
        if begin is None:
            raise RecoveryRefused(f"{store.location(name)} does not begin with an entry; it is left there")
        segment = SegmentDescriptor(
            segment=name.segment,
            epoch=name.epoch,
            directory=directory,
            start_sequence=begin.sequence,
            created_ms=self._clock.now_ms(),
            commit_log=commit_log,
        )
        follows = (segment.segment, segment.start_sequence) == (head.max_segment + 1, head.next_sequence)
        fits = follows and segment.epoch >= self._last_epoch
        with failpoint("log.take_back"):
            if fits:
                store.move(name, segment.raw_file)
        try:
            end = self._end(segment, segment.raw_file if fits else name, following)
        except RecoveryRefused:
            if fits:
                store.move(segment.raw_file, name)
            raise
        whole = completed(segment, end, self._clock)
        if fits:
            known = _begins_with_mark(store, segment.raw_file, begin)
            return whole.model_copy(update={"last_txid": max(whole.last_txid, head.last_txid), "senders": known})
        return self._copied(whole, name, head)

    def _end(self, segment: SegmentDescriptor, file: SegmentName, following: SegmentName | None) -> Tail:
        """Where that file of it ended, as recovery finds it; a staged round counts also if the file after it counts
        it."""
        store = self._store
        store.fence(file)
        store.make_durable(file)
        view = store.open(file)
        try:
            found = scan(view, segment, start_txid=-1)
            end = decide(segment, found, view.tail(), self._committed(segment, found, following))
        finally:
            view.close()
        if isinstance(end, Refusal):
            raise RecoveryRefused(f"{store.location(file)}: {end.reason}; it is left as it was")
        return end

    def _committed(self, segment: SegmentDescriptor, found: Found, following: SegmentName | None) -> StagedRange | None:
        if found.staged is None:
            return None
        after = None if following is None else _first_header(self._store, following)
        if following is not None and after is not None and following.segment == segment.segment + 1:
            if after.sequence != found.staged.end.sequence:
                return None
            return StagedRange(
                log=self._log.name,
                directory=segment.directory,
                segment=segment.segment,
                first_entry=found.staged.first_entry,
                last_entry=found.staged.last_entry,
                records=0,
                bytes=0,
            )
        try:
            return self._lookup(segment)
        except RecoveryRefused:  # nobody can tell: it is the round's own task that stages it again
            return None

    def _copied(self, source: SegmentDescriptor, file: SegmentName, head: SegmentsHead) -> SegmentDescriptor:
        """A segment at the end of the log with the records of `source`, which stand in that file."""
        store = self._store
        copy = source.model_copy(
            update={
                "segment": head.max_segment + 1,
                "epoch": self._owner.epoch,
                "start_sequence": head.next_sequence,
                "taken_from": label(source.raw_file),
            }
        )
        store.create(copy.raw_file.copied(TAKING), fsync=True).close()
        appender, view = store.create(copy.raw_file, fsync=True), store.open(file)
        try:
            at = Tail(0, 0, head.last_txid, head.next_sequence)
            for place in walk(view, 0, source.bytes):
                if not isinstance(place, EntryPlace) or not place.header.carries_records:
                    continue  # a control entry has done its work
                stored = view.read(place.offset + HEADER_BYTES, place.header.body_bytes)
                encoded = self._re_encoded(place.header, stored, at.last_txid)
                header = encoded.place(entry=at.entries, group_index=0, sequence=at.sequence, epoch=copy.epoch)
                appender.write([PlacedEntry(at.end, header, encoded)])
                at = at.after(header)
            appender.sync()
        finally:
            view.close()
            appender.close()
        return completed(copy, at, self._clock)

    def _re_encoded(self, header: EntryHeader, stored: pa.Buffer, last_txid: int) -> EncodedEntry:
        """The entry as it was; only where transaction ids may not decrease, those that would are raised."""
        if self._log.config.check_txids and header.first_txid < last_txid:
            batch = read_body(header, stored)
            if isinstance(batch, Damage):
                raise RecoveryRefused(f"entry {header.entry}: {batch.reason}")
            raised = pc.max_element_wise(batch.column(0), pa.scalar(last_txid, pa.int64()))
            return encode(batch.set_column(0, batch.schema.field(0), raised), codec=self._log.config.codec)
        return EncodedEntry.of_stored(header, stored).as_type(EntryType.RECORDS)


def _begins_with_mark(store: SegmentStore, file: SegmentName, begin: EntryHeader) -> bool:
    """Whether that file, which begins so, says all that was known of senders."""
    if begin.type != EntryType.KEEP_ALIVE:
        return False
    with closing(store.open(file)) as view:
        body = read_body(begin, view.read(HEADER_BYTES, begin.body_bytes))
    return not isinstance(body, Damage) and read_mark(body) is not None


def label(name: SegmentName) -> str:
    """What a segment says that holds the records of that file (`SegmentDescriptor.taken_from`)."""
    return f"{name.segment:018d}-{name.epoch}"


def _first_header(store: SegmentStore, name: SegmentName) -> EntryHeader | None:
    view = store.open(name)
    try:
        place = next(walk(view, 0, view.size()), None)
        return place.header if isinstance(place, EntryPlace) and place.header.entry == 0 else None
    finally:
        view.close()
