"""What the registry says of a log, taken down even where it contradicts itself, and what is wrong with it. Read only.

A writer or reader raises at the first contradiction (InconsistentLog). Who has to find out what happened needs all of
them, beside everything that is not wrong: so here each is a `Finding`, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scribengin.errors import DescriptorUnreadable
from scribengin.log.metadata.segments import (
    LockDescriptor,
    LogDescriptor,
    LogMetadata,
    SegmentDescriptor,
    SegmentsHead,
    completed_node,
)
from scribengin_registry.errors import NodeMissing


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. Where: in a segment, at an entry, at a byte of the file, as far as that can be said."""

    what: str
    segment: int | None = None
    entry: int | None = None
    offset: int | None = None

    @property
    def where(self) -> str:
        """As in `segment 2, entry 3 (byte 4,096)`; `metadata` when it is not in one segment."""
        if self.segment is None:
            return "metadata"
        entry = "" if self.entry is None else f", entry {self.entry}"
        return f"segment {self.segment}{entry}" + ("" if self.offset is None else f" (byte {self.offset:,})")

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class MetadataCheck:
    """One reading of a log's metadata. `segments` are all that could be read, in order; `writer` holds the lock;
    `named`: the node is there that tells the log from others of its name."""

    log: LogDescriptor
    head: SegmentsHead
    head_version: int
    segments: tuple[SegmentDescriptor, ...]
    writer: str | None
    named: bool
    findings: tuple[Finding, ...]

    @property
    def in_progress(self) -> SegmentDescriptor | None:
        """The last segment that is not complete."""
        return next((segment for segment in reversed(self.segments) if segment.in_progress), None)


def check_metadata(metadata: LogMetadata) -> MetadataCheck:
    """Read a log's metadata, and hold it against itself. Raises LogNotFound, DescriptorUnreadable (the log's own node
    or its head: without them there is nothing to hold anything against), and what the registry raises.
    """
    log = metadata.descriptor()
    (head, version), nodes = _consistent(metadata)
    segments: list[SegmentDescriptor] = []
    findings: list[Finding] = []
    for name, data in nodes:
        try:
            segment = SegmentDescriptor.from_bytes(data, path=f"{metadata.segments_path}/{name}")
        except DescriptorUnreadable as error:
            findings.append(Finding(str(error)))
            continue
        if segment.node != name:
            findings.append(Finding(f"the node {name} describes what belongs to {segment.node}", segment.segment))
        segments.append(segment)
    segments.sort(key=lambda segment: (segment.segment, segment.in_progress))
    if log.directory != head.directory:
        findings.append(Finding(f"the log's directory is {log.directory}, its head says {head.directory}"))
    named = metadata.registry.find(metadata.same(head.directory).path) is not None
    if not named:
        findings.append(Finding(f"the empty node {head.directory} is missing: nobody can write the log without it"))
    findings.extend(contradictions(head, segments))
    return MetadataCheck(log, head, version, tuple(segments), _writer(metadata, findings), named, tuple(findings))


def contradictions(head: SegmentsHead, segments: Sequence[SegmentDescriptor]) -> Iterator[Finding]:
    """What is wrong with a list of segments, sorted, under that head. Pure."""
    for rule in _RULES:
        yield from rule(head, segments)


def _numbers(head: SegmentsHead, segments: Sequence[SegmentDescriptor]) -> Iterator[Finding]:
    for before, after in pairwise(segments):
        missing = after.segment - before.segment - 1
        if missing < 0:
            yield Finding("there are two segments of this number", after.segment)
        elif missing:
            which = f"segment {before.segment + 1} is" if missing == 1 else f"{missing} segments are"
            yield Finding(f"{which} missing between segments {before.segment} and {after.segment}")
    if segments and segments[0].segment != head.begin:
        yield Finding(
            f"the head says that segment {head.begin} is the first, the list begins with {segments[0].segment}"
        )
    last = segments[-1].segment if segments else None
    if last is not None and last != head.max_segment:
        yield Finding(f"the head says that segment {head.max_segment} is the last, the list ends with {last}")
    first_kept = head.first.segment
    if first_kept <= head.max_segment and (not segments or segments[0].segment > first_kept):
        there = f"begins with {segments[0].segment}" if segments else "is empty"
        yield Finding(f"the first record kept is in segment {first_kept}, the list {there}")
    if first_kept > head.max_segment + 1:
        yield Finding(f"the first record kept is {head.first}, behind the last segment {head.max_segment}")
    if head.given_up_to > head.first:
        yield Finding(f"records were given up to {head.given_up_to}, and {head.first} is the first that is kept")


def _progress(head: SegmentsHead, segments: Sequence[SegmentDescriptor]) -> Iterator[Finding]:
    unfinished = [segment.segment for segment in segments if segment.in_progress]
    if unfinished != ([head.max_segment] if head.in_progress else []):
        said = f"segment {head.max_segment} is" if head.in_progress else "no segment is"
        there = ", ".join(map(str, unfinished)) or "none"
        yield Finding(f"the head says that {said} in progress; in progress are: {there}")
    if unfinished and head.end_of_stream:
        yield Finding("the log is sealed and has a segment in progress")


def _order(head: SegmentsHead, segments: Sequence[SegmentDescriptor]) -> Iterator[Finding]:
    for before, after in pairwise(segments):
        if after.epoch < before.epoch:
            yield Finding(f"its epoch is {after.epoch}, that of the segment before it {before.epoch}", after.segment)
        if after.segment == before.segment + 1 and not before.in_progress:
            yield from _sequence(before, after.start_sequence, after.segment, "it")
    for segment in segments:
        if segment.directory != head.directory:
            yield Finding(f"it lies in {segment.directory}, the log in {head.directory}", segment.segment)
        if segment.epoch > head.epoch:
            yield Finding(f"its epoch is {segment.epoch}, the log's {head.epoch}", segment.segment)
    completed = [segment for segment in segments if not segment.in_progress]
    if completed and completed[-1].segment == head.max_segment - head.in_progress:
        last = completed[-1]
        yield from _sequence(last, head.next_sequence, None, "what follows it")
        if last.last_txid != head.last_txid:
            yield Finding(
                f"segment {last.segment} ends with transaction id {last.last_txid}, the head says {head.last_txid}"
            )


def _sequence(before: SegmentDescriptor, start: int, segment: int | None, what: str) -> Iterator[Finding]:
    if start != before.end_sequence:
        yield Finding(
            f"segment {before.segment} ends before sequence id {before.end_sequence}, {what} begins with {start}",
            segment,
        )


_RULES: tuple[Callable[[SegmentsHead, Sequence[SegmentDescriptor]], Iterator[Finding]], ...] = (
    _numbers,
    _progress,
    _order,
)


def segment_nodes(metadata: LogMetadata) -> tuple[SegmentsHead, list[tuple[str, bytes]]]:
    """The head of a log's list of segments, and the names and data of their nodes, as they were at one moment. Raises
    LogNotFound, DescriptorUnreadable, and what the registry raises."""
    (head, _version), nodes = _consistent(metadata)
    return head, nodes


def _consistent(metadata: LogMetadata) -> tuple[tuple[SegmentsHead, int], list[tuple[str, bytes]]]:
    """The head with its version, and the segments' nodes as they were at one moment.

    All are read once; then, as long as the head moves, those that it says have changed.
    """
    before, names = metadata.head(), _names(metadata)
    nodes = _read(metadata, names)
    while True:
        after = metadata.head()
        if after == before:
            return before, sorted(nodes.items())
        (was, _version), (head, _version) = before, after
        before, moved = after, head.revisions - was.revisions
        if moved > len(head.revised) or head.directory != was.directory:
            nodes = _read(metadata, _names(metadata))
            continue
        changed = {*range(was.max_segment, head.max_segment + 1), *head.revised[len(head.revised) - moved :]}
        changed_names = [name(number) for number in changed for name in (completed_node, _unfinished_node)]
        gone = {completed_node(number) for number in range(was.begin, head.begin)}
        nodes = {name: data for name, data in nodes.items() if name not in gone.union(changed_names)}
        nodes |= _read(metadata, [name for name in changed_names if name not in gone])


def _unfinished_node(number: int) -> str:
    return f"inprogress_{number:018d}"


def _names(metadata: LogMetadata) -> list[str]:
    try:
        return metadata.registry.children(metadata.segments_path)
    except NodeMissing:
        raise metadata.not_found() from None


def _read(metadata: LogMetadata, names: Sequence[str]) -> dict[str, bytes]:
    """What the nodes hold that are there."""
    found = metadata.registry.find_all([f"{metadata.segments_path}/{name}" for name in names])
    return {name: node.data for name, node in zip(names, found, strict=True) if node is not None}


def _writer(metadata: LogMetadata, findings: list[Finding]) -> str | None:
    node = metadata.registry.find(metadata.lock_path)
    if node is None:
        return None
    try:
        return LockDescriptor.from_bytes(node.data, path=metadata.lock_path).owner
    except DescriptorUnreadable as error:
        findings.append(Finding(str(error)))
        return "somebody"
