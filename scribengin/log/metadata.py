"""The registry's view of logs: typed nodes, and the one way to change them.

<namespace>                       NamespaceDescriptor
  logs/<log>                      LogDescriptor
    lock                          ephemeral: LockDescriptor of the writer
    segments                      SegmentsHead: EVERY change below checks its version and so moves it
      inprogress_<18 digits>      SegmentDescriptor of the one segment that is being written
      logrecs_<18 digits>[.n]     SegmentDescriptor of a completed one, in its n-th revision
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from scribengin.effect import effect
from scribengin.errors import Fenced, InconsistentLog, LogNotFound
from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN
from scribengin.log.entry import DECODED_BYTES_MAX
from scribengin.log.records import TXID_NONE
from scribengin.log.segment import SegmentName
from scribengin.model import Descriptor, node_name
from scribengin_registry.contract import Create, Delete, Operation, Registry, Set, Watch
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

ATTEMPTS_MAX = 20
"""How often a change is tried again when somebody else changed the same log meanwhile."""


class NamespaceDescriptor(Descriptor):
    """What a namespace is bound to: a store, and where it keeps its segments."""

    store: Literal["file"]
    location: str


class LogDescriptor(Descriptor):
    """One log. `directory` is never used again, not even by a log of the same name that is created later.

    `config_version` counts the changes of `config` since the log was created.
    """

    name: str
    directory: str
    created_ms: int
    config: LogConfig
    config_version: int = 0


class LockDescriptor(Descriptor):
    """Who writes the log. `token` tells two writers of one process apart."""

    owner: str
    token: str


class SegmentsHead(Descriptor):
    """What is true of a log's list of segments as a whole.

    `directory` is the log's. `epoch` is that of the writer that may change it; `max_segment` the highest number given
    so far (0: none), and `in_progress` says whether that segment is being written. `next_sequence` and `last_txid` are
    those at the end of the completed segments. Records before `first` were truncated: no record lies from
    `given_up_to` to `first`, so whoever had read up to there, and no further, has lost nothing.
    """

    directory: str
    epoch: int = 0
    max_segment: int = 0
    in_progress: bool = False
    end_of_stream: bool = False
    next_sequence: int = 0
    last_txid: int = TXID_NONE
    first_segment: int = DLSN.INITIAL.segment
    first_entry: int = DLSN.INITIAL.entry
    first_slot: int = DLSN.INITIAL.slot
    given_up_segment: int = DLSN.INITIAL.segment
    given_up_entry: int = DLSN.INITIAL.entry
    given_up_slot: int = DLSN.INITIAL.slot

    @property
    def first(self) -> DLSN:
        return DLSN(self.first_segment, self.first_entry, self.first_slot)

    @property
    def given_up_to(self) -> DLSN:
        return DLSN(self.given_up_segment, self.given_up_entry, self.given_up_slot)

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
    """A compressed copy of a completed segment (copies.py). `token` makes the name of its file like no other."""

    codec: Literal["lz4", "zstd"]
    token: str
    bytes: int


class SegmentDescriptor(Descriptor):
    """One segment. What is said of its end (bytes to last_txid) is set when it is completed.

    `epoch` is that of the writer that made it; `commit_log` is the registry path of the commit log that decides about
    its staged entries (None: it holds none). No body in it expands to more than `decoded_bytes_max`. `entries` counts
    control entries, `records` does not. `compressed` is a copy beside it; since `raw_dropped_ms` (None: not yet)
    readers use that alone. `revision` counts these two changes, and is part of the node's name: so what was read of a
    node holds for ever.
    """

    segment: int
    epoch: int
    directory: str
    start_sequence: int
    created_ms: int
    commit_log: str | None = None
    fsync: bool = True
    decoded_bytes_max: int = DECODED_BYTES_MAX
    completed_ms: int | None = None
    bytes: int = 0
    entries: int = 0
    records: int = 0
    last_txid: int = TXID_NONE
    compressed: CopyDescriptor | None = None
    raw_dropped_ms: int | None = None
    revision: int = 0

    @property
    def in_progress(self) -> bool:
        return self.completed_ms is None

    @property
    def file(self) -> SegmentName:
        """What readers open."""
        return self.raw_file if self.raw_dropped_ms is None or self.copy_file is None else self.copy_file

    @property
    def file_bytes(self) -> int:
        """Where `file` ends, once the segment is completed."""
        return self.bytes if self.raw_dropped_ms is None or self.compressed is None else self.compressed.bytes

    @property
    def raw_file(self) -> SegmentName:
        return SegmentName(self.directory, self.segment, self.epoch)

    @property
    def copy_file(self) -> SegmentName | None:
        made = self.compressed
        return None if made is None else self.raw_file.copied(f"{made.codec}-{made.token}")

    @property
    def end_sequence(self) -> int:
        """The sequence id after its last record, once it is completed."""
        return self.start_sequence + self.records

    @property
    def node(self) -> str:
        if self.in_progress:
            return f"inprogress_{self.segment:018d}"
        return f"logrecs_{self.segment:018d}" + (f".{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class LogState:
    """One consistent reading of a log's metadata. `segments` are in order and without a gap."""

    head: SegmentsHead
    head_version: int
    segments: tuple[SegmentDescriptor, ...]

    @property
    def in_progress(self) -> SegmentDescriptor | None:
        last = self.segments[-1] if self.segments else None
        return last if last is not None and last.in_progress else None


@dataclass(frozen=True, slots=True)
class Owner:
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

    def descriptor(self) -> LogDescriptor:
        """Raises LogNotFound."""
        node = self.registry.find(self.path)
        if node is None:
            raise self.not_found()
        return LogDescriptor.from_bytes(node.data, path=self.path)

    def not_found(self) -> LogNotFound:
        return LogNotFound(f"there is no log '{self.log}' under {self.path}: create it, or list the logs there are")

    def head(self, watch: Watch | None = None) -> tuple[SegmentsHead, int]:
        """The head and its version. Raises LogNotFound."""
        node = self.registry.find(self.segments_path, watch)
        if node is None:
            raise self.not_found()
        return SegmentsHead.from_bytes(node.data, path=self.segments_path), node.version

    def state(self, known: Sequence[SegmentDescriptor] = (), watch: Watch | None = None) -> LogState:
        """Read everything. Completed segments in `known` are not read again: they never change.

        `watch` fires at the next change of any of it. Raises LogNotFound, InconsistentLog.
        """
        completed = {descriptor.node: descriptor for descriptor in known if not descriptor.in_progress}
        before = self.head(watch)
        for _attempt in range(ATTEMPTS_MAX):
            descriptors = self._descriptors(completed)
            after = self.head()
            if after == before and descriptors is not None:
                return LogState(*after, self._checked(after[0], descriptors))
            before = after
        raise InconsistentLog(
            f"log '{self.log}': its segments changed {ATTEMPTS_MAX} times while they were read; try again"
        )

    def _descriptors(self, completed: dict[str, SegmentDescriptor]) -> list[SegmentDescriptor] | None:
        descriptors = []
        for name in self._segment_names():
            if name in completed:
                descriptors.append(completed[name])
                continue
            node = self.registry.find(f"{self.segments_path}/{name}")
            if node is None:
                return None  # changed under our eyes
            descriptors.append(SegmentDescriptor.from_bytes(node.data, path=f"{self.segments_path}/{name}"))
            if not descriptors[-1].in_progress:
                completed[name] = descriptors[-1]  # so that the next attempt has less to read than this one
        return sorted(descriptors, key=lambda descriptor: descriptor.segment)

    def _checked(self, head: SegmentsHead, descriptors: list[SegmentDescriptor]) -> tuple[SegmentDescriptor, ...]:
        numbers = [descriptor.segment for descriptor in descriptors]
        expected = list(range(head.max_segment - len(numbers) + 1, head.max_segment + 1))
        first_kept = head.first.segment
        if numbers != expected or (first_kept <= head.max_segment and (not numbers or numbers[0] > first_kept)):
            raise InconsistentLog(
                f"log '{self.log}': the head says segments {first_kept} to {head.max_segment}, "
                f"{self.segments_path} holds {numbers or 'none'}; nobody may write it before that is explained"
            )
        open_segments = [descriptor.segment for descriptor in descriptors if descriptor.in_progress]
        if open_segments != ([head.max_segment] if head.in_progress else []):
            raise InconsistentLog(
                f"log '{self.log}': segments {open_segments} are in progress, the head says otherwise"
            )
        return tuple(descriptors)

    def change(self, owner: Owner | None, change: Change) -> SegmentsHead:
        """Apply `change` to the head as `owner` (None: as an operator), in one transaction that checks the head's
        version.

        It is tried again when somebody else was faster, and after a lost reply: then a change that changes nothing any
        more has been applied. Raises Fenced, LogNotFound, InconsistentLog, and what the registry raises; after
        RegistryUnreachable and SessionLost nothing was changed.
        """
        lost_reply: OutcomeUnknown | None = None
        for _attempt in range(ATTEMPTS_MAX):
            try:
                if lost_reply is not None:
                    self.registry.sync(self.segments_path)
                head, version = self.head()
                if owner is not None:
                    owner.check(self.log, head)
                after, operations = change(head)
                if lost_reply is not None and after == head:
                    return head
                with effect("log.metadata"):
                    self.registry.commit([Set(self.segments_path, after.to_bytes(), version), *operations])
                return after
            except (VersionConflict, NodeMissing, NodeExists):
                continue  # look again: `head` tells which of the two it was, a race or the end of the log
            except OutcomeUnknown as error:
                lost_reply = error
            except (RegistryUnreachable, SessionLost):
                if lost_reply is not None:  # this request was not sent, but the one before may have been applied
                    raise lost_reply from None
                raise
        raise InconsistentLog(
            f"log '{self.log}': {ATTEMPTS_MAX} changes of its metadata in a row failed; look at {self.path}"
        )

    def create_segment(self, owner: Owner, descriptor: SegmentDescriptor) -> SegmentsHead:
        """Register a segment that is being written from now on. Raises as `change`."""

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            return self._registration(head, descriptor)

        return self.change(owner, change)

    def complete_segment(self, owner: Owner, completed: SegmentDescriptor, *, release: bool = False) -> SegmentsHead:
        """Replace the segment in progress by what it came to. With `release`, the owner's lock goes with it.

        Raises as `change`.
        """

        def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
            after, operations = self._completion(head, completed)
            return after, operations + (self.release_operations(owner) if release else [])

        return self.change(owner, change)

    def roll_segment(self, owner: Owner, completed: SegmentDescriptor, following: SegmentDescriptor) -> SegmentsHead:
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
        end = {"in_progress": False, "next_sequence": completed.end_sequence, "last_txid": completed.last_txid}
        return head.model_copy(update=end), [
            Delete(f"{self.segments_path}/{before}"),
            Create(f"{self.segments_path}/{completed.node}", completed.to_bytes()),
        ]

    def completed_segment(self, segment: int) -> SegmentDescriptor | None:
        """The descriptor of a completed segment, if it is one and was not truncated."""
        for _attempt in range(ATTEMPTS_MAX):  # a revision moves the node, also between the list and the look
            names = [name for name in self._segment_names() if name.split(".")[0] == f"logrecs_{segment:018d}"]
            if not names:
                return None
            path = f"{self.segments_path}/{names[0]}"
            if (node := self.registry.find(path)) is not None:
                return SegmentDescriptor.from_bytes(node.data, path=path)
        raise InconsistentLog(f"log '{self.log}': segment {segment} changed {ATTEMPTS_MAX} times while it was read")

    def _segment_names(self) -> list[str]:
        try:
            return list(self.registry.children(self.segments_path))
        except NodeMissing:
            raise self.not_found() from None

    def seal(self, owner: Owner) -> SegmentsHead:
        """Say that nothing follows the completed segments, ever. Raises as `change`."""
        return self.change(owner, lambda head: (head.model_copy(update={"end_of_stream": True}), []))

    def release_operations(self, owner: Owner) -> list[Operation]:
        """What deletes the owner's lock, if it still is the owner's."""
        node = self.registry.find(self.lock_path)
        if node is None or LockDescriptor.from_bytes(node.data, path=self.lock_path).token != owner.token:
            return []
        return [Delete(self.lock_path, node.version)]
