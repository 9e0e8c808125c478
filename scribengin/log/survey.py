"""What the registry says of a log, taken down even where it contradicts itself, and what is wrong with it. Read only.

A writer or reader raises at the first contradiction (InconsistentLog). Who has to find out what happened needs all of
them, beside everything that is not wrong: so here each is a `Finding`, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scribengin.errors import DescriptorUnreadable, InconsistentLog
from scribengin.log.metadata import (
    ATTEMPTS_MAX,
    LockDescriptor,
    LogDescriptor,
    LogMetadata,
    SegmentDescriptor,
    SegmentsHead,
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
class LogSurvey:
    """One reading of a log's metadata. `segments` are all that could be read, in order; `writer` holds the lock."""

    log: LogDescriptor
    head: SegmentsHead
    head_version: int
    segments: tuple[SegmentDescriptor, ...]
    writer: str | None
    findings: tuple[Finding, ...]

    @property
    def in_progress(self) -> SegmentDescriptor | None:
        """The last segment that is not complete."""
        return next((segment for segment in reversed(self.segments) if segment.in_progress), None)


def survey(metadata: LogMetadata) -> LogSurvey:
    """Read a log's metadata, and hold it against itself. Raises LogNotFound, DescriptorUnreadable (the log's own node
    or its head: without them there is nothing to hold anything against), InconsistentLog (it changes all the time), and
    what the registry raises.
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
    findings.extend(contradictions(head, segments))
    return LogSurvey(log, head, version, tuple(segments), _writer(metadata, findings), tuple(findings))


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


def _consistent(metadata: LogMetadata) -> tuple[tuple[SegmentsHead, int], list[tuple[str, bytes]]]:
    """The head with its version, and the segments' nodes as they were at one moment, if they stand still long enough.

    What was read of completed segments is not read again, so that a writer that rolls all the time is caught up with.
    """
    completed: dict[str, bytes] = {}
    before = metadata.head()
    for _attempt in range(ATTEMPTS_MAX):
        try:
            names = metadata.registry.children(metadata.segments_path)
        except NodeMissing:
            raise metadata.not_found() from None
        nodes: list[tuple[str, bytes]] = []
        for name in names:
            data = completed.get(name)
            if data is None:
                node = metadata.registry.find(f"{metadata.segments_path}/{name}")
                if node is None:
                    continue  # it has just gone, so the head has moved, too
                data = node.data
            if name.startswith("logrecs_"):
                completed[name] = data
            nodes.append((name, data))
        after = metadata.head()
        if after == before:
            return before, nodes
        before = after
    raise InconsistentLog(
        f"log '{metadata.log}': its segments changed {ATTEMPTS_MAX} times while they were read; try again"
    )


def _writer(metadata: LogMetadata, findings: list[Finding]) -> str | None:
    node = metadata.registry.find(metadata.lock_path)
    if node is None:
        return None
    try:
        return LockDescriptor.from_bytes(node.data, path=metadata.lock_path).owner
    except DescriptorUnreadable as error:
        findings.append(Finding(str(error)))
        return "somebody"
