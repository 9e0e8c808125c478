"""Compressed copies of completed segments: raw for the readers of the moment, compressed for later.

Boomscooter's document argues for it: compress while the raw bytes are in the page cache, and when they are old, simply
delete them. A copy holds the same entries under the same numbers; only bodies of records are encoded anew. The order is

1. the copy's file, under a name like no other, made durable, then compared with the raw one, entry by entry;
2. the segment's descriptor names it (at most one copy is ever named for a segment);
3. much later the copy is read once more, the descriptor says that readers use it alone, and since when;
4. a purge removes the raw file, when readers that watch the log have had time to see that.

A crash between any two leaves a file too many, which a purge finds: a copy whose segment names another one, or a raw
file that nobody opens any more. Copies that nothing names yet stay: one of them may be about to be named.

The mistakes to avoid: offsets. They hold for one of the two files, so whoever keeps one keeps the file with it. And a
namespace that was moved (migration.py): whoever still has the old store names nothing any more, so each change of a
descriptor looks whether that is the namespace's place, after it has seen the version that it changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

import pyarrow as pa

from scribengin.errors import DamagedEntry, Fenced, LogNotFound, LogWriteFailed
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import GROUP_ENTRIES_MAX, HEADER_BYTES, Damage, EncodedEntry, encode, read_body
from scribengin.log.metadata.segments import (
    CopyDescriptor,
    LogMetadata,
    LogOperator,
    LogState,
    SegmentDescriptor,
    SegmentsHead,
)
from scribengin.log.read.catalog import damaged
from scribengin.log.scan.audit import wrong_in
from scribengin.log.store.contract import PlacedEntry, SegmentAppender, SegmentName, SegmentStore, SegmentView
from scribengin.log.store.index import DamagePlace, EntryPlace, walk
from scribengin_registry.contract import Operation, Set

_MS_AN_HOUR = 3_600_000
_WRITE_BYTES = 4 * 1024 * 1024
RAW_GRACE_MS = 180_000
"""How long a raw file stays after readers were told to use its copy: enough for a range that was planned before."""

Codec = Literal["lz4", "zstd"]
"""How a compressed copy is compressed."""
Stopping = Callable[[], bool]
Revision = Callable[[SegmentDescriptor], SegmentDescriptor | None]
"""What becomes of a segment's descriptor; None: it stays."""


def compress_segments(
    metadata: LogMetadata, store: SegmentStore, state: LogState, codec: Codec, stopping: Stopping
) -> int:
    """Make a copy of every completed segment that has none and holds something that is kept; return how many were made.

    Ends early when `stopping` says so. Raises DamagedEntry, LogWriteFailed, LogNotFound.
    """
    made = 0
    for segment in state.segments:
        if stopping():
            break
        kept = segment.segment >= state.head.first.segment
        wanted = segment.compressed is None and segment.cold is None and segment.entries
        if not segment.in_progress and wanted and kept:
            made += _compress(metadata, store, segment, codec, stopping)
    return made


def drop_raw_segments(
    metadata: LogMetadata, store: SegmentStore, state: LogState, config: LogConfig, now_ms: int
) -> None:
    """Let readers use the copy alone of every segment whose raw file is older than `config` wants it.

    A copy that does not hold keeps its raw file, and raises DamagedEntry once the others are done.
    """
    hours = config.raw_retention_hours
    if hours is None:
        return
    failure: DamagedEntry | None = None
    for segment in state.segments:
        if segment.completed_ms is None or segment.compressed is None:
            continue
        if segment.raw_dropped_ms is not None or segment.hot_dropped_ms is not None:
            continue
        if segment.completed_ms + hours * _MS_AN_HOUR > now_ms:
            continue
        try:
            _check_copy(metadata.log, store, segment)
        except DamagedEntry as error:
            failure = error
            continue
        revise_segment(metadata, segment, _in(store, _dropping(segment.compressed, now_ms)))
    if failure is not None:
        raise failure


def is_dead_copy(name: SegmentName, segment: SegmentDescriptor, now_ms: int) -> bool:
    """Whether nobody will ever open that file of a segment that is kept, whatever happens from now on."""
    hot_dropped_ms = segment.hot_dropped_ms
    if name.epoch == segment.epoch and hot_dropped_ms is not None and hot_dropped_ms + RAW_GRACE_MS <= now_ms:
        return True  # it is read from cold storage alone
    if name.copy:
        return segment.copy_file is not None and segment.copy_file != name
    dropped_ms = segment.raw_dropped_ms
    return name == segment.raw_file and dropped_ms is not None and dropped_ms + RAW_GRACE_MS <= now_ms


def _compress(
    metadata: LogMetadata,
    store: SegmentStore,
    segment: SegmentDescriptor,
    codec: Codec,
    stopping: Stopping,
) -> bool:
    named = CopyDescriptor(codec=codec, token=uuid.uuid4().hex[:12], bytes=0)
    name = segment.raw_file.copied(f"{named.codec}-{named.token}")
    wanted = False
    try:
        size = _write_copy(metadata.log, store, segment, name, codec, stopping)
        if size is None:
            return False
        named = named.model_copy(update={"bytes": size})
        wanted = True  # for all that is known once the request is on its way
        revise_segment(metadata, segment, _in(store, _naming(named)))
        now = metadata.completed_segment(segment.segment)
        wanted = now is not None and now.compressed == named
        return wanted
    except Fenced:  # the store's way to say that the file is gone: the log was deleted, or another copy was named
        return False
    except LogNotFound:
        if metadata.completed_segment(segment.segment) != segment:
            return False  # it was purged meanwhile, is kept otherwise by now, or is another log's
        raise
    finally:
        if not wanted:
            store.remove(name)


def revise_segment(metadata: LogMetadata, segment: SegmentDescriptor, revise: Revision) -> None:
    """Replace the descriptor of a completed segment by what `revise` makes of it, if it still is there and that is not
    None. After a lost reply nothing may have been done: look. Raises LogNotFound: it is another log by now."""

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        before = metadata.completed_segment(segment.segment)
        after = None if before is None else revise(before)
        if before is None or after is None:
            return head, []
        return head.revising(before, after), [Set(f"{metadata.segments_path}/{after.node}", after.to_bytes())]

    metadata.change(LogOperator(segment.directory), change)


def _in(store: SegmentStore, revise: Revision) -> Revision:
    """What raises StoreNotMounted instead where the namespace was moved away from that store."""

    def checked(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        store.check_mounted()
        return revise(segment)

    return checked


def _naming(named: CopyDescriptor) -> Revision:
    def revise(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        wanted = segment.compressed is None and segment.hot_dropped_ms is None
        return segment.model_copy(update={"compressed": named}) if wanted else None

    return revise


def _dropping(copy: CopyDescriptor, now_ms: int) -> Revision:
    def revise(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        if segment.compressed != copy or segment.raw_dropped_ms is not None:
            return None
        return segment.model_copy(update={"raw_dropped_ms": now_ms})

    return revise


def _write_copy(
    log: str, store: SegmentStore, segment: SegmentDescriptor, name: SegmentName, codec: Codec, stopping: Stopping
) -> int | None:
    """Write the copy, make it durable, compare it, and return its size; None when it was told to stop."""
    raw = store.open(segment.raw_file)
    try:
        appender = store.create(name, fsync=True)
        try:
            size = write_entries(appender, _encoded(log, raw, segment, codec), stopping)
            if size is not None:
                appender.sync()
        finally:
            appender.close()
        if size is not None:
            _compare(log, store, segment, raw, name, size)
        return size
    finally:
        raw.close()


def write_entries(appender: SegmentAppender, entries: Iterator[PlacedEntry], stopping: Stopping) -> int | None:
    """Append entries, a few MiB at a time, and return where the last one ends; None when it was told to stop. Nothing
    is synced. Raises LogWriteFailed, Fenced."""
    group: list[PlacedEntry] = []
    size = written = 0
    for placed in entries:
        group.append(placed)
        size = placed.offset + placed.header.size
        if len(group) == GROUP_ENTRIES_MAX or size - written >= _WRITE_BYTES:
            if stopping():
                return None
            appender.write(group)
            group, written = [], size
    if group:
        appender.write(group)
    return size


def _encoded(log: str, raw: SegmentView, segment: SegmentDescriptor, codec: Codec) -> Iterator[PlacedEntry]:
    """The entries as they stand in the copy: all the same but for the encoding of their records."""
    at = 0
    for place, body, batch in bodies_of(log, raw, segment, segment.bytes):
        header = place.header
        if header.carries_records:
            encoded = encode(batch, codec=codec)
            header = replace(header, codec=encoded.codec, body_crc=encoded.body_crc, body_bytes=encoded.body_bytes)
        else:
            encoded = EncodedEntry.of_stored(header, body)
        yield PlacedEntry(at, header, encoded)
        at += header.size


def bodies_of(
    log: str, view: SegmentView, segment: SegmentDescriptor, end: int
) -> Iterator[tuple[EntryPlace, pa.Buffer, pa.RecordBatch]]:
    """The entries in the first `end` bytes of a segment, each with its body as it is stored and as it is decoded: all
    checksums hold. Raises DamagedEntry."""
    for place in entries_of(log, view, segment, end):
        header = place.header
        body = view.read(place.offset + HEADER_BYTES, header.body_bytes)
        batch = read_body(header, body, decoded_bytes_max=segment.decoded_bytes_max)
        if isinstance(batch, Damage):
            raise damaged(log, segment.segment, header.entry, place.offset, batch)
        yield place, body, batch


def entries_of(log: str, view: SegmentView, segment: SegmentDescriptor, end: int) -> Iterator[EntryPlace]:
    """The headers in the first `end` bytes of a segment. Raises DamagedEntry."""
    for number, place in enumerate(walk(view, 0, end)):
        if isinstance(place, DamagePlace):
            raise damaged(log, segment.segment, number, place.offset, place.damage)
        yield place


def _compare(
    log: str, store: SegmentStore, segment: SegmentDescriptor, raw: SegmentView, name: SegmentName, size: int
) -> None:
    """Raises LogWriteFailed unless the copy holds what the raw file does."""
    copy = store.open(name)
    try:
        pairs = zip_longest(entries_of(log, raw, segment, segment.bytes), entries_of(log, copy, segment, size))
        if not all(one is not None and two is not None and _same(raw, one, copy, two) for one, two in pairs):
            raise LogWriteFailed(
                f"log '{log}': the copy {store.location(name)} does not hold what its segment does; nothing was "
                "dropped: check the machine's memory and disk"
            )
    finally:
        copy.close()


def _same(raw: SegmentView, one: EntryPlace, copy: SegmentView, two: EntryPlace) -> bool:
    header = replace(two.header, codec=one.header.codec, body_crc=one.header.body_crc, body_bytes=one.header.body_bytes)
    if header != one.header:
        return False
    body, again = (
        read_body(place.header, view.read(place.offset + HEADER_BYTES, place.header.body_bytes))
        for view, place in ((raw, one), (copy, two))
    )
    return not isinstance(body, Damage) and not isinstance(again, Damage) and bool(body.equals(again))


def _check_copy(log: str, store: SegmentStore, segment: SegmentDescriptor) -> None:
    """Read the whole copy. Raises DamagedEntry if anything in it does not hold."""
    assert segment.compressed is not None, "it has one"
    assert segment.copy_file is not None, "the same"
    try:
        wrong = wrong_in(store, segment, segment.copy_file, segment.compressed.bytes)
    except LogNotFound as error:
        raise _refused(log, segment, str(error)) from None
    if wrong is not None:
        raise _refused(log, segment, wrong)


def hold_same_bytes(one: SegmentView, other: SegmentView, size: int) -> bool:
    """Whether both begin with the same bytes, so many of them."""
    for offset in range(0, size, _WRITE_BYTES):
        length = min(_WRITE_BYTES, size - offset)
        data = one.read(offset, length)
        if data.size != length or not data.equals(other.read(offset, length)):
            return False
    return True


def _refused(log: str, segment: SegmentDescriptor, why: str) -> DamagedEntry:
    return DamagedEntry(
        f"log '{log}': the compressed copy of segment {segment.segment} does not hold ({why}); its raw file is kept",
        position=str(DLSN(segment.segment, 0, 0)),
    )
