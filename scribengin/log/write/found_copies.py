"""What is done with copies of segments when the registry went back, as a restored backup makes it (restored.py).

The backup may be older than a copy, than the going of what it was made of, or than a segment. Then only a copy has what
somebody was told is safe: a compressed one in the store, or one in cold storage. Cold ones are looked for where the
log's head and its configuration say that they are. A backup that is older than that configuration names no place, so it
is to be configured first.

- A segment that is listed, and what readers open of it is gone: a copy is read whole, and the descriptor names it. One
  that was being written when the backup was made ends where its copy does: copies are made of what is complete.
- A segment that is not listed, and cold alone: its bytes are brought back and set aside, from where `Restoration` takes
  them. A marker stands beside the file until it is whole, so that what a crash leaves of it is removed, and brought
  back again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import get_args

from scribengin.base.clock import Clock
from scribengin.errors import RecoveryRefused
from scribengin.log.config import LogConfig
from scribengin.log.format.entry import HEADER_BYTES, EncodedEntry
from scribengin.log.metadata.cold_places import cold_files, name_place
from scribengin.log.metadata.segments import (
    ColdDescriptor,
    CopyDescriptor,
    LogMetadata,
    LogState,
    SegmentDescriptor,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.scan.audit import wrong_in
from scribengin.log.scan.recovery import completed
from scribengin.log.scan.unfinished import Found, scan
from scribengin.log.store.contract import COLD, PlacedEntry, SegmentName, SegmentStore, Tail
from scribengin.log.store.index import DamagePlace, walk
from scribengin.log.write.restored import TAKING, TakenBack, aside_of, label, size_of
from scribengin_registry.contract import Operation, Set

_CODECS = get_args(CopyDescriptor.model_fields["codec"].annotation)


def segments_there(store: SegmentStore, head: SegmentsHead, config: LogConfig) -> set[tuple[int, int]]:
    """Number and epoch of every segment of a log that has a file, in the store or in cold storage. Raises
    StoreUnreachable, LogWriteFailed."""
    return {(name.segment, name.epoch) for name in (*store.names(head.directory), *cold_files(head, config))}


def copies_alone(
    store: SegmentStore, state: LogState, config: LogConfig
) -> Iterator[tuple[SegmentDescriptor | None, list[SegmentName]]]:
    """The segments of which copies are there, and not what the registry says that readers open: each with its copies,
    the one that holds most first. It is listed or not (None), of the latter only those that are cold alone. `state` is
    whole. Raises StoreUnreachable, LogWriteFailed."""
    directory = state.head.directory
    cold, hot, aside = cold_files(state.head, config), store.names(directory), store.names(aside_of(directory))
    there = {*hot, *(name._replace(directory=directory) for name in aside)}
    copies: dict[tuple[int, int], list[SegmentName]] = {}
    for name in (*cold, *hot):
        if name.place or _codec(name) is not None:
            copies.setdefault((name.epoch, name.segment), []).append(name)
    for listed in state.segments:
        names = copies.pop((listed.epoch, listed.segment), [])
        if names and not listed.file.place and listed.file not in there:
            yield listed, _by_size(store, names)
    held = {(name.epoch, name.segment) for name in there}
    taken = {segment.taken_from for segment in state.segments} if copies else set()
    for place, names in sorted(copies.items()):
        if place not in held and names[0].segment >= state.head.begin and label(names[0]) not in taken:
            yield None, _by_size(store, names)


def take_copies(
    metadata: LogMetadata, store: SegmentStore, owner: WriterEpoch, config: LogConfig, clock: Clock
) -> TakenBack:
    """Let the registry name the copies that alone hold a segment, set aside what it does not list, and say how many it
    names now. For the log's owner.

    Raises RecoveryRefused (no copy of one holds), StoreUnreachable, LogWriteFailed, Fenced.
    """
    from_cold = from_copies = 0
    state = metadata.whole()
    for listed, names in list(copies_alone(store, state, config)):
        if listed is None:
            _set_aside(store, names[0])
            continue
        if listed.in_progress:
            name, whole = _completed_by(metadata.log, store, listed, names, state.head.last_txid, clock)
            if name.place:
                name_place(metadata, owner.directory, name.place)
            metadata.complete_segment(owner, whole)
        else:
            name, size = _that_holds(metadata.log, store, listed, names)
            _name(metadata, owner, listed, _read_from(listed, name, size, clock.now_ms()))
        from_cold, from_copies = from_cold + bool(name.place), from_copies + (not name.place)
    return TakenBack(from_cold=from_cold, from_copies=from_copies)


def _codec(name: SegmentName) -> str | None:
    """How a compressed copy is compressed; None: it is none."""
    codec = name.copy.partition("-")[0]
    return codec if codec in _CODECS else None


def _by_size(store: SegmentStore, names: Sequence[SegmentName]) -> list[SegmentName]:
    return sorted(names, key=lambda name: size_of(store, name), reverse=True)


def _that_holds(
    log: str, store: SegmentStore, listed: SegmentDescriptor, names: Sequence[SegmentName]
) -> tuple[SegmentName, int]:
    """The first of the copies of a segment that holds, read whole, and its size. Raises RecoveryRefused."""
    told = []
    for name in names:
        size = size_of(store, name)
        wrong = wrong_in(store, listed, name, size)
        if wrong is None:
            return name, size
        told.append(f"{store.location(name)} does not hold ({wrong})")
    raise _refused(log, listed, names, told)


def _completed_by(
    log: str, store: SegmentStore, listed: SegmentDescriptor, names: Sequence[SegmentName], txid: int, clock: Clock
) -> tuple[SegmentName, SegmentDescriptor]:
    """The copy of an unfinished segment that holds most, and what the segment came to by it. What a crash has left of
    another one holds no more. Raises RecoveryRefused (that does not hold)."""
    found = []
    for name in names:
        with closing(store.open(name)) as view:
            scanned = scan(view, listed, start_txid=txid)
            found.append((name, scanned, view.size()))
    name, scanned, size = max(found, key=lambda each: _end(each[1]).entries)
    end = _end(scanned)
    if scanned.contradiction is not None or end.end != size:
        why = scanned.contradiction or f"of its {size:,} bytes, {end.end:,} do"
        raise _refused(log, listed, [name], [f"{store.location(name)} does not hold ({why})"])
    whole = completed(listed, end, clock)
    return name, _read_from(whole, name, size, clock.now_ms())


def _end(found: Found) -> Tail:
    """Where a copy ends: all that is staged in it had committed."""
    return found.visible if found.staged is None else found.staged.end


def _refused(log: str, listed: SegmentDescriptor, names: Sequence[SegmentName], told: Sequence[str]) -> RecoveryRefused:
    where = "in cold storage alone" if names[0].place else "there as its compressed copy alone"
    return RecoveryRefused(
        f"log '{log}': segment {listed.segment} is {where}, and {', '.join(told)}; bring that file back from a copy, "
        "or truncate the log behind it"
    )


def _read_from(segment: SegmentDescriptor, name: SegmentName, size: int, now_ms: int) -> SegmentDescriptor:
    """The segment once readers use that copy of it alone."""
    if name.place:
        cold = ColdDescriptor(place=name.place, token=name.copy.removeprefix(COLD), bytes=size)
        return segment.model_copy(update={"cold": cold, "hot_dropped_ms": now_ms})
    codec, _, token = name.copy.partition("-")
    made = CopyDescriptor.model_validate({"codec": codec, "token": token, "bytes": size})
    return segment.model_copy(update={"compressed": made, "raw_dropped_ms": now_ms})


def _name(metadata: LogMetadata, owner: WriterEpoch, listed: SegmentDescriptor, after: SegmentDescriptor) -> None:
    """Let the log say so of a completed segment."""
    cold = after.cold
    if cold is not None:
        name_place(metadata, owner.directory, cold.place)

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        before = metadata.completed_segment(listed.segment)
        if before is None or before == after:
            return head, []
        return head.revising(before, after), [Set(f"{metadata.segments_path}/{after.node}", after.to_bytes())]

    metadata.change(owner, change)


def _set_aside(store: SegmentStore, name: SegmentName) -> None:
    """Bring the bytes of a cold segment back, to where files are that no node names."""
    raw = SegmentName(name.directory, name.segment, name.epoch)
    store.create(raw.copied(TAKING), fsync=True).close()
    appender, view = store.create(raw, fsync=True), store.open(name)
    try:
        for place in walk(view, 0, view.size()):
            if isinstance(place, DamagePlace):
                break  # what is taken back ends before it, as where a file in the store is damaged
            stored = view.read(place.offset + HEADER_BYTES, place.header.body_bytes)
            appender.write([PlacedEntry(place.offset, place.header, EncodedEntry.of_stored(place.header, stored))])
        appender.sync()
    finally:
        view.close()
        appender.close()
    store.remove(raw.copied(TAKING))
    store.move(raw, raw._replace(directory=aside_of(name.directory)))
