"""Registered readers: positions that truncation and retention wait for.

    <log>/readers/<reader>       ReaderDescriptor; without data, the reader has a lock (metadata/reader_lock.py) and no
    position

Registering moves the version of the log's head: so a truncation that has looked at the readers before sees its
transaction fail, and looks again. Later moves go forward only, and need no such care.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from scribengin.base.commit_log import CommitLog, CommitLogPath, check_commit_log
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, Part, from_node_name, node_name
from scribengin.errors import DamagedEntry, InconsistentLog, LogBusy, LogError
from scribengin.log.format.dlsn import DLSN
from scribengin.log.metadata.names import check_reader_name
from scribengin.log.metadata.segments import LogMetadata, LogOperator, SegmentsHead
from scribengin.log.read.catalog import LogCatalog
from scribengin_registry.compare_and_set import LookAgain, win_race
from scribengin_registry.contract import Create, Delete, Operation, Set
from scribengin_registry.errors import NodeExists, NodeMissing, NodeNotEmpty, OutcomeUnknown, VersionConflict


class RetentionHold(Part):
    """For whom a log is held back: a source of a dataflow, and which logs that source reads (a name or a pattern)."""

    dataflow: str
    source: str
    pattern: str

    @property
    def reader(self) -> str:
        """The name of the registered reader, for people: nothing is read out of it."""
        return f"dataflow {self.dataflow}.{self.source} reads {self.pattern}"


class ReaderDescriptor(Descriptor):
    """Where a registered reader stands: at the first record that it still wants."""

    format: int = 2
    segment: int
    entry: int
    slot: int
    commit_log: CommitLogPath | None = None
    """The registry path of the commit log that says how far the reader has come. It stands where that says, or at the
    place above as long as that says nothing of this log."""
    hold: RetentionHold | None = None
    """The dataflow that the reader stands for, if it is one's."""

    @property
    def position(self) -> DLSN:
        return DLSN(self.segment, self.entry, self.slot)

    @classmethod
    def of(cls, position: DLSN, commit_log: str | None = None, hold: RetentionHold | None = None) -> ReaderDescriptor:
        place = {"segment": position.segment, "entry": position.entry, "slot": position.slot}
        return cls(**place, commit_log=commit_log, hold=hold)


class RegisteredReaders:
    """The registered readers of one log. Thread-safe: it keeps nothing but paths."""

    def __init__(self, metadata: LogMetadata) -> None:
        self._metadata = metadata
        self._registry = metadata.registry
        self._path = f"{metadata.path}/readers"

    def positions(self) -> dict[str, DLSN]:
        """Where each of them stands. Raises LogNotFound."""
        return {reader: self._position(descriptor) for reader, descriptor in self._descriptors()}

    def holds(self) -> dict[RetentionHold, DLSN]:
        """The dataflows among them, and where each stands. Raises LogNotFound."""
        return {found.hold: self._position(found) for _, found in self._descriptors() if found.hold is not None}

    def slowest(self) -> tuple[str, DLSN] | None:
        """The reader that is furthest behind, and its position; None if there is none."""
        return min(self.positions().items(), key=lambda item: item[1], default=None)

    def register(
        self,
        open_catalog: Callable[[], LogCatalog],
        reader: str,
        position: DLSN | None,
        commit_log: str | None = None,
        hold: RetentionHold | None = None,
    ) -> DLSN:
        """Register `reader`, or move it forward; return where it is registered then. None: leave it where it is, and a
        new one at the first record kept, from where it moves with its `commit_log`, if it has one.

        Raises PositionTruncated, InconsistentLog (the log never had such a position), LogError (that would be back),
        ConfigInvalid (that is no commit log).
        """
        check_reader_name(self._metadata.log, reader)
        check_commit_log(commit_log)
        wanted = position
        operator: LogOperator | None = None

        def attempt() -> DLSN:
            nonlocal wanted, operator
            head, _version = self._metadata.head()
            operator = operator or LogOperator(head.directory)
            operator.check(self._metadata.log, head)
            there, version = self._find(reader)
            if there is not None and wanted in (None, there.position):
                return there.position
            if there is not None and wanted is not None and wanted < there.position:
                raise LogError(
                    f"log '{self._metadata.log}': reader '{reader}' is registered at {there.position} and cannot go "
                    f"back to {wanted}, which may be truncated; unregister it, and register it there"
                )
            with closing(open_catalog()) as catalog:
                wanted = catalog.state().head.first if wanted is None else check_visible(catalog, wanted)
            if there is None or version is None:
                self._add(operator, reader, ReaderDescriptor.of(wanted, commit_log, hold))
            else:
                node = Set(self._node(reader), ReaderDescriptor.of(wanted, hold=there.hold).to_bytes(), version)
                self._move(operator, node)
            raise LookAgain

        what = f"log '{self._metadata.log}': somebody else keeps moving reader '{reader}'; give it another id"
        return win_race(attempt, races=(), exhausted=lambda: LogBusy(what))

    def goes_back(self) -> tuple[Operation, ...]:
        """For the transaction in which a reader's commit log goes back: they touch the log's head. So that transaction
        fails if anything was given up since this was asked. And whoever has looked at the readers before, and would
        give up what is wanted again, fails and looks again. Short, as a rewind has them of each log that it moves.
        Raises LogNotFound."""
        head, version = self._metadata.head()
        same = self._metadata.same(head.directory)
        return same, Set(self._metadata.segments_path, head.model_dump_json().encode(), version)

    def unregister(self, reader: str) -> bool:
        """Forget `reader`, and say whether it was there. Raises LogBusy while it holds its subscriber's lock."""
        known = False
        directory: str | None = None

        def attempt() -> bool:
            nonlocal known, directory
            now = self._metadata.find_descriptor()
            if now is None or now[0].directory != (directory or now[0].directory):
                return known
            directory = now[0].directory
            descriptor, version = self._find(reader)
            known = known or descriptor is not None
            if version is None:
                return known
            try:
                with failpoint("log.reader_unregister"):
                    self._registry.commit([self._metadata.same(directory), Delete(self._node(reader), version)])
            except NodeNotEmpty:
                raise LogBusy(
                    f"log '{self._metadata.log}': reader '{reader}' is reading just now; close it first"
                ) from None
            raise LookAgain

        what = f"log '{self._metadata.log}': somebody else keeps moving reader '{reader}'; stop it first"
        races = (NodeMissing, VersionConflict)
        return win_race(attempt, races=races, registry=self._registry, exhausted=lambda: LogBusy(what))

    def _descriptors(self) -> list[tuple[str, ReaderDescriptor]]:
        try:
            nodes = self._registry.children(self._path)
        except NodeMissing:
            if self._registry.find(self._metadata.path) is None:
                raise self._metadata.not_found() from None
            return []
        found = ((from_node_name(node), self._find(from_node_name(node))[0]) for node in nodes)
        return [(reader, descriptor) for reader, descriptor in found if descriptor is not None]

    def _node(self, reader: str) -> str:
        return f"{self._path}/{node_name(reader)}"

    def _find(self, reader: str) -> tuple[ReaderDescriptor | None, int | None]:
        """What its node says, if it says anything, and the node's version, if there is one."""
        path = self._node(reader)
        node = self._registry.find(path)
        if node is None:
            return None, None
        return (ReaderDescriptor.from_bytes(node.data, path=path) if node.data else None), node.version

    def _position(self, reader: ReaderDescriptor) -> DLSN:
        """Where it stands. A commit log may still speak of a log of that name that was deleted since."""
        node = None if reader.commit_log is None else self._registry.find(reader.commit_log)
        if node is None:
            return reader.position
        said = CommitLog.from_bytes(node.data, path=str(reader.commit_log)).position or {}
        if said.get("directory") != self._metadata.descriptor().directory:
            return reader.position
        return DLSN(int(said["segment"]), int(said["entry"]), int(said["slot"]))

    def _add(self, operator: LogOperator, reader: str, wanted: ReaderDescriptor) -> None:
        """Register it, unless its position has been truncated since that was looked at."""
        data, position = wanted.to_bytes(), wanted.position

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            operations: list[Operation] = []
            if position < head.first:  # truncated meanwhile: change nothing, and look again
                return head, operations
            descriptor, there = self._find(reader)
            if descriptor is not None:  # somebody else, or this request before its reply was lost
                return head, operations
            if there is not None:
                return head, [Set(self._node(reader), data, there)]
            if self._registry.find(self._path) is None:
                operations.append(Create(self._path))
            return head, [*operations, Create(self._node(reader), data)]

        self._metadata.change(operator, change)

    def _move(self, operator: LogOperator, node: Set) -> None:
        try:
            with failpoint("log.reader_move"):
                self._registry.commit([self._metadata.same(operator.directory), node])
        except (NodeMissing, VersionConflict, NodeExists):
            return  # look again
        except OutcomeUnknown:
            self._registry.sync(self._path)


def check_visible(catalog: LogCatalog, position: DLSN) -> DLSN:
    """As `LogCatalog.check_position`; and no record that is still to come may lie before `position`, because nobody can
    have read that. Raises InconsistentLog, PositionTruncated."""
    position = catalog.check_position(position)
    if catalog.state().in_progress is not None and position > (end := catalog.end_position()):
        raise InconsistentLog(f"log '{catalog.log.name}': {position} lies behind its end {end}; use the end")
    return position


def records_behind(catalog: LogCatalog, positions: dict[str, DLSN]) -> dict[str, int]:
    """How many visible records lie at and behind each position. Before one that was truncated by force lie all that
    are kept; where damage hides how far a reader is in a segment, it counts as being at its beginning."""
    end = catalog.end_sequence()
    return {reader: end - _sequence_at(catalog, position) for reader, position in positions.items()}


def _sequence_at(catalog: LogCatalog, position: DLSN) -> int:
    return catalog.settled(lambda: _sequence_of_kept(catalog, max(position, catalog.state().head.first)))


def _sequence_of_kept(catalog: LogCatalog, position: DLSN) -> int:
    try:
        return catalog.sequence_at(position)
    except DamagedEntry:
        segment = catalog.segment(position.segment)
        assert segment is not None, "it holds the damage"
        return segment.start_sequence
