"""Looking at all that a log holds, without touching it: its metadata (metadata/check.py), every visible entry in its
place and both its checksums (audit.py), and whether the two agree. Works beside the log's writer.

An entry is visible when it lies before the end of its segment: what the descriptor of a completed segment says, or the
`.tail` of the one that is being written. What lies behind that end (entries on their way, a staged round, the torn end
of a writer that died) belongs to nobody yet, or to nobody any more, and is no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from scribengin.base.names import log_command
from scribengin.base.text.counting import many
from scribengin.errors import LogNotFound, LogWriteFailed, StoreUnreachable
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import HEADER_BYTES, Damage, read_header
from scribengin.log.format.records import TXID_NONE
from scribengin.log.metadata.check import Finding, MetadataCheck, check_metadata
from scribengin.log.metadata.cold_places import cold_files
from scribengin.log.metadata.segments import LogMetadata, LogState, SegmentDescriptor
from scribengin.log.retention.holds import RegisteredReaders
from scribengin.log.scan.audit import TXID_UNKNOWN, SegmentCheck
from scribengin.log.scan.unfinished import scan
from scribengin.log.store.cold import ColdLocation
from scribengin.log.store.contract import SegmentName, SegmentStore, SegmentView, Tail
from scribengin.log.store.index import EntryPlace, IndexRow, rows_of
from scribengin.log.write.found_copies import copies_alone, segments_there
from scribengin.log.write.restored import aside_of, holder_of, records_in, size_of, unnamed, without_files

Progress = Callable[[int], None]
"""Called with the number of bytes that were looked at since the last call."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """The index of a segment as it is kept: its rows, and how many of them point to no such entry (it is a hint: those
    that use it notice, and rebuild it)."""

    rows: int = 0
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What one segment holds.

    `end` is how far readers see it; `file_bytes` is the size of its file, None if that is missing. `entries` (by type),
    `records`, and the transaction ids are what could be read, sequence ids are [start_sequence, end.sequence). Of a
    segment that has copies beside what readers open, compressed or cold, their findings are among the others.
    """

    segment: SegmentDescriptor
    path: str
    file_bytes: int | None
    end: Tail
    entries: dict[str, int] = field(default_factory=dict)
    records: int = 0
    first_txid: int | None = None
    last_txid: int | None = None
    index: IndexState = IndexState()
    findings: tuple[Finding, ...] = ()
    machines: tuple[str, ...] = ()
    """Which machines hold it, where its store tells."""

    @property
    def checked_bytes(self) -> int:
        """Bytes that were looked at, in all its files."""
        return self.end.end if self.segment.in_progress else _bytes_of(self.segment)

    @property
    def cold_path(self) -> str | None:
        """Where its copy in cold storage is; None: it has none."""
        name = self.segment.cold_file
        return None if name is None else str(ColdLocation(name))

    @property
    def bytes_beyond(self) -> int:
        """Bytes behind the visible end: on their way, staged, or given up by recovery."""
        return max(0, (self.file_bytes or 0) - self.end.end)


@dataclass(frozen=True, slots=True)
class Remainder:
    """What stands in a segment's file behind what `.tail` has shown to readers.

    `unshown_records` are whole and behind the tail: their writer died before it could show them. `staged_records` await
    (or awaited) the verdict of their commit log, in entries from `staged_entry` on (None: nothing is staged).
    `torn_bytes` come after everything that is whole.
    """

    unshown_records: int
    staged_entry: int | None
    staged_records: int
    torn_bytes: int


class LogInspection:
    """One log, read from beginning to end. Made by `LogNamespace.inspect`."""

    def __init__(self, metadata: LogMetadata, store: SegmentStore) -> None:
        self._metadata = metadata
        self._store = store
        self.metadata_check: MetadataCheck = check_metadata(metadata)
        """The log's metadata, as it was when this was made."""

    def segments(self, *, bodies: bool = True, progress: Progress | None = None) -> Iterator[SegmentReport]:
        """A report of every segment, in order. Without `bodies` only headers are looked at.

        A segment that was removed meanwhile is left out. Raises what the registry raises.
        """
        txid = TXID_NONE if self._begins_at_the_beginning() else TXID_UNKNOWN
        for segment in self.metadata_check.segments:
            report = self._report(segment, txid, bodies=bodies, progress=progress)
            if report is not None:
                yield report
            txid = TXID_UNKNOWN if segment.in_progress else segment.last_txid

    def entries(self, number: int | None = None) -> Iterator[tuple[SegmentDescriptor, EntryPlace | Finding]]:
        """Every visible entry of segment `number`, or of all, and what is wrong, in order. Raises LogNotFound."""
        for segment in self.metadata_check.segments:
            if number in (None, segment.segment):
                view = self._store.open(segment.file)
                try:
                    for found in SegmentCheck(view, segment, _visible_end(segment, view)):
                        yield segment, found
                finally:
                    view.close()

    def remainder(self, number: int) -> Remainder | None:
        """What stands behind the tail of segment `number`, as recovery sees it; None: no such segment, or no file."""
        segment = next((found for found in self.metadata_check.segments if found.segment == number), None)
        view = None if segment is None else self._opened(segment.raw_file)
        if segment is None or view is None:
            return None
        try:
            tail = view.tail()
            found = scan(view, segment, start_txid=TXID_NONE)
            staged = found.staged
            end = found.visible if staged is None else staged.end
            return Remainder(
                unshown_records=found.visible.sequence - (segment.start_sequence if tail is None else tail.sequence),
                staged_entry=None if staged is None else staged.first_entry,
                staged_records=end.sequence - found.visible.sequence,
                torn_bytes=view.size() - end.end,
            )
        finally:
            view.close()

    def strays(self) -> list[SegmentName]:
        """Files of segments that the registry does not name: what a crash has left, which purging or the next writer
        removes, or a segment that is just being made. Not those that `unnamed` tells of."""
        named = {name for segment in self.metadata_check.segments for name in _files_named(segment)}
        named |= set(self.unnamed())
        there = [*self._store.names(self.metadata_check.log.directory), *self._in_cold()]
        return [name for name in there if name not in named]

    def _in_cold(self) -> list[SegmentName]:
        """What cold storage has of the log; nothing where it does not answer or refuses, which is told of elsewhere."""
        with suppress(LogWriteFailed):
            return cold_files(self.metadata_check.head, self.metadata_check.log.config)
        return []

    def copies_alone(self) -> list[SegmentName]:
        """Copies that alone hold a segment, in cold storage or compressed, which the registry does not know: it went
        back. Raises StoreUnreachable, LogWriteFailed (cold storage refuses)."""
        found = copies_alone(self._store, self._state(), self.metadata_check.log.config)
        return [names[0] for listed, names in found if listed is None or not self._moved_since(listed)]

    def _moved_since(self, segment: SegmentDescriptor) -> bool:
        """Whether readers open another file of it by now than when this was made, or it was given up."""
        now = self._metadata.completed_segment(segment.segment)
        return not (now is None and segment.in_progress) and (now is None or now.file != segment.file)

    def unnamed(self) -> list[SegmentName]:
        """Files that hold bytes and that the registry should name: it went back behind them, as to an older backup."""
        directory, now = self.metadata_check.log.directory, self._metadata.head()[0]
        last = self.metadata_check.head.max_segment
        aside = [name for name in self._store.names(aside_of(directory)) if size_of(self._store, name)]
        moved = {(name.segment, name.epoch) for name in aside}
        holders = [
            holder_of(self._store, files)
            for files in unnamed(self._store.names(directory), self._state())
            if not last < files[0].segment <= now.max_segment  # it was registered while we looked
        ]
        return [name for name in holders if name is not None and (name.segment, name.epoch) not in moved] + aside

    def missing(self) -> list[SegmentDescriptor]:
        """Completed segments that have no file, from the first on. Raises StoreUnreachable."""
        there = segments_there(self._store, self.metadata_check.head, self.metadata_check.log.config)
        return without_files(self.metadata_check.segments, there)

    def out_of_place(self) -> Iterator[Finding]:
        """What the registry says that the log's files contradict: files it does not name, readers where no record is
        or was. Raises what the registry raises."""
        for name in self.unnamed():
            with suppress(LogNotFound):
                held = many(records_in(self._store, name), "record")
                yield Finding(
                    f"the file {self._store.location(name)} holds {held} that the registry does not name: it went "
                    f"back, as to an older backup; {self._recovery} takes them back",
                    name.segment,
                )
        try:
            alone = self.copies_alone()
        except LogWriteFailed as error:
            alone = []
            if not isinstance(error, StoreUnreachable):  # of which a look at its segments tells
                yield Finding(str(error))
        for name in alone:
            where = "in cold storage alone" if name.place else "there as its compressed copy alone"
            yield Finding(
                f"the segment is {where} ({self._store.location(name)}), which the registry does not know: it went "
                f"back, as to an older backup; {self._recovery} takes it from there",
                name.segment,
            )
        yield from self._readers_out_of_place()

    @property
    def _recovery(self) -> str:
        return log_command(self._metadata.namespace, "recover", self._metadata.log)

    def _readers_out_of_place(self) -> Iterator[Finding]:
        readers = RegisteredReaders(self._metadata).positions()
        if not readers:
            return
        now = check_metadata(self._metadata)  # after the readers: what they have read was there before
        head, end = now.head, self._end_of(now)
        for reader, place in readers.items():
            if place > end:
                yield Finding(
                    f"reader '{reader}' stands at {place}, behind its end {end}: the log or the registry went back; "
                    f"{self._recovery} looks for what is missing"
                )
            elif place < head.first and not head.given_up_to <= place:
                yield Finding(
                    f"reader '{reader}' stands at {place}, and the records before {head.first} were given up: "
                    "register it anew there"
                )

    def _end_of(self, found: MetadataCheck) -> DLSN:
        last = found.segments[-1] if found.segments else None
        if last is None or not last.in_progress:
            return DLSN(found.head.max_segment + 1, 0, 0)
        view = self._opened(last.file)
        if view is None:
            return DLSN(last.segment, 0, 0)
        try:
            return DLSN(last.segment, _visible_end(last, view).entries, 0)
        finally:
            view.close()

    def _state(self) -> LogState:
        return LogState(self.metadata_check.head, self.metadata_check.head_version, self.metadata_check.segments)

    @property
    def bytes(self) -> int:
        """About how many bytes there are to look at."""
        return sum(self._size(segment) for segment in self.metadata_check.segments)

    def _begins_at_the_beginning(self) -> bool:
        return bool(self.metadata_check.segments) and self.metadata_check.segments[0].segment == DLSN.INITIAL.segment

    def _report(
        self, segment: SegmentDescriptor, start_txid: int, *, bodies: bool, progress: Progress | None
    ) -> SegmentReport | None:
        path = str(self._store.location(segment.file))
        try:
            view = self._opened(segment.file)
        except LogWriteFailed as error:
            return SegmentReport(segment, path, None, _said_end(segment), findings=(_unread(segment, error),))
        if view is None:
            now = self._metadata.completed_segment(segment.segment)
            if now is None or now.node != segment.node or now.file != segment.file:
                # it was completed or removed, or is kept otherwise by now
                return None if now is None else self._report(now, start_txid, bodies=bodies, progress=progress)
            return SegmentReport(segment, path, None, _said_end(segment), findings=(_missing(segment, path),))
        try:
            end = _visible_end(segment, view, start_txid)
            audit = self._audit(segment, view, end, start_txid, bodies=bodies)
            findings = [*_findings(audit, progress), *self._copy_findings(segment, start_txid, bodies, progress)]
            return SegmentReport(
                segment=segment,
                path=path,
                file_bytes=view.size(),
                end=end,
                entries=dict(audit.entries),
                records=audit.records,
                first_txid=audit.first_txid,
                last_txid=audit.last_txid,
                index=_index_state(view, self._store.load_index(segment.file), end.end),
                findings=tuple(findings),
                machines=tuple(self._store.machines(segment.file)),
            )
        finally:
            view.close()

    def _copy_findings(
        self, segment: SegmentDescriptor, start_txid: int, bodies: bool, progress: Progress | None
    ) -> Iterator[Finding]:
        """What is wrong with the copies of a segment beside what readers open."""
        for what, name, size in _beside(segment):
            try:
                view = self._opened(name)
            except LogWriteFailed as error:
                yield _unread(segment, error)
                continue
            if view is None:
                now = self._metadata.completed_segment(segment.segment)
                if now is not None and name in _files_named(now):
                    yield _missing(segment, str(self._store.location(name)), what)
                continue
            try:
                audit = self._audit(segment, view, replace(_said_end(segment), end=size), start_txid, bodies=bodies)
                for finding in _findings(audit, progress):
                    yield replace(finding, what=f"in {what}: {finding.what}")
            finally:
                view.close()

    def _audit(
        self, segment: SegmentDescriptor, view: SegmentView, end: Tail, start_txid: int, *, bodies: bool
    ) -> SegmentCheck:
        log = self.metadata_check.log
        # Once it was configured anew, older segments may have been written without the check.
        check_txids = log.config.check_txids and log.config_version == 0
        return SegmentCheck(view, segment, end, start_txid=start_txid, check_txids=check_txids, bodies=bodies)

    def _size(self, segment: SegmentDescriptor) -> int:
        if not segment.in_progress:
            return _bytes_of(segment)
        view = self._opened(segment.file)
        if view is None:
            return 0
        try:
            return _visible_end(segment, view).end
        finally:
            view.close()

    def _opened(self, name: SegmentName) -> SegmentView | None:
        try:
            return self._store.open(name)
        except LogNotFound:
            return None


def _findings(audit: SegmentCheck, progress: Progress | None) -> Iterator[Finding]:
    for found in audit:
        if isinstance(found, Finding):
            yield found
        elif progress is not None:
            progress(found.header.size)


def _missing(segment: SegmentDescriptor, path: str, what: str = "its file") -> Finding:
    return Finding(f"{what} {path} is missing", segment.segment)


def _unread(segment: SegmentDescriptor, error: LogWriteFailed) -> Finding:
    return Finding(f"it cannot be read just now: {error}", segment.segment)


def _files_named(segment: SegmentDescriptor) -> list[SegmentName]:
    """All files that belong to a segment, in the store and in cold storage."""
    return [name for name in (segment.raw_file, segment.copy_file, segment.cold_file) if name is not None]


def _beside(segment: SegmentDescriptor) -> Iterator[tuple[str, SegmentName, int]]:
    """The copies of a completed segment beside the file that readers open: what each is called, and its size."""
    copy, cold = segment.copy_file, segment.cold_file
    if copy is not None and segment.compressed is not None and segment.hot_dropped_ms is None and copy != segment.file:
        yield "its copy", copy, segment.compressed.bytes
    if cold is not None and segment.cold is not None and cold != segment.file:
        yield "its cold copy", cold, segment.cold.bytes


def _bytes_of(segment: SegmentDescriptor) -> int:
    """Of a completed segment, and its copies beside it."""
    return segment.file_bytes + sum(size for _what, _name, size in _beside(segment))


def _said_end(segment: SegmentDescriptor) -> Tail:
    return Tail(segment.file_bytes, segment.entries, segment.last_txid, segment.end_sequence)


def _visible_end(segment: SegmentDescriptor, view: SegmentView, start_txid: int = TXID_UNKNOWN) -> Tail:
    if not segment.in_progress:
        return _said_end(segment)
    tail = view.tail()
    return Tail(0, 0, start_txid, segment.start_sequence) if tail is None else tail


def _index_state(view: SegmentView, kept: bytes, end: int) -> IndexState:
    rows = [row for row in rows_of(kept) if row.offset < end]
    wrong = sum(not _holds(view, row) for row in rows)
    return IndexState(len(rows), wrong)


def _holds(view: SegmentView, row: IndexRow) -> bool:
    header = read_header(view.read(row.offset, HEADER_BYTES))
    return not isinstance(header, Damage) and IndexRow.of(header, row.offset) == row
