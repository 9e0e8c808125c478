"""What there is to say about a log, without reading it."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.log.catalog import LogCatalog
from scribengin.log.dlsn import DLSN
from scribengin.log.metadata import LockDescriptor, LogDescriptor, LogMetadata, SegmentDescriptor, SegmentsHead
from scribengin.log.registered import RegisteredReaders, records_behind


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What there is to say about a log. `writer` is who holds its lock, if anybody does; `readers` are the registered
    ones, and how many records lie before each."""

    log: LogDescriptor
    head: SegmentsHead
    segments: tuple[SegmentDescriptor, ...]
    writer: str | None
    first: DLSN
    end: DLSN
    records: int
    bytes: int
    readers: dict[str, int]


def log_info(metadata: LogMetadata, catalog: LogCatalog) -> LogInfo:
    """Put it together. Raises LogNotFound, InconsistentLog."""
    lock = metadata.registry.find(metadata.lock_path)
    state = catalog.state()
    return LogInfo(
        log=catalog.log,
        head=state.head,
        segments=state.segments,
        writer=None if lock is None else LockDescriptor.from_bytes(lock.data, path=metadata.lock_path).owner,
        first=state.head.first,
        end=catalog.end_position(),
        records=catalog.end_sequence() - catalog.sequence_at(state.head.first),
        bytes=sum(catalog.end(segment).end for segment in state.segments),
        readers=records_behind(catalog, RegisteredReaders(metadata).positions()),
    )
