"""The registry's view of logs: typed nodes, and the one way to change them.

<namespace>                       NamespaceDescriptor (binding.py); its `token` stands in the store, too (mark.py)
  logs/<log>                      LogDescriptor
    lock                          ephemeral: LockDescriptor of the writer
    waiting/place-<number>        ephemeral: LockDescriptor of who waits to be the writer, in turn (waiting_line.py)
    <directory>                   empty: which log of this name it is
    segments                      SegmentsHead: EVERY change below checks its version, and the node of its directory
      inprogress_<18 digits>      SegmentDescriptor of the one segment that is being written
      logrecs_<18 digits>         SegmentDescriptor of a completed one

A log may have a hundred thousand segments. So the head says all that most looks want, and what has changed since the
look before; only the segments that somebody wants are read (segment_list.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scribengin.base.commit_log import CommitLogPath
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, EntryName, node_name, plain_path
from scribengin.base.names import log_command
from scribengin.errors import Fenced, InconsistentLog, LogNotFound, SegmentsMoved
from scribengin.log.config import SharedLogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import DECODED_BYTES_MAX
from scribengin.log.format.records import TXID_NONE
from scribengin.log.metadata.names import check_directory
from scribengin.log.metadata.segment_list import SegmentList
from scribengin.log.store.contract import SegmentName
from scribengin_registry.contract import Check, Create, Delete, Operation, Registry, Set, Watch
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

ATTEMPTS_MAX = 20
"""How often something is tried again that fails though nothing of the log has moved. A lost race is no failure."""
_REVISED_KEPT = 64


class LogDescriptor(Descriptor):
    """One log. `directory` is never used again, not even by a log of the same name that is created later.

    `config_version` counts the changes of `config` since the log was created. One that is `deleting` is gone for
    everybody, but some of its nodes are still there: they are too many for one transaction (lifecycle.py).
    """

    name: str
    directory: EntryName
    created_ms: int
    config: SharedLogConfig
    config_version: int = 0
    deleting: bool = False


class LockDescriptor(Descriptor):
    """Who writes the log. `token` tells two writers of one process apart."""

    owner: str
    token: str


class SegmentsHead(Descriptor):
    """What is true of a log's list of segments as a whole.

    `directory` is the log's. `epoch` is that of the writer that may change it; the segments listed are those from
    `begin` to `max_segment`, the highest number given so far (0: none), and `in_progress` says whether that one is
    being written. `next_sequence` and `last_txid` are those at the end of the completed segments, `bytes` what the
    completed ones listed have in the files that readers open. `senders` is the segment whose marks say which numbers of
    senders are in the log (write/senders.py; 0: none does). `latest_ms` is the latest time at which one was
    completed. `revisions` counts the changes of descriptors of completed segments, `revised` are the segments of the
    last of these. Records before `first` were truncated: no record lies from `given_up_to` to `first`, so whoever had
    read up to there, and no further, has lost nothing. Cold copies of its segments are in `cold_places`, and nowhere
    else: each stands here before the first file is made there. `cold_tokens` are the marks that stand in these
    (cold_places.py): none is believed to be empty without its own. "" is one that a deletion has emptied.
    """

    directory: EntryName
    epoch: int = 0
    begin: int = DLSN.INITIAL.segment
    max_segment: int = 0
    in_progress: bool = False
    end_of_stream: bool = False
    deleting: bool = False
    next_sequence: int = 0
    last_txid: int = TXID_NONE
    bytes: int = 0
    senders: int = 0
    latest_ms: int = 0
    revisions: int = 0
    revised: tuple[int, ...] = ()
    first_segment: int = DLSN.INITIAL.segment
    first_entry: int = DLSN.INITIAL.entry
    first_slot: int = DLSN.INITIAL.slot
    given_up_segment: int = DLSN.INITIAL.segment
    given_up_entry: int = DLSN.INITIAL.entry
    given_up_slot: int = DLSN.INITIAL.slot
    cold_places: tuple[str, ...] = ()
    cold_tokens: dict[str, str] = {}

    @property
    def first(self) -> DLSN:
        return DLSN(self.first_segment, self.first_entry, self.first_slot)

    @property
    def given_up_to(self) -> DLSN:
        return DLSN(self.given_up_segment, self.given_up_entry, self.given_up_slot)

    def revising(self, before: SegmentDescriptor, after: SegmentDescriptor) -> SegmentsHead:
        """The head once a completed segment is described by `after`."""
        return self.model_copy(
            update={
                "bytes": self.bytes + after.file_bytes - before.file_bytes,
                "revisions": self.revisions + 1,
                "revised": (*self.revised, after.segment)[-_REVISED_KEPT:],
            }
        )

    def without(self, dropped: Sequence[SegmentDescriptor]) -> SegmentsHead:
        """The head once the first completed segments, which these are, are listed no more."""
        return self.model_copy(
            update={
                "begin": dropped[-1].segment + 1,
                "bytes": self.bytes - sum(segment.file_bytes for segment in dropped),
            }
        )

    def truncated(self, first: DLSN, given_up_to: DLSN) -> SegmentsHead:
        """The head that begins with `first`, and has nothing from `given_up_to` up to it."""
        return self.model_copy(
            update={
                "first_segment": first.segment,
                "first_entry": first.entry,
                "first_slot": first.slot,
                "given_up_segment": given_up_to.segment,
                "given_up_entry": given_up_to.entry,
                "given_up_slot": given_up_to.slot,
            }
        )


class CopyDescriptor(Descriptor):
    """A compressed copy of a completed segment (retention/compression.py). `token` makes its file's name unique."""

    codec: Literal["lz4", "zstd"]
    token: str
    bytes: int


class ColdDescriptor(Descriptor):
    """A copy of a completed segment in cold storage (retention/offloading.py), in the directory that `place` names. It
    has the bytes of the compressed copy, where there was one, else of the segment. `token` as that of a copy."""

    place: str
    token: str
    bytes: int


class SegmentDescriptor(Descriptor):
    """One segment. What is said of its end (bytes to last_txid) is set when it is completed.

    `epoch` is that of the writer that made it; `commit_log` is the registry path of the commit log that decides about
    its staged entries (None: it holds none). With `senders`, its marks are all that is known of senders, unless it is
    empty. No body in it expands to more than `decoded_bytes_max`. `entries` counts
    control entries, `records` does not. `compressed` is a copy beside it; since `raw_dropped_ms` (None: not yet)
    readers use that alone. `cold` is a copy in cold storage; since `hot_dropped_ms` readers use that alone.
    `taken_from` is the file, set aside once, whose records it holds (restored.py).
    `latest_ms` is the latest time at which it, or any before it, was completed (None: written before that was kept).
    It never decreases along the list, as `completed_ms` does where a clock went back.
    """

    segment: int
    epoch: int
    directory: EntryName
    start_sequence: int
    created_ms: int
    commit_log: CommitLogPath | None = None
    fsync: bool = True
    senders: bool = False
    decoded_bytes_max: int = DECODED_BYTES_MAX
    completed_ms: int | None = None
    bytes: int = 0
    entries: int = 0
    records: int = 0
    last_txid: int = TXID_NONE
    compressed: CopyDescriptor | None = None
    raw_dropped_ms: int | None = None
    cold: ColdDescriptor | None = None
    hot_dropped_ms: int | None = None
    taken_from: str | None = None
    latest_ms: int | None = None

    @property
    def in_progress(self) -> bool:
        """Whether it is being written, or was left unfinished."""
        return self.completed_ms is None

    @property
    def file(self) -> SegmentName:
        """What readers open."""
        cold = None if self.hot_dropped_ms is None else self.cold_file
        copy = None if self.raw_dropped_ms is None else self.copy_file
        return cold or copy or self.raw_file

    @property
    def file_bytes(self) -> int:
        """Where `file` ends, once the segment is completed."""
        cold = None if self.hot_dropped_ms is None else self.cold
        copy = None if self.raw_dropped_ms is None else self.compressed
        kept = cold or copy
        return self.bytes if kept is None else kept.bytes

    @property
    def raw_file(self) -> SegmentName:
        """The file that its writer wrote. It may have gone since, where a compressed copy is read instead."""
        return SegmentName(self.directory, self.segment, self.epoch)

    @property
    def copy_file(self) -> SegmentName | None:
        """Its compressed copy; None: it has none."""
        made = self.compressed
        return None if made is None else self.raw_file.copied(f"{made.codec}-{made.token}")

    @property
    def cold_file(self) -> SegmentName | None:
        """Its copy in cold storage; None: it has none."""
        made = self.cold
        return None if made is None else self.raw_file.moved(made.place, made.token)

    @property
    def end_sequence(self) -> int:
        """The sequence id after its last record, once it is completed."""
        return self.start_sequence + self.records

    def reaches(self, time_ms: int) -> bool:
        """Whether it, or any before it, was completed at that time or later, or it is in progress. True for all that
        follow one for which it is: for those without `latest_ms`, if no clock went back."""
        completed_ms = self.completed_ms if self.latest_ms is None else self.latest_ms
        return completed_ms is None or completed_ms >= time_ms

    @property
    def node(self) -> str:
        """What its node in the registry is called."""
        if self.in_progress:
            return f"inprogress_{self.segment:018d}"
        return completed_node(self.segment)


def completed_node(segment: int) -> str:
    """The name of the node of a completed segment."""
    return f"logrecs_{segment:018d}"


@dataclass(frozen=True, slots=True)
class LogState:
    """One consistent reading of a log's metadata. `segments` are in order and without a gap."""

    head: SegmentsHead
    head_version: int
    segments: Sequence[SegmentDescriptor]

    @property
    def in_progress(self) -> SegmentDescriptor | None:
        last = self.segments[-1] if self.head.in_progress and self.segments else None
        return last if last is not None and last.in_progress else None

    def find(self, number: int) -> SegmentDescriptor | None:
        """The segment of that number, if it is listed."""
        at = number - self.head.begin
        return self.segments[at] if 0 <= at < len(self.segments) else None


@dataclass(frozen=True, slots=True)
class _Look:
    head: SegmentsHead
    version: int
    nodes: int
    """How many nodes of segments there are at that version."""


@dataclass(frozen=True, slots=True)
class WriterEpoch:
    """Who may change a log: the writer that raised its epoch to `epoch`."""

    directory: str
    epoch: int
    token: str

    def check(self, log: str, head: SegmentsHead) -> None:
        """Raises Fenced, unless `head` still is this owner's. A log that was created again is another log."""
        if (head.directory, head.epoch) != (self.directory, self.epoch):
            raise Fenced(
                f"log '{log}': the writer of epoch {self.epoch} was replaced by that of epoch {head.epoch}; "
                "open a new writer to go on"
            )


@dataclass(frozen=True, slots=True)
class LogOperator:
    """Who may change a log without being its writer: whoever looked at it while its directory was `directory`."""

    directory: str

    def check(self, log: str, head: SegmentsHead) -> None:
        """Raises LogNotFound, unless `head` still is that log's."""
        check_directory(log, self.directory, head.directory)


Change = Callable[[SegmentsHead], tuple[SegmentsHead, list[Operation]]]


class LogMetadata:
    """The nodes of one log. Thread-safe, since it keeps no state but paths."""

    def __init__(self, registry: Registry, namespace: str, log: str) -> None:
        self.registry = registry
        self.namespace = namespace
        self.log = log
        self.path = f"{namespace}/logs/{node_name(log)}"
        self.lock_path = f"{self.path}/lock"
        self.segments_path = f"{self.path}/segments"

    def same(self, directory: str) -> Check:
        """Holds only while it is the log of that directory: versions of one that is made anew begin at 0 again."""
        return Check(f"{self.path}/{directory}", 0)

    def descriptor(self) -> LogDescriptor:
        """Raises LogNotFound."""
        found = self.find_descriptor()
        if found is None or found[0].deleting:
            raise self.not_found()
        return found[0]

    def find_descriptor(self) -> tuple[LogDescriptor, int] | None:
        """The descriptor and its node's version, also of a log that is being deleted."""
        node = self.registry.find(self.path)
        return None if node is None else (LogDescriptor.from_bytes(node.data, path=self.path), node.version)

    def not_found(self) -> LogNotFound:
        told = f"there is no log '{self.log}' in {self.namespace}; {log_command(self.namespace, 'list')} names all"
        return LogNotFound(told, log=self.log)

    def head(self, watch: Watch | None = None) -> tuple[SegmentsHead, int]:
        """The head and its version. Raises LogNotFound."""
        look = self._look(watch)
        return look.head, look.version

    def _look(self, watch: Watch | None = None) -> _Look:
        node = self.registry.find(self.segments_path, watch)
        if node is None:
            raise self.not_found()
        head = SegmentsHead.from_bytes(node.data, path=self.segments_path)
        if head.deleting:
            raise self.not_found()
        return _Look(head, node.version, node.children_count)

    def state(self, known: LogState | None = None, watch: Watch | None = None) -> LogState:
        """The log as it is now. What `known` has read of it is not read again.

        `watch` fires at the next change of any of it. Raises LogNotFound, InconsistentLog.
        """
        before = self._look(watch)
        while True:
            wrong = _contradiction(before)
            unfinished = None if wrong else self._unfinished(before.head, known)
            if not wrong and (unfinished is not None) == before.head.in_progress:
                return self._listed(before, unfinished, known)
            after = self._look()
            if after.version == before.version:
                wrong = wrong or f"segment {before.head.max_segment} is in progress and has no node"
                raise InconsistentLog(
                    f"log '{self.log}': {wrong} under {self.segments_path}; nobody may write it before that is "
                    f"explained: see {log_command(self.namespace, 'inspect', self.log)}"
                )
            before = after

    def whole(self, known: LogState | None = None) -> LogState:
        """As `state`, with every segment read."""
        while True:
            state = self.state(known)
            try:
                return replace(state, segments=tuple(state.segments))
            except SegmentsMoved:
                known = state

    def _unfinished(self, head: SegmentsHead, known: LogState | None) -> SegmentDescriptor | None:
        if not head.in_progress:
            return None
        last = None if known is None or known.head.directory != head.directory else known.in_progress
        if last is not None and last.segment == head.max_segment:
            return last
        path = f"{self.segments_path}/inprogress_{head.max_segment:018d}"
        node = self.registry.find(path)
        return None if node is None else SegmentDescriptor.from_bytes(node.data, path=path)

    def _listed(self, look: _Look, unfinished: SegmentDescriptor | None, known: LogState | None) -> LogState:
        head, version = look.head, look.version

        def load(numbers: Sequence[int]) -> list[SegmentDescriptor]:
            return self._completed(numbers, version)

        kept = _still_known(head, known)
        completed = look.nodes - (unfinished is not None)
        return LogState(head, version, SegmentList(head.begin, completed, unfinished, kept, load))

    def _completed(self, numbers: Sequence[int], version: int) -> list[SegmentDescriptor]:
        paths = [f"{self.segments_path}/{completed_node(number)}" for number in numbers]
        found = []
        for number, path, node in zip(numbers, paths, self.registry.find_all(paths), strict=True):
            if node is None:
                if self._look().version != version:
                    raise SegmentsMoved(f"log '{self.log}': segment {number} has just gone; look again")
                raise InconsistentLog(f"log '{self.log}': segment {number} is listed, and its node is missing")
            found.append(SegmentDescriptor.from_bytes(node.data, path=path))
            if found[-1].segment != number:
                raise InconsistentLog(f"log '{self.log}': {plain_path(path)} describes segment {found[-1].segment}")
        return found

    def change(self, owner: WriterEpoch | LogOperator, change: Change) -> SegmentsHead:
        """Apply `change` to the head of the owner's log, in one transaction that checks the head's version.

        It is tried again whenever somebody else was faster, and after a lost reply: then a change that changes nothing
        any more has been applied. Raises Fenced, LogNotFound, InconsistentLog (it fails though the head stands still),
        and what the registry raises; after RegistryUnreachable and SessionLost nothing was changed.
        """
        lost_reply: OutcomeUnknown | None = None
        tried: int | None = None
        failures = 0
        while failures < ATTEMPTS_MAX:
            try:
                if lost_reply is not None:
                    self.registry.sync(self.segments_path)
                head, version = self.head()
                failures = failures if lost_reply is not None or version == tried else 0
                tried = version
                owner.check(self.log, head)
                after, operations = change(head)
                if lost_reply is not None and after == head:
                    return head
                with failpoint("log.metadata"):
                    head_after = Set(self.segments_path, after.to_bytes(), version)
                    self.registry.commit([self.same(owner.directory), head_after, *operations])
                return after
            except (VersionConflict, NodeMissing, NodeExists, SegmentsMoved):
                failures += 1  # look again: `head` tells which of the two it was, a race or the end of the log
            except OutcomeUnknown as error:
                lost_reply = error
                failures += 1
            except (RegistryUnreachable, SessionLost):
                if lost_reply is not None:  # this request was not sent, but the one before may have been applied
                    raise lost_reply from None
                raise
        if lost_reply is not None:
            raise lost_reply
        raise InconsistentLog(
            f"log '{self.log}': a change of its metadata failed {ATTEMPTS_MAX} times, and nobody else changed it "
            f"meanwhile; look at {self.path}"
        )

    def create_segment(self, owner: WriterEpoch, descriptor: SegmentDescriptor) -> SegmentsHead:
        """Register a segment that is being written from now on. Raises as `change`."""
        return self.change(owner, lambda head: self._registration(head, descriptor))

    def complete_segment(
        self, owner: WriterEpoch, completed: SegmentDescriptor, *, release: bool = False
    ) -> SegmentsHead:
        """Replace the segment in progress by what it came to. With `release`, the owner's lock goes with it.

        Raises as `change`.
        """

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            after, operations = self._completion(head, completed)
            return after, operations + (self.release_operations(owner) if release else [])

        return self.change(owner, change)

    def roll_segment(
        self, owner: WriterEpoch, completed: SegmentDescriptor, following: SegmentDescriptor
    ) -> SegmentsHead:
        """Replace the segment in progress by what it came to, and register the one that follows: both or neither.

        Raises as `change`.
        """

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            between, completion = self._completion(head, completed)
            after, registration = self._registration(between, following)
            return after, completion + registration

        return self.change(owner, change)

    def _registration(self, head: SegmentsHead, descriptor: SegmentDescriptor) -> tuple[SegmentsHead, list[Operation]]:
        if head.max_segment not in (descriptor.segment - 1, descriptor.segment):  # the latter after a lost reply
            raise InconsistentLog(
                f"log '{self.log}': its last segment is {head.max_segment}, its writer is about to begin "
                f"{descriptor.segment}: somebody else changed {self.segments_path}; look at it before you go on"
            )
        after = head.model_copy(update={"max_segment": descriptor.segment, "in_progress": True})
        return after, [Create(f"{self.segments_path}/{descriptor.node}", descriptor.to_bytes())]

    def _completion(self, head: SegmentsHead, completed: SegmentDescriptor) -> tuple[SegmentsHead, list[Operation]]:
        before = completed.model_copy(update={"completed_ms": None}).node
        completed = _dated(completed, head)
        done = head.max_segment > completed.segment or not head.in_progress  # after a lost reply
        end = {
            "in_progress": False,
            "next_sequence": completed.end_sequence,
            "last_txid": completed.last_txid,
            "bytes": head.bytes + completed.bytes,
            "latest_ms": completed.latest_ms,
            "senders": completed.segment if completed.senders and completed.entries else head.senders,
        }
        return (head if done else head.model_copy(update=end)), [
            Delete(f"{self.segments_path}/{before}"),
            Create(f"{self.segments_path}/{completed.node}", completed.to_bytes()),
        ]

    def adopt_segment(self, owner: WriterEpoch, completed: SegmentDescriptor) -> SegmentsHead:
        """Register a segment that is complete already, behind all others. Raises as `change`."""

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            dated = _dated(completed, head)
            between, (registration, *_rest) = self._registration(head, dated)
            if head.max_segment == completed.segment:  # after a lost reply
                return head, [registration]
            end = {
                "in_progress": False,
                "next_sequence": completed.end_sequence,
                "last_txid": max(head.last_txid, completed.last_txid),
                "bytes": head.bytes + completed.file_bytes,
                "latest_ms": dated.latest_ms,
                "senders": completed.segment if completed.senders else head.senders,
            }
            return between.model_copy(update=end), [registration]

        return self.change(owner, change)

    def raise_epoch(self, owner: WriterEpoch, epoch: int) -> WriterEpoch:
        """Let the owner's epoch be `epoch`, which is higher. Raises as `change`."""
        self.change(owner, lambda head: (head.model_copy(update={"epoch": epoch}), []))
        return replace(owner, epoch=epoch)

    def completed_segment(self, segment: int) -> SegmentDescriptor | None:
        """The descriptor of a completed segment, if it is one and was not truncated."""
        path = f"{self.segments_path}/{completed_node(segment)}"
        node = self.registry.find(path)
        return None if node is None else SegmentDescriptor.from_bytes(node.data, path=path)

    def seal(self, owner: WriterEpoch) -> SegmentsHead:
        """Say that nothing follows the completed segments, ever. Raises as `change`."""
        return self.change(owner, lambda head: (head.model_copy(update={"end_of_stream": True}), []))

    def release_operations(self, owner: WriterEpoch) -> list[Operation]:
        """What deletes the owner's lock, if it still is the owner's."""
        node = self.registry.find(self.lock_path)
        if node is None or LockDescriptor.from_bytes(node.data, path=self.lock_path).token != owner.token:
            return []
        return [Delete(self.lock_path, node.version)]


def _dated(completed: SegmentDescriptor, head: SegmentsHead) -> SegmentDescriptor:
    """The segment as it is listed behind those that the head tells of."""
    return completed.model_copy(update={"latest_ms": max(head.latest_ms, completed.completed_ms or 0)})


def _contradiction(look: _Look) -> str | None:
    """What is wrong with a head and the number of its nodes, if anything is."""
    head = look.head
    if look.nodes != head.max_segment - head.begin + 1:
        return (
            f"the head says segments {head.begin} to {head.max_segment}, and there are {look.nodes or 'none'} of them"
        )
    if head.first.segment <= head.max_segment and head.first.segment < head.begin:
        return f"the first record kept is in segment {head.first.segment}, the list begins with {head.begin}"
    return None


def _still_known(head: SegmentsHead, known: LogState | None) -> dict[int, SegmentDescriptor]:
    """What was read of completed segments before, and has not changed since."""
    if known is None or not isinstance(known.segments, SegmentList) or known.head.directory != head.directory:
        return {}
    kept, revisions = known.segments.known, head.revisions - known.head.revisions
    went_back = head.max_segment < known.head.max_segment or head.epoch < known.head.epoch
    if went_back or not 0 <= revisions <= len(head.revised):
        return {}
    for number in head.revised[len(head.revised) - revisions :]:
        kept.pop(number, None)
    for number in range(known.head.begin, head.begin):
        kept.pop(number, None)
    return kept
