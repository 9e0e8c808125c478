"""Names and states of a file sink: where its files stand, and what its `merge` node says. Pure.

    <path>/[<partition>/]part-<stream>-<sequence>.jsonl   final files: what everybody reads
    <path>/_scribengin/staged/<stream>/<segment>          private to one attempt
    <path>/_scribengin/committed/<stream>/<segment>       committed, waiting to be merged
    <path>/_scribengin/merging/<stream>/<merge>           a merged file, before it is a final one

A segment is named <incarnation>-<epoch>-<round>-<part>.<suffix>, and @<partition> where there are partitions. Epochs
begin anew when a dataflow is deleted and submitted again on the same directory; the incarnation grows then, so names
are never used twice, and their order is that of writing.

The `merge` node of a stream is its manifest: which committed segments final files hold. It stays small, because
segments are committed in the order of their names, and merged in that order within each partition. So one name says "up
to here everything is final", and one more is needed only for a partition that has got ahead of an older segment that
still waits in another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from scribengin.base.model import Descriptor, EntryName, PathWithin

PRIVATE = "_scribengin"
_SEGMENT = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)\.([\w.]+)(?:@(.+))?")
_MERGE = re.compile(r"(\d+)-(\d+)-[0-9a-f]+")
_FINAL = re.compile(r"part-(\d+)-(\d+)\.[\w.]+")
NAME_BYTES_MAX = 255
"""What file systems take as a name."""
AHEAD_MAX = 500
"""So many partitions may be ahead of the oldest segment that waits; then that one is merged, whatever its size."""
SEGMENTS_A_MERGE_MAX = 500
"""So many files are open at once, and as many names stand in the `merge` node."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """A segment's name and its place in the order of a stream. `round` and `part` count from 0 within an epoch.

    `suffix` is that of the final file it goes to, and tells the format. `partition` is the directory of that file,
    relative to the sink's path; "" is that path itself.
    """

    incarnation: int
    epoch: int
    round: int
    part: int
    suffix: str
    partition: str = ""

    @classmethod
    def parse(cls, name: str) -> SegmentKey | None:
        """None for what is no segment."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        incarnation, epoch, round_, part = map(int, match.groups()[:4])
        return cls(incarnation, epoch, round_, part, match[5], unquote(match[6] or ""))

    @property
    def name(self) -> str:
        number = f"{self.incarnation}-{self.epoch:06d}-{self.round:09d}-{self.part:04d}.{self.suffix}"
        return f"{number}@{quote(self.partition, safe='=')}" if self.partition else number

    @property
    def attempt(self) -> tuple[int, int]:
        """What grows with every attempt."""
        return self.incarnation, self.epoch


def segment_keys(names: Iterable[str]) -> list[SegmentKey]:
    """The segments among names, in the order they were written in."""
    return sorted(key for name in names if (key := SegmentKey.parse(name)) is not None)


class PendingMerge(Descriptor):
    """A merge that has been decided: the final file `file` will hold `segments`, and holds them once it is there.

    Until it has been moved to its place it stands under `temporary`.
    """

    file: PathWithin
    temporary: EntryName
    segments: tuple[EntryName, ...]
    bytes: int


class MergeDescriptor(Descriptor):
    """The `merge` node of one sink stream. A segment is in a final file if it is not after `merged`, or not after the
    one of its partition in `ahead`; nothing else is.

    `sequence` is the number of the next final file.
    """

    format: int = 2
    incarnation: int
    sequence: int = 0
    merged: str | None = None
    ahead: tuple[str, ...] = ()
    pending: PendingMerge | None = None

    def holds(self, key: SegmentKey) -> bool:
        """Whether the segment is in a final file, or in the one that is on its way."""
        pending = self._last_pending
        return self.is_final(key) or (pending is not None and key.partition == pending.partition and key <= pending)

    def is_final(self, key: SegmentKey) -> bool:
        """Whether the segment is in a final file for good, so that the segment itself is a remainder."""
        ends = (self._last_merged, self._last_ahead.get(key.partition))
        return any(end is not None and key <= end for end in ends)

    def newest(self) -> list[SegmentKey]:
        """The last segment that went into a merge, if any did."""
        return self._done()[-1:]

    def begun(self, pending: PendingMerge, sequence: int) -> MergeDescriptor:
        """The state once `pending`, final file number `sequence`, has been decided."""
        return self.model_copy(update={"pending": pending, "sequence": sequence})

    def finished(self, waiting: SegmentKey | None) -> MergeDescriptor:
        """The state once the pending file is in place and its segments are gone. `waiting` is the oldest committed
        segment that neither it nor another final file holds: no segment before that one is still to come."""
        if self.pending is None:
            return self
        done = self._done()
        merged = [key for key in done if waiting is None or key < waiting][-1:]
        latest = {key.partition: key for key in done if not merged or key > merged[0]}
        return self.model_copy(
            update={
                "pending": None,
                "merged": merged[0].name if merged else None,
                "ahead": tuple(key.name for key in latest.values()),
                "sequence": self.sequence + 1,
            }
        )

    @property
    def _last_merged(self) -> SegmentKey | None:
        return None if self.merged is None else _parsed(self.merged)

    @property
    def _last_ahead(self) -> dict[str, SegmentKey]:
        return _by_partition(self.ahead)

    @property
    def _last_pending(self) -> SegmentKey | None:
        return None if self.pending is None else _parsed(self.pending.segments[-1])

    def _done(self) -> list[SegmentKey]:
        """The last segments that are in final files or on their way, in order."""
        ends = (self._last_merged, *self._last_ahead.values(), self._last_pending)
        return sorted(end for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """Where the files of one stream of a sink stand. `root` is the sink's path, `columns` those that the directories
    of its partitions name."""

    root: str
    stream: str
    columns: tuple[str, ...] = ()

    @property
    def staged(self) -> str:
        return f"{self.root}/{PRIVATE}/staged/{self.stream}"

    @property
    def committed(self) -> str:
        return f"{self.root}/{PRIVATE}/committed/{self.stream}"

    @property
    def merging(self) -> str:
        return f"{self.root}/{PRIVATE}/merging/{self.stream}"

    def directory(self, partition: str) -> str:
        """Where the final files of a partition stand."""
        return f"{self.root}/{partition}" if partition else self.root

    def final_name(self, sequence: int, key: SegmentKey) -> str:
        """The name of the final file that a segment goes to, relative to the root."""
        name = f"part-{int(self.stream):05d}-{sequence:08d}.{key.suffix}"
        return f"{key.partition}/{name}" if key.partition else name

    def final_sequences(self, names: Iterable[str]) -> dict[int, str]:
        """The final files of this stream among the names in one directory, by number."""
        matches = [match for name in names if (match := _FINAL.fullmatch(name)) is not None]
        return {
            int(match[2]): match[0]
            for match in sorted(matches, key=lambda m: int(m[2]))
            if int(match[1]) == int(self.stream)
        }

    def finals(self, names: Iterable[str]) -> list[str]:
        """The final files of this stream among names relative to the root, in the order they were made in.

        What stands in other directories than those of partitions belongs to another sink.
        """
        found = []
        for name in names:
            directory, _, file = name.rpartition("/")
            match = _FINAL.fullmatch(file)
            columns = tuple(part.partition("=")[0] for part in directory.split("/")) if directory else ()
            if match is not None and int(match[1]) == int(self.stream) and columns == self.columns:
                found.append((int(match[2]), name))
        return [name for _, name in sorted(found)]


def merge_name(incarnation: int, version: int, token: str) -> str:
    """The name of a merged file that was made when the `merge` node had that version."""
    return f"{incarnation}-{version}-{token}"


def abandoned_merges(names: Iterable[str], incarnation: int, version: int) -> list[str]:
    """Merged files that can never be decided on any more: the node has moved on since they were made, without them.

    To be asked with a node that has no merge pending.
    """
    found = [(match, name) for name in names if (match := _MERGE.fullmatch(name)) is not None]
    return [name for match, name in found if (int(match[1]), int(match[2])) < (incarnation, version)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A committed segment that waits to be merged: its size, and for how long it has been seen waiting."""

    key: SegmentKey
    size_bytes: int
    age_s: float


def due(
    waiting: Sequence[Waiting], *, merge_bytes: int, merge_age_s: float, idle: bool, ahead: int = 0
) -> list[SegmentKey]:
    """What to merge now: the oldest segments of a partition, up to about `merge_bytes`; nothing while they are few and
    young. `waiting` is in order. Always the oldest ones, so that final files keep the order of their partition.

    `ahead`: how many partitions the merge node has to name because of the oldest segment that waits.
    """
    partitions: dict[str, list[Waiting]] = {}
    for segment in waiting:
        partitions.setdefault(segment.key.partition, []).append(segment)
    for segments in partitions.values():
        taken: list[SegmentKey] = []
        size = 0
        for segment in segments[:SEGMENTS_A_MERGE_MAX]:
            if size >= merge_bytes or segment.key.suffix != segments[0].key.suffix:
                break
            taken.append(segment.key)
            size += segment.size_bytes
        another = any(segment.key.suffix != segments[0].key.suffix for segment in segments)
        full = size >= merge_bytes or len(taken) == SEGMENTS_A_MERGE_MAX or another
        old = any(segment.age_s >= merge_age_s for segment in segments)
        if full or old or idle or ahead >= AHEAD_MAX:
            return taken
    return []


@lru_cache(maxsize=64)
def _parsed(name: str) -> SegmentKey | None:
    return SegmentKey.parse(name)


@lru_cache(maxsize=16)
def _by_partition(names: tuple[str, ...]) -> dict[str, SegmentKey]:
    """The segments of those names; asked for every segment of a listing, so it is kept. Not to be changed."""
    return {key.partition: key for key in segment_keys(names)}
