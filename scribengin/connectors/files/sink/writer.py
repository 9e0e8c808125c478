"""Writes one stream of a file sink: staged segments first, which become committed ones by rename.

A stale writer cannot hurt. What it stages bears its own epoch, so it never meets a successor's files. The successor
deletes what was staged and not committed, so a late `complete_commit` finds nothing to rename, and says so.

What a crash leaves:

| before the end of  | what                                        | the next `recover`                               |
|--------------------|---------------------------------------------|--------------------------------------------------|
| write, prepare     | staged segments that no commit log names    | deletes them                                     |
| the commit         | the same                                    | deletes them                                     |
| a rename           | staged segments that the commit log names   | renames them                                     |
| its sync           | a rename that the disk may not remember     | renames again, unless a merge has taken it since |

Readers see a rename before the disk is sure to remember it. So nothing follows in a partition before it is: what a
power failure takes back for a while is the end of what they have seen, and no more than one segment of each partition.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, EntryName, plain_path
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.files.formats.writing import Content, FileEncoder, FileWriting
from scribengin.connectors.files.sink.partitions import FilePartitionConfig
from scribengin.connectors.files.sink.segments import (
    NAME_BYTES_MAX,
    MergeDescriptor,
    SegmentKey,
    StreamLayout,
    segment_keys,
)
from scribengin.errors import DataflowError, RecordTooLarge, StaleOwner
from scribengin.filesystems.contract import DurableFileSystem, NewFile
from scribengin_registry.contract import Registry

KIND = "hdfs"
FINISHING_THREADS = 16


class StagedSegment(Descriptor):
    """One file of a round: its name, and what it holds. `crc32` is zlib's."""

    name: EntryName
    bytes: int
    records: int
    crc32: int

    @property
    def key(self) -> SegmentKey | None:
        return SegmentKey.parse(self.name)


class StagedRound(Descriptor):
    """The data of this connector's CommitDescriptor."""

    stream: str
    segments: tuple[StagedSegment, ...]


class _OpenSegment:
    """A segment that is being written. Its checksum is that of the file's bytes, whatever the format."""

    def __init__(self, key: SegmentKey, file: NewFile, writing: FileWriting) -> None:
        self.key = key
        self._file = file
        self._writing = writing
        self._encoder: FileEncoder | None = None
        self._bytes = self._records = self._crc32 = 0

    @property
    def size_bytes(self) -> int:
        """About how large the file will be."""
        return self._bytes + (self._encoder.waiting_bytes if self._encoder else 0)

    def takes(self, content: Content) -> bool:
        return self._encoder is None or self._encoder.takes(content)

    def append(self, content: Content, records: int) -> None:
        if self._encoder is None:
            self._encoder = self._writing.encoder(content, self._write)
        self._encoder.append(content)
        self._records += records

    def finish(self) -> StagedSegment:
        """Make the file complete and durable."""
        if self._encoder is not None:
            self._encoder.finish()
        self._file.sync()
        self._file.close()
        return StagedSegment(name=self.key.name, bytes=self._bytes, records=self._records, crc32=self._crc32)

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()
        self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.append(data)
        self._bytes += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)


@dataclass(frozen=True, slots=True)
class FileShape:
    """How the files of a sink are made: their format, their partitions, and when a round begins another segment."""

    writing: FileWriting
    partition: FilePartitionConfig | None
    part_bytes: int

    def check(self, batch: pa.RecordBatch, *, what: str) -> list[str]:
        """The partitions of the rows. Raises as `pieces`, but not for too many of them."""
        self.writing.check(batch, what=what)
        return [] if self.partition is None else self.partition.names(batch, what=what)

    def pieces(self, batch: pa.RecordBatch, *, what: str) -> list[tuple[str, int, Content]]:
        """For each partition: its name, how many records, and what to append to its file. Raises as `content` does."""
        rows_of = [("", batch)] if self.partition is None else self.partition.split(batch, what=what)
        return [(name, rows.num_rows, self.writing.content(rows, what=what)) for name, rows in rows_of]


class FileSinkWriter(SinkStreamWriter):
    """One attempt's writer of one stream."""

    def __init__(
        self,
        files: DurableFileSystem,
        layout: StreamLayout,
        registry: Registry,
        node: str,
        attempt: Attempt,
        shape: FileShape,
    ) -> None:
        """`node` is the registry path of the stream's `merge` node."""
        self._files = files
        self._layout = layout
        self._registry = registry
        self._node = node
        self._attempt = attempt
        self._shape = shape
        self._what = f"{layout.root} (stream {layout.stream})"
        self._segments: list[_OpenSegment] = []
        self._current: dict[str, _OpenSegment] = {}
        self._prepared = False
        self._incarnation: int | None = None
        self._round = 0

    def recover(self, committed: CommitDescriptor | None) -> None:
        self.close()
        self._next_round()
        staged = segment_keys(self._files.names(self._layout.staged))
        known = self._known_segments(staged)
        state = self._state()
        self._refuse_if_stale([*known, *state.newest()], state.incarnation)
        named = self._named(committed)
        for segment in named:
            self._verify(segment, state)
        self._complete_all(named, state)
        kept = {segment.name for segment in named}
        for key in staged:
            if key.name not in kept:
                self._drop(key.name)
        self._begin([*known, *state.newest()], state.incarnation)

    @property
    def payload_bytes_max(self) -> int | None:
        return self._shape.writing.payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        incarnation = self._writable()
        if batch.num_rows:
            self._refuse_long_names(self._shape.check(batch, what=self._what), incarnation)

    def write(self, batch: pa.RecordBatch) -> None:
        incarnation = self._writable()
        if not batch.num_rows:
            return
        pieces = self._shape.pieces(batch, what=self._what)
        self._refuse_if_too_many([partition for partition, _, _ in pieces], incarnation)
        for partition, records, content in pieces:
            self._open_segment(partition, content, incarnation).append(content, records)

    def prepare_commit(self) -> CommitDescriptor | None:
        if not self._segments:
            return None
        segments = self._finish_all()
        self._files.sync_directory(self._layout.staged)
        for described in segments:
            if self._files.size(f"{self._layout.staged}/{described.name}") is None:
                raise self._deleted(described.name)
        self._prepared = True
        data = StagedRound(stream=self._layout.stream, segments=segments).model_dump(mode="json")
        return CommitDescriptor(kind=KIND, records=sum(s.records for s in segments), data=data)

    def complete_commit(self, committed: CommitDescriptor) -> None:
        named = self._named(committed)
        self._complete_all(named, None)
        if {segment.name for segment in named} >= {segment.key.name for segment in self._segments}:
            self._next_round()

    def rollback(self) -> None:
        self.close()
        for segment in self._segments:
            self._drop(segment.key.name)
        self._next_round()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    # -- rounds

    def _writable(self) -> int:
        """The incarnation that is written under."""
        if self._incarnation is None or self._prepared:
            raise DataflowError(f"{self._what}: records can be written after recover(), and before prepare_commit()")
        return self._incarnation

    def _known_segments(self, staged: list[SegmentKey]) -> list[SegmentKey]:
        """All there are, but for those that a merge has taken: to be asked before the merge node is read."""
        return staged + segment_keys(self._files.names(self._layout.committed))

    def _begin(self, known: list[SegmentKey], incarnation: int) -> None:
        """Rounds are counted from after the last one that left anything, should the attempt be opened twice."""
        self._incarnation = incarnation
        mine = [key.round + 1 for key in known if key.attempt == (incarnation, self._attempt.epoch)]
        self._round = max([self._round, *mine])

    def _next_round(self) -> None:
        self._round += bool(self._segments)
        self._segments = []
        self._current = {}
        self._prepared = False

    def _finish_all(self) -> tuple[StagedSegment, ...]:
        """Side by side, because each waits for a disk or, on HDFS, for the NameNode to hear of its last block."""
        if len(self._segments) == 1:
            return (self._segments[0].finish(),)
        with ThreadPoolExecutor(min(len(self._segments), FINISHING_THREADS), "finishing") as threads:
            return tuple(threads.map(_OpenSegment.finish, self._segments))

    def _refuse_if_too_many(self, partitions: list[str], incarnation: int) -> None:
        """What cannot be staged is refused before anything of its batch is."""
        if self._shape.partition is None:
            return
        self._refuse_long_names(partitions, incarnation)
        count = len(self._current.keys() | set(partitions))
        if count > self._shape.partition.round_max:
            raise self._shape.partition.too_many(count, self._what)

    def _refuse_long_names(self, partitions: list[str], incarnation: int) -> None:
        for partition in partitions:
            name = self._key(incarnation, partition).name
            if len(name) > NAME_BYTES_MAX:
                raise RecordTooLarge(f"{self._what}: '{partition}' is too long for a partition's name; shorten it")

    def _open_segment(self, partition: str, content: Content, incarnation: int) -> _OpenSegment:
        """The segment that `content` goes to: one that is large, or does not take it, is followed by another."""
        segment = self._current.get(partition)
        if segment is None or segment.size_bytes >= self._shape.part_bytes or not segment.takes(content):
            key = self._key(incarnation, partition)
            segment = _OpenSegment(key, self._create(key), self._shape.writing)
            self._segments.append(segment)
            self._current[partition] = segment
        return segment

    def _key(self, incarnation: int, partition: str) -> SegmentKey:
        suffix = self._shape.writing.suffix
        return SegmentKey(incarnation, self._attempt.epoch, self._round, len(self._segments), suffix, partition)

    def _create(self, key: SegmentKey) -> NewFile:
        try:
            return self._files.create(f"{self._layout.staged}/{key.name}")
        except FileExistsError:
            raise DataflowError(
                f"{self._what}: somebody else writes under epoch {key.epoch}; take the task over again"
            ) from None
        except FileNotFoundError:
            raise DataflowError(
                f"{self._layout.staged} is gone; submit the dataflow again to have it created"
            ) from None

    # -- completing

    def _named(self, committed: CommitDescriptor | None) -> tuple[StagedSegment, ...]:
        if committed is None:
            return ()
        if committed.kind != KIND:
            raise DataflowError(f"{self._what}: its commit log names a round of a '{committed.kind}' sink; restore it")
        return StagedRound.model_validate(committed.data).segments

    def _complete_all(self, segments: tuple[StagedSegment, ...], state: MergeDescriptor | None) -> None:
        """Rename the segments of a round, and be sure that the disk remembers it. `state` as for `_complete`."""
        unsure: set[str] = set()
        for segment in segments:
            partition = segment.key.partition if segment.key is not None else ""
            if partition in unsure:
                self._files.sync_directory(self._layout.committed)
                unsure.clear()
            if self._complete(segment, state):
                unsure.add(partition)
        if unsure:
            self._files.sync_directory(self._layout.committed)

    def _complete(self, segment: StagedSegment, state: MergeDescriptor | None) -> bool:
        """Rename a segment, unless that was done before: whether it is there by a rename that the disk may forget.
        `state` is the merge node if the caller has read it."""
        staged, committed = f"{self._layout.staged}/{segment.name}", f"{self._layout.committed}/{segment.name}"
        if state is not None and _merged(segment, state):
            self._drop(segment.name)  # a rename that the disk forgot: the segment is in a final file already
            return False
        try:
            with failpoint("files.complete"):
                self._files.rename(staged, committed)
            return True
        except FileExistsError:
            raise DataflowError(
                f"{self._what}: segment {segment.name} is staged and committed; delete the staged one"
            ) from None
        except FileNotFoundError:
            if self._files.size(committed) is not None:
                return True  # by whoever was here before: nobody knows yet whether the disk will remember it
            if not _merged(segment, self._state()):
                raise self._deleted(segment.name) from None
            return False

    def _drop(self, name: str) -> None:
        with failpoint("files.drop"):
            self._files.remove(f"{self._layout.staged}/{name}")

    def _verify(self, segment: StagedSegment, state: MergeDescriptor) -> None:
        """Hold a staged segment that another process wrote against what its commit says of it."""
        path = f"{self._layout.staged}/{segment.name}"
        if _merged(segment, state) or self._files.size(path) is None:
            return
        crc32 = size = 0
        for block in self._files.snapshots([path])[0]:
            crc32, size = zlib.crc32(block, crc32), size + len(block)
        if (size, crc32) != (segment.bytes, segment.crc32):
            raise DataflowError(
                f"{path} is not what was committed: {size} bytes with checksum {crc32:08x}, and {segment.bytes} with "
                f"{segment.crc32:08x} were; the disk lost it, restore it from elsewhere"
            )

    def _state(self) -> MergeDescriptor:
        return merge_state(self._registry, self._node, self._what)

    def _refuse_if_stale(self, known: list[SegmentKey], incarnation: int) -> None:
        """A segment that is merged out of order would be lost, so nobody may begin behind what is there."""
        epoch = max((key.epoch for key in known if key.incarnation == incarnation), default=0)
        if epoch > self._attempt.epoch:
            mine = f"{self._attempt.owner} has epoch {self._attempt.epoch}"
            raise self._refusal(
                f"{self._what}: epoch {epoch} has written it, and {mine}",
                f"delete {self._node} if commit logs were deleted",
            )

    def _deleted(self, name: str) -> DataflowError:
        return self._refusal(
            f"{self._what}: segment {name} of {self._attempt.owner} is gone, and nothing of it is visible",
            f"somebody else has deleted it from {self._layout.staged}; see who writes there",
        )

    def _refusal(self, what: str, if_owner: str) -> DataflowError:
        """StaleOwner if another owner is behind it, which is no trouble; else something is wrong with the files."""
        node = self._registry.find(self._attempt.commit_log)
        epoch = None if node is None else CommitLog.from_bytes(node.data, path=self._attempt.commit_log).epoch
        if epoch == self._attempt.epoch:
            return DataflowError(f"{what}; {if_owner}")
        return StaleOwner(f"{what}; the stream has another owner now")


def merge_state(registry: Registry, node: str, what: str) -> MergeDescriptor:
    """The `merge` node. Raises DataflowError when the stream was never created."""
    found = registry.find(node)
    if found is None:
        raise DataflowError(
            f"{what}: there is no {plain_path(node)}; submit the dataflow, which creates the streams of its sinks"
        )
    return MergeDescriptor.from_bytes(found.data, path=node)


def _merged(segment: StagedSegment, state: MergeDescriptor) -> bool:
    """Whether a segment went into a final file: as the node says, or under a node before this one."""
    key = segment.key
    return key is not None and (state.holds(key) or key.incarnation < state.incarnation)
