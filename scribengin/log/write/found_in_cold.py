"""What is done with cold storage when the registry went back, as a restored backup makes it (restored.py).

The backup may be older than a copy, than the border that a segment has crossed, or than a segment. Then only cold
storage has what somebody was told is safe. It is looked for where the log's head and its configuration say that cold
copies are: a backup that is older than that configuration names no place, so it is to be configured first.

- A segment that is listed, and has no file in the store: the copy is read whole, and its descriptor names it.
- A segment that is not listed: its bytes are brought back and set aside, from where `Restoration` takes them. A marker
  stands beside the file until it is whole, so that what a crash leaves of it is removed, and brought back again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scribengin.base.clock import Clock
from scribengin.errors import RecoveryRefused
from scribengin.log.config import LogConfig
from scribengin.log.format.entry import HEADER_BYTES, EncodedEntry
from scribengin.log.metadata.cold_places import cold_files
from scribengin.log.metadata.segments import (
    ColdDescriptor,
    LogMetadata,
    LogState,
    SegmentDescriptor,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.scan.audit import wrong_in
from scribengin.log.store.contract import COLD, PlacedEntry, SegmentName, SegmentStore
from scribengin.log.store.index import DamagePlace, walk
from scribengin.log.write.restored import TAKING, aside_of, label, size_of
from scribengin_registry.contract import Operation, Set


def segments_there(store: SegmentStore, head: SegmentsHead, config: LogConfig) -> set[tuple[int, int]]:
    """Number and epoch of every segment of a log that has a file, in the store or in cold storage. Raises
    StoreUnreachable, LogWriteFailed."""
    return {(name.segment, name.epoch) for name in (*store.names(head.directory), *cold_files(head, config))}


def only_cold(
    store: SegmentStore, state: LogState, config: LogConfig
) -> Iterator[tuple[SegmentDescriptor | None, list[SegmentName]]]:
    """The segments that the registry does not know to be in cold storage alone, each with its files there, the one that
    holds most first: listed or not (None). Raises StoreUnreachable, LogWriteFailed."""
    directory = state.head.directory
    cold = cold_files(state.head, config)
    hot = [*store.names(directory), *store.names(aside_of(directory))] if cold else []
    there = {(name.segment, name.epoch) for name in hot}
    taken = {segment.taken_from for segment in state.segments} if cold else set()
    copies: dict[tuple[int, int], list[SegmentName]] = {}
    for name in sorted(cold, key=lambda name: size_of(store, name), reverse=True):
        copies.setdefault((name.epoch, name.segment), []).append(name)
    for _place, names in sorted(copies.items()):
        name = names[0]
        listed = state.find(name.segment)
        if (name.segment, name.epoch) in there or name.segment < state.head.begin or label(name) in taken:
            continue
        if listed is None or listed.epoch != name.epoch:
            yield None, names
        elif not listed.in_progress and not listed.file.place:
            yield listed, names


def take_from_cold(
    metadata: LogMetadata, store: SegmentStore, owner: WriterEpoch, config: LogConfig, clock: Clock
) -> int:
    """Let the registry name what only cold storage has, set aside what it does not list, and say how many segments it
    names now. For the log's owner.

    Raises RecoveryRefused (no copy of one holds), StoreUnreachable, LogWriteFailed, Fenced.
    """
    named = 0
    for listed, names in list(only_cold(store, metadata.whole(), config)):
        if listed is None:
            _set_aside(store, names[0])
            continue
        name, size = _that_holds(metadata.log, store, listed, names)
        cold = ColdDescriptor(place=name.place, token=name.copy.removeprefix(COLD), bytes=size)
        _name(metadata, owner, listed, cold, clock.now_ms())
        named += 1
    return named


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
    raise RecoveryRefused(
        f"log '{log}': segment {listed.segment} is in cold storage alone, and {', '.join(told)}; bring that file back "
        "from a copy, or truncate the log behind it"
    )


def _name(
    metadata: LogMetadata, owner: WriterEpoch, listed: SegmentDescriptor, cold: ColdDescriptor, now_ms: int
) -> None:
    after = listed.model_copy(update={"cold": cold, "hot_dropped_ms": now_ms})

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        before = metadata.completed_segment(listed.segment)
        if before is None or before == after:
            return head, []
        places = tuple(dict.fromkeys((*head.cold_places, cold.place)))
        revised = head.revising(before, after).model_copy(update={"cold_places": places})
        return revised, [Set(f"{metadata.segments_path}/{after.node}", after.to_bytes())]

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
