"""Names and states of a file sink: where its files stand, and what its `merge` node says. Pure.

    <path>/part-<stream>-<sequence>.jsonl             final files: what everybody reads
    <path>/_scribengin/staged/<stream>/<segment>      private to one attempt
    <path>/_scribengin/committed/<stream>/<segment>   committed, waiting to be merged
    <path>/_scribengin/merging/<stream>/<merge>       a merged file, before it is a final one

A segment is named <generation>-<epoch>-<round>-<part>. Epochs begin anew when a dataflow is deleted and submitted again
on the same directory; the generation grows then, so names are never used twice, and their order is that of writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scribengin.model import Descriptor

PRIVATE = "_scribengin"
_SEGMENT = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)")
_MERGE = re.compile(r"(\d+)-(\d+)-[0-9a-f]+")
_FINAL = re.compile(r"part-(\d+)-(\d+)\.\w+")
SEGMENTS_A_MERGE_MAX = 500
"""So many files are open at once, and as many names stand in the `merge` node."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """A segment's name and its place in the order of a stream. `round` and `part` count from 0 within an epoch."""

    generation: int
    epoch: int
    round: int
    part: int

    @classmethod
    def parse(cls, name: str) -> SegmentKey | None:
        """None for what is no segment."""
        match = _SEGMENT.fullmatch(name)
        return cls(*map(int, match.groups())) if match else None

    @property
    def name(self) -> str:
        return f"{self.generation}-{self.epoch:06d}-{self.round:09d}-{self.part:04d}"

    @property
    def attempt(self) -> tuple[int, int]:
        """What grows with every attempt."""
        return self.generation, self.epoch


def segment_keys(names: Iterable[str]) -> list[SegmentKey]:
    """The segments among names, in the order they were written in."""
    return sorted(key for name in names if (key := SegmentKey.parse(name)) is not None)


class PendingMerge(Descriptor):
    """A merge that has been decided: the final file `file` will hold `segments`, and holds them once it is there.

    Until it has been moved to its place it stands under `temporary`.
    """

    file: str
    temporary: str
    segments: tuple[str, ...]
    bytes: int


class MergeDescriptor(Descriptor):
    """The `merge` node of one sink stream. Everything up to the segment `merged` is in final files, nothing else is.

    `sequence` is the number of the next final file.
    """

    generation: int
    sequence: int = 0
    merged: str | None = None
    pending: PendingMerge | None = None

    def holds(self, key: SegmentKey) -> bool:
        """Whether the segment is in a final file, or in the one that is on its way."""
        last = self.pending.segments[-1] if self.pending is not None else self.merged
        return _at_most(key, last)

    def is_final(self, key: SegmentKey) -> bool:
        """Whether the segment is in a final file for good, so that the segment itself is a remainder."""
        return _at_most(key, self.merged)

    def newest(self) -> list[SegmentKey]:
        """The last segment that went into a merge, if any did."""
        names = [self.merged, *(self.pending.segments if self.pending is not None else ())]
        return segment_keys(name for name in names if name is not None)[-1:]

    def begun(self, pending: PendingMerge, sequence: int) -> MergeDescriptor:
        """The state once `pending`, final file number `sequence`, has been decided."""
        return self.model_copy(update={"pending": pending, "sequence": sequence})

    def finished(self) -> MergeDescriptor:
        """The state once the pending file is in place and its segments are gone."""
        if self.pending is None:
            return self
        done = {"pending": None, "merged": self.pending.segments[-1], "sequence": self.sequence + 1}
        return self.model_copy(update=done)


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """Where the files of one stream of a sink stand. `root` is the sink's path, `suffix` is jsonl or txt."""

    root: str
    stream: str
    suffix: str

    @property
    def staged(self) -> str:
        return f"{self.root}/{PRIVATE}/staged/{self.stream}"

    @property
    def committed(self) -> str:
        return f"{self.root}/{PRIVATE}/committed/{self.stream}"

    @property
    def merging(self) -> str:
        return f"{self.root}/{PRIVATE}/merging/{self.stream}"

    def final_name(self, sequence: int) -> str:
        """The name of a final file."""
        return f"part-{int(self.stream):05d}-{sequence:08d}.{self.suffix}"

    def final_sequences(self, names: Iterable[str]) -> dict[int, str]:
        """The final files of this stream among names, by number."""
        matches = [match for name in names if (match := _FINAL.fullmatch(name)) is not None]
        return {
            int(match[2]): match[0]
            for match in sorted(matches, key=lambda m: int(m[2]))
            if int(match[1]) == int(self.stream)
        }


def merge_name(generation: int, version: int, token: str) -> str:
    """The name of a merged file that was made when the `merge` node had that version."""
    return f"{generation}-{version}-{token}"


def abandoned_merges(names: Iterable[str], generation: int, version: int) -> list[str]:
    """Merged files that can never be decided on any more: the node has moved on since they were made, without them.

    To be asked with a node that has no merge pending.
    """
    found = [(match, name) for name in names if (match := _MERGE.fullmatch(name)) is not None]
    return [name for match, name in found if (int(match[1]), int(match[2])) < (generation, version)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A committed segment that waits to be merged: its size, and for how long it has been seen waiting."""

    key: SegmentKey
    size_bytes: int
    age_s: float


def due(waiting: Sequence[Waiting], *, merge_bytes: int, merge_age_s: float, idle: bool) -> list[SegmentKey]:
    """What to merge now: the oldest segments, up to about `merge_bytes`; nothing while they are few and young.

    `waiting` is in order. Always the oldest ones, so that final files keep the order of the stream.
    """
    taken: list[SegmentKey] = []
    size = 0
    for segment in waiting[:SEGMENTS_A_MERGE_MAX]:
        if size >= merge_bytes:
            break
        taken.append(segment.key)
        size += segment.size_bytes
    full = size >= merge_bytes or len(taken) == SEGMENTS_A_MERGE_MAX
    old = any(segment.age_s >= merge_age_s for segment in waiting)
    return taken if full or old or idle else []


def _at_most(key: SegmentKey, name: str | None) -> bool:
    last = SegmentKey.parse(name) if name is not None else None
    return last is not None and key <= last
