"""What there is to say about a log, without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scribengin.log.format.dlsn import DLSN
from scribengin.log.metadata.segments import LockDescriptor, LogDescriptor, LogMetadata, SegmentDescriptor, SegmentsHead
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.retention.holds import RegisteredReaders, records_behind


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What there is to say about a log. `segments` are read when somebody looks at them, while the namespace is open;
    their number is known. `writer` is who holds its lock, if anybody does; `readers` are the registered
    ones, and how many records lie before each. `last_txid` is that of the last visible record, also if it was truncated
    (less than 0: there was none); `end_sequence` says how many were ever visible."""

    log: LogDescriptor
    head: SegmentsHead
    segments: Sequence[SegmentDescriptor]
    writer: str | None
    first: DLSN
    end: DLSN
    records: int
    end_sequence: int
    bytes: int
    last_txid: int
    readers: dict[str, int]


def log_info(metadata: LogMetadata, catalog: LogCatalog) -> LogInfo:
    """Put it together. Raises LogNotFound, InconsistentLog."""
    return catalog.settled(lambda: _log_info(metadata, catalog))


def _log_info(metadata: LogMetadata, catalog: LogCatalog) -> LogInfo:
    lock = metadata.registry.find(metadata.lock_path)
    state, end = catalog.state(), catalog.end_sequence()
    return LogInfo(
        log=catalog.log,
        head=state.head,
        segments=state.segments,
        writer=None if lock is None else LockDescriptor.from_bytes(lock.data, path=metadata.lock_path).owner,
        first=state.head.first,
        end=catalog.end_position(),
        records=end - catalog.sequence_at(state.head.first),
        end_sequence=end,
        bytes=state.head.bytes + (0 if state.in_progress is None else catalog.end(state.in_progress).end),
        last_txid=state.head.last_txid if state.in_progress is None else catalog.end(state.in_progress).last_txid,
        readers=records_behind(catalog, RegisteredReaders(metadata).positions()),
    )
