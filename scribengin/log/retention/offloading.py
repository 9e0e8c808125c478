"""Cold storage: a completed segment is copied there, compared, and in the end kept there alone. The order is

1. the log's head names the place, so that whoever sweeps or deletes the log knows where to look, and the mark there,
   without which nobody believes what is seen there (metadata/cold_places.py);
2. the file, under a name like no other, made durable, then read back and compared with the store's, byte by byte;
3. the segment's descriptor names it (at most one is ever named for a segment whose file in the store has gone);
4. once the segment is old, or the store holds too much, the copy is read whole, and the descriptor says that readers
   use it alone, and since when;
5. a purge removes the files in the store, when readers that watch the log have had time to see that.

Each change of a descriptor is held against what it was. So it does not matter who does it, or how late: nobody drops
what another one has not compared. A crash between any two leaves a file too many, which a purge finds. What it finds in
cold storage is of a segment that names another copy, or of none that is listed any more. Copies that nothing names yet
stay: one of them may be about to be named. Segments that are purged go from the registry first, then from both.

The mistake to avoid: taking cold storage that does not answer, or is not mounted, for one that is empty. It raises,
nothing is dropped, and the next maintenance tries again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from scribengin.base.names import log_command
from scribengin.errors import (
    ConfigInvalid,
    DamagedEntry,
    LogError,
    LogNotFound,
    LogWriteFailed,
    SegmentsMoved,
    StoreUnreachable,
)
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.metadata.cold_places import maintained_names, name_place, token_of
from scribengin.log.metadata.segments import (
    ColdDescriptor,
    LogMetadata,
    LogState,
    SegmentDescriptor,
)
from scribengin.log.metrics import LogMetrics, SegmentsPlaced
from scribengin.log.retention.compression import Stopping, hold_same_bytes, revise_segment
from scribengin.log.scan.audit import wrong_in
from scribengin.log.store.cold import check_cold, cold_place, remove_cold, write_cold
from scribengin.log.store.contract import SegmentName, SegmentStore, SegmentView
from scribengin.log.store.index import SegmentIndex

_MS_AN_HOUR = 3_600_000
_BLOCK_BYTES = 4 * 1024 * 1024


def offload_segments(
    metadata: LogMetadata,
    store: SegmentStore,
    state: LogState,
    config: LogConfig,
    stopping: Stopping,
    metrics: LogMetrics | None = None,
) -> int:
    """Copy every completed segment to cold storage that has no copy there and holds something that is kept; return how
    many were copied.

    Ends early when `stopping` says so; `metrics` hears of each copy. Raises DamagedEntry (a segment does not hold, and
    is not copied: the others are), LogNotFound, LogWriteFailed, StoreUnreachable.
    """
    if config.cold_url is None:
        return 0
    try:
        store.for_log(config)  # it may have been configured anew since its writer was opened
    except ConfigInvalid as error:
        raise LogWriteFailed(str(error)) from error
    place = cold_place(config.cold_url, state.head.directory)
    made = 0
    failure: DamagedEntry | None = None
    for segment in _to_be_copied(state):
        if stopping():
            break
        try:
            if _offload(metadata, store, state, segment, place, stopping):
                made += 1
                if metrics is not None:
                    metrics.copied_to_cold(_source(segment)[1])
        except DamagedEntry as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return made


def _to_be_copied(state: LogState) -> Iterator[SegmentDescriptor]:
    """The oldest first."""
    for segment in state.segments:
        kept = segment.segment >= state.head.first.segment
        if not segment.in_progress and segment.cold is None and segment.entries and kept:
            yield segment


def segments_placed(state: LogState, config: LogConfig) -> SegmentsPlaced:
    """Where the completed segments are, and since when one waits to be copied. Reads all descriptors."""
    done = [segment for segment in state.segments if segment.completed_ms is not None]
    hot = [segment for segment in done if segment.hot_dropped_ms is None]
    cold = [segment.cold for segment in done if segment.cold is not None]
    waiting = None if config.cold_url is None else next(_to_be_copied(state), None)
    return SegmentsPlaced(
        hot_segments=len(hot),
        hot_bytes=sum(map(_hot_bytes, hot)),
        cold_segments=len(cold),
        cold_bytes=sum(copy.bytes for copy in cold),
        waiting_since_ms=None if waiting is None else waiting.completed_ms,
    )


def drop_hot_segments(
    metadata: LogMetadata,
    store: SegmentStore,
    state: LogState,
    config: LogConfig,
    now_ms: int,
    metrics: LogMetrics | None = None,
) -> None:
    """Let readers use the cold copy alone of every segment that `config` does not want in the store any more.

    A copy that does not hold is forgotten, so that another one is made, and raises DamagedEntry once the others are
    done. Raises StoreUnreachable, LogWriteFailed.
    """
    failure: DamagedEntry | None = None
    for segment, cold in _due(state, config, now_ms):
        wrong = _wrong_in_cold(store, state, segment, cold)
        if wrong is None:
            revise_segment(metadata, segment, _dropping(cold, now_ms))
            if metrics is not None:
                metrics.dropped_from_hot()
            continue
        if _is_there(store, segment):
            revise_segment(metadata, segment, _forgetting(cold))
            said = "its file in the store is kept, and copied again by the next maintenance"
            step = "offload"
        else:  # the registry went back behind its going
            said, step = "its file in the store is not there either: another copy may be", "recover"
        failure = DamagedEntry(
            f"log '{metadata.log}': the cold copy of segment {segment.segment} does not hold ({wrong}); {said} "
            f"({log_command(metadata.namespace, step, metadata.log)})",
            position=str(DLSN(segment.segment, 0, 0)),
        )
    if failure is not None:
        raise failure


def dead_cold(metadata: LogMetadata, store: SegmentStore, state: LogState) -> Iterator[SegmentName]:
    """The files in cold storage that nobody will ever open, whatever happens after `state` was read: of segments that
    were purged, or that name another copy.

    Where a registry went back, it may name a copy that was found damaged since. Then the other one may be all there is.
    So none goes unless what readers open is there. Raises StoreUnreachable, LogWriteFailed, LogNotFound.
    """
    for place in state.head.cold_places:
        for name in maintained_names(metadata, state, place):
            listed = state.find(name.segment)
            if name.segment < state.head.begin:
                yield name
            elif listed is not None and listed.epoch == name.epoch:
                other = listed.cold_file not in (None, name)
                if other and _is_there(store, listed):
                    yield name


# -- the copy


def _offload(
    metadata: LogMetadata,
    store: SegmentStore,
    state: LogState,
    segment: SegmentDescriptor,
    place: str,
    stopping: Stopping,
) -> bool:
    _, size = _source(segment)
    cold = ColdDescriptor(place=place, token=uuid.uuid4().hex[:12], bytes=size)
    name = segment.raw_file.moved(place, cold.token)
    made = wanted = False
    try:
        _check_source(metadata.log, store, segment)  # a place is not made for a log whose files are not there
        if not name_place(metadata, segment.directory, place):
            return False
        token = token_of(metadata, state, place)
        made = True
        if not _write(metadata.log, store, segment, name, token, stopping):
            return False
        wanted = True  # for all that is known once the request is on its way
        revise_segment(metadata, segment, _naming(segment, cold))
        now = metadata.completed_segment(segment.segment)
        wanted = now is not None and now.cold == cold
        return wanted
    except (LogNotFound, StoreUnreachable):
        wanted = False  # its log was deleted before it was named, and nobody looks for it there any more
        if metadata.completed_segment(segment.segment) != segment:
            return False  # it was purged meanwhile, or its file in the store has gone for another one
        raise
    finally:
        if made and not wanted:
            remove_cold(name)


def _source(segment: SegmentDescriptor) -> tuple[SegmentName, int]:
    """The file in the store that is copied, and where it ends: the smaller one, if there are two."""
    if segment.copy_file is not None and segment.compressed is not None:
        return segment.copy_file, segment.compressed.bytes
    return segment.raw_file, segment.bytes


def _check_source(log: str, store: SegmentStore, segment: SegmentDescriptor) -> None:
    """Raises DamagedEntry unless what is to be copied holds, LogNotFound."""
    source, size = _source(segment)
    wrong = wrong_in(store, segment, source, size)
    if wrong is not None:
        raise DamagedEntry(
            f"log '{log}': segment {segment.segment} does not hold ({wrong}) and is not copied to cold storage; "
            f"restore {store.location(source)} from a copy, or truncate the log behind it",
            position=str(DLSN(segment.segment, 0, 0)),
        )


def _write(
    log: str, store: SegmentStore, segment: SegmentDescriptor, name: SegmentName, token: str, stopping: Stopping
) -> bool:
    """Write the copy, make it durable, compare it, and say whether it is there: not when it was told to stop."""
    source, size = _source(segment)
    hot = store.open(source)
    try:
        write_cold(name, _blocks(hot, size, stopping), token)
        if stopping():
            return False
        _compare(log, store, hot, name, size)
        _keep_indexes(store, hot, segment, name)
        return True
    finally:
        hot.close()


def _keep_indexes(store: SegmentStore, hot: SegmentView, segment: SegmentDescriptor, name: SegmentName) -> None:
    """Keep beside the copy what finds entries in it: reading it from end to end takes longer there."""
    source, size = _source(segment)
    index = SegmentIndex(hot, store.load_index(source))
    index.before_entry(segment.entries, size)  # which makes it reach the end
    positions, keys = index.to_bytes(), store.load_index(source, "keys")
    if positions:
        store.save_index(name, positions)
    if keys:
        store.save_index(name, keys, "keys")


def _blocks(view: SegmentView, size: int, stopping: Stopping) -> Iterator[pa.Buffer]:
    for offset in range(0, size, _BLOCK_BYTES):
        if stopping():
            return
        yield view.read(offset, min(_BLOCK_BYTES, size - offset))


def _compare(log: str, store: SegmentStore, hot: SegmentView, name: SegmentName, size: int) -> None:
    """Raises LogWriteFailed unless the copy holds what the store does."""
    cold = store.open(name)
    try:
        if cold.size() != size or not hold_same_bytes(hot, cold, size):
            raise LogWriteFailed(
                f"log '{log}': the cold copy {store.location(name)} does not hold what its segment does; it was "
                "removed, and nothing was dropped: look at that system, and at this machine's memory"
            )
    finally:
        cold.close()


def _naming(copied: SegmentDescriptor, cold: ColdDescriptor) -> Callable[[SegmentDescriptor], SegmentDescriptor | None]:
    def revise(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        if segment.cold is not None or segment.raw_file != copied.raw_file:
            return None
        return segment.model_copy(update={"cold": cold})

    return revise


# -- the border


def _due(state: LogState, config: LogConfig, now_ms: int) -> list[tuple[SegmentDescriptor, ColdDescriptor]]:
    """The segments that are read from the store, and need not be any more, the oldest first."""
    hours, most = config.hot_hours, config.hot_bytes_max
    if config.cold_url is None or (hours, most) == (None, None):
        return []
    due: list[tuple[SegmentDescriptor, ColdDescriptor]] = []
    size = 0
    for segment in reversed(tuple(state.segments)):
        if segment.completed_ms is None or segment.hot_dropped_ms is not None:
            continue
        size += _hot_bytes(segment)
        old = hours is not None and segment.completed_ms + hours * _MS_AN_HOUR <= now_ms
        if segment.cold is not None and (old or (most is not None and size > most)):
            due.append((segment, segment.cold))
    return due[::-1]


@contextmanager
def failures_counted(metrics: LogMetrics | None) -> Iterator[None]:
    """Tell `metrics` of what the block raises. That the list of segments moved is no failure."""
    try:
        yield
    except SegmentsMoved:
        raise
    except LogError:
        if metrics is not None:
            metrics.cold_failed()
        raise


def _hot_bytes(segment: SegmentDescriptor) -> int:
    raw = segment.bytes if segment.raw_dropped_ms is None else 0
    return raw + (0 if segment.compressed is None else segment.compressed.bytes)


def _is_there(store: SegmentStore, segment: SegmentDescriptor) -> bool:
    """Whether the file that readers open of a completed segment is there, as long as it should be."""
    try:
        with closing(store.open(segment.file)) as view:
            return view.size() >= segment.file_bytes
    except LogNotFound:
        return False


def _wrong_in_cold(
    store: SegmentStore, state: LogState, segment: SegmentDescriptor, cold: ColdDescriptor
) -> str | None:
    assert segment.cold_file is not None, "it has one"
    try:
        return wrong_in(store, segment, segment.cold_file, cold.bytes)
    except LogNotFound as error:
        token = state.head.cold_tokens.get(cold.place)
        if token is not None:
            check_cold(cold.place, token)
        return str(error)


def _dropping(cold: ColdDescriptor, now_ms: int) -> Callable[[SegmentDescriptor], SegmentDescriptor | None]:
    def revise(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        if segment.cold != cold or segment.hot_dropped_ms is not None:
            return None
        return segment.model_copy(update={"hot_dropped_ms": now_ms})

    return revise


def _forgetting(cold: ColdDescriptor) -> Callable[[SegmentDescriptor], SegmentDescriptor | None]:
    def revise(segment: SegmentDescriptor) -> SegmentDescriptor | None:
        if segment.cold != cold or segment.hot_dropped_ms is not None:
            return None
        return segment.model_copy(update={"cold": None})

    return revise
