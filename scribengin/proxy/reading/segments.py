"""What a proxy answers to readers: segments are opened, read and waited for, as a store offers it.

Bytes come out of one cache of blocks. Whatever of a block is missing is read once, however many readers want it: they
wait for each other at the segment's lock. Only what readers may see is kept (blocks.py): below the tail that the store
shows, or below the end that the registry says of a completed segment. What lies behind that is read for whoever asks,
as a scan does, and forgotten.

A segment is named by its log and a path within the store. So that nobody reads a log by another one's name, the
directory has to be the log's own, by the registry.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import InconsistentLog, LogNotFound, RegistryError, SegmentsMoved
from scribengin.log import LogNamespace
from scribengin.log.metadata.names import check_log_name
from scribengin.log.metadata.segments import LogMetadata, SegmentDescriptor
from scribengin.log.store.contract import COLD, SegmentName, SegmentView
from scribengin.log.store.opening import open_store
from scribengin.proxy.config import ProxyConfig
from scribengin.proxy.owned import HeldSegment
from scribengin.proxy.reading.blocks import BLOCK_BYTES, BlockCache
from scribengin.proxy.reading.tails import TailWatches
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone
from scribengin.proxy.wire.requests import AskRequest
from scribengin_registry.contract import Registry

_OPEN_MAX = 256
IDLE_S = 60.0
"""So long a segment that nobody asks about stays open. One that was purged has its disk space until it is closed."""
_SWEEP_S = 30.0
WAIT_S_MAX = 10.0
"""No question about a tail waits longer."""


@dataclass
class _OpenSegment(HeldSegment):
    """A segment that is open for all readers."""

    view: SegmentView
    shown: int = 0
    """Readers may read so far, at least."""
    completed: bool = False
    used_s: float = 0.0
    """When somebody asked about it last."""

    def close_file(self) -> None:
        self.view.close()


class SegmentReads(ClosedAtExit):
    """Reads the segments of a namespace for many. Thread-safe."""

    def __init__(
        self, registry: Registry, namespace: LogNamespace, config: ProxyConfig, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Registry and namespace are closed by whoever made them, after this."""
        self._registry = registry
        self._clock = clock
        self._path = namespace.path
        kept = namespace.descriptor
        self._store = open_store(kept.store, kept.location, kept.token)
        self._wait_s = config.answer_timeout_s
        self._blocks = BlockCache(config.cache_bytes_max)
        self._tails = TailWatches(self._store.open, config.tail_waits_max)
        self._lock = threading.Lock()
        self._open: OrderedDict[SegmentName, _OpenSegment] = OrderedDict()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.asked: Mapping[str, Callable[[AskRequest], Answer]] = {
            wire.OPEN: self._opened,
            wire.BYTES: self._bytes,
            wire.TAIL: self._tail,
            wire.SIZE: self._size,
            wire.INDEX: self._index,
            wire.DOUBT: self._doubt,
        }
        """What readers ask for, and who answers. Raises what the store raises, and KeyError, TypeError and ValueError
        for what is no question."""

    @property
    def cached_bytes(self) -> int:
        """How many bytes of segments it holds in memory."""
        return self._blocks.size_bytes

    @property
    def open_segments(self) -> int:
        """How many segments are open."""
        with self._lock:
            return len(self._open)

    def start(self) -> None:
        """Close segments that nobody asks about, now and then, on a thread of its own."""
        self._thread = background("proxy-reads", self._run)
        self._thread.start()

    def sweep(self) -> None:
        """Close what nobody has asked about for IDLE_S."""
        since_s = self._clock.monotonic_s() - IDLE_S
        with self._lock:
            idle = [name for name, one in self._open.items() if one.used_s <= since_s]
            left = [self._open.pop(name) for name in idle]
        for segment in left:
            segment.end()

    def _run(self) -> None:
        while not self._ending.wait(_SWEEP_S):
            self.sweep()

    def close(self) -> None:
        """Answer everybody who waits, and close all segments. Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._tails.close()
        with self._lock:
            opened = list(self._open.values())
            self._open.clear()
        for segment in opened:
            segment.end()

    def _opened(self, request: AskRequest) -> Answer:
        """It is looked for in the store each time: it may have been purged since somebody opened it last."""
        name = self._checked(request)
        self._keep(_OpenSegment(name, self._store.open(name)))
        return AskDone()

    def _bytes(self, request: AskRequest) -> Answer:
        name = self._checked(request)
        offset, length, ahead = (int(request.fields[said]) for said in ("offset", "length", "ahead"))
        if min(offset, length, ahead) < 0:
            raise ValueError("bytes before the beginning")
        length = min(length, wire.ANSWER_BYTES_MAX)
        end = offset + min(length + ahead, wire.ANSWER_BYTES_MAX)
        parts = self._blocks.parts(name, offset, end) if self._is_open(name) else []
        if sum(map(len, parts)) < length:
            with self._using(request) as segment:
                parts = list(self._read(name, segment, offset, offset + length, end))
        return AskDone(data=pa.py_buffer(b"".join(parts)))

    def _read(
        self, name: SegmentName, segment: _OpenSegment, start: int, wanted: int, end: int
    ) -> Iterator[memoryview]:
        """The bytes from `start` to `wanted`, and on to `end` as far as they are visible. The caller holds the lock."""
        visible = min(self._shown(name, segment, wanted), end)
        while start < visible:
            number, at = divmod(start, BLOCK_BYTES)
            block = self._blocks.block(name, number)
            needed = min(visible - number * BLOCK_BYTES, BLOCK_BYTES)
            if len(block) < needed:
                more = segment.view.read(number * BLOCK_BYTES + len(block), needed - len(block))
                block += memoryview(more)
                self._blocks.put(name, number, block)
            part = memoryview(block)[at : at + end - start]
            if not part:
                return  # the segment is shorter than it should be: whoever reads it says so
            yield part
            start += len(part)
        if start < wanted:
            yield memoryview(segment.view.read(start, wanted - start))

    def _tail(self, request: AskRequest) -> Answer:
        known, wait_s = int(request.fields["known"]), float(request.fields["wait_s"])
        if wait_s > 0:
            name = self._checked(request)
            return AskDone(wire.told_tail(self._tails.wait(name, known, min(wait_s, WAIT_S_MAX))))
        with self._using(request) as segment:
            return AskDone(wire.told_tail(segment.view.tail()))

    def _size(self, request: AskRequest) -> Answer:
        with self._using(request) as segment:
            return AskDone({"size": segment.view.size()})

    def _index(self, request: AskRequest) -> Answer:
        name, kind = self._checked(request), request.fields["kind"]
        if kind not in ("positions", "keys"):
            raise ValueError(f"no index is called {kind}")
        return AskDone(data=pa.py_buffer(self._store.load_index(name, kind)))

    def _doubt(self, request: AskRequest) -> Answer:
        """A reader has found damage: the next one reads the store's bytes, which may hold by then."""
        name = self._checked(request)
        with self._lock:
            segment = self._open.pop(name, None)
        if segment is not None:
            segment.end()
        self._blocks.forget(name)
        return AskDone()

    def _shown(self, name: SegmentName, segment: _OpenSegment, end: int) -> int:
        """How far readers may read, looked at again if that is not known to be as far as `end`."""
        if segment.shown < end and not segment.completed:
            tail = segment.view.tail()
            segment.shown = max(segment.shown, 0 if tail is None else tail.end)
            if segment.shown < end:
                completed = self._completed_end(name)
                if completed is not None:
                    segment.shown = completed
                    segment.completed = True
        return segment.shown

    def _completed_end(self, name: SegmentName) -> int | None:
        """Where the segment ends by the registry; None: it is not completed, or nobody knows just now."""
        with suppress(RegistryError, LogNotFound, InconsistentLog, SegmentsMoved):
            state = self._metadata(wire.log_of(name)).state()
            at = name.segment - state.head.begin
            if 0 <= at < len(state.segments):
                return _end_of(state.segments[at], name)
        return None

    def _checked(self, request: AskRequest) -> SegmentName:
        """The segment that a question is about, which belongs to the log that it names. Raises LogNotFound."""
        name = self._in_place(request, wire.segment_asked(request))
        if not self._is_open(name) and not self._is_directory_of(request.log, name.directory):
            raise LogNotFound(f"log '{request.log}' has no segments in {name.directory}: it was deleted; list the logs")
        if wire.log_of(name) != request.log:
            raise ValueError(f"{name} is no segment of '{request.log}'")
        return name

    def _is_directory_of(self, log: str, directory: str) -> bool:
        """Whether it is the log's own. Raises LogNotFound."""
        metadata = self._metadata(log)
        found = metadata.find_descriptor()
        if found is not None and found[0].directory == directory:
            return True
        self._registry.sync(metadata.path)  # our server of the registry may be behind that of who asks
        return metadata.descriptor().directory == directory

    def _in_place(self, request: AskRequest, name: SegmentName) -> SegmentName:
        """The name with its place, if it is in cold storage: the one that the registry says, whatever anybody asks
        for. Raises LogNotFound."""
        if not name.copy.startswith(COLD):
            return name
        with self._lock:
            known = next((one for one in self._open if one[:4] == name[:4]), None)
        if known is not None:
            return known
        metadata = self._metadata(request.log)
        for is_behind in (True, False):
            listed = metadata.completed_segment(name.segment)
            named = None if listed is None else listed.cold_file
            if named is not None and named[:4] == name[:4]:
                return named
            if is_behind:
                self._registry.sync(metadata.segments_path)
        raise LogNotFound(f"log '{request.log}' has no cold segment {name} any more; look at the log again")

    def _metadata(self, log: str) -> LogMetadata:
        return LogMetadata(self._registry, self._path, check_log_name(log))

    def _is_open(self, name: SegmentName) -> bool:
        """Whether it is, for who is about to ask something of it."""
        with self._lock:
            segment = self._open.get(name)
            if segment is not None:
                segment.used_s = self._clock.monotonic_s()
            return segment is not None

    @contextmanager
    def _using(self, request: AskRequest) -> Iterator[_OpenSegment]:
        """The segment, under its lock. Opened if need be."""
        while True:
            name = self._checked(request)
            with self._lock:
                segment = self._open.get(name)
                if segment is not None:
                    self._open.move_to_end(name)
            if segment is None:
                segment = self._keep(_OpenSegment(name, self._store.open(name)))
            with segment.using(self._wait_s):
                if not segment.closed:
                    yield segment
                    return

    def _keep(self, opened: _OpenSegment) -> _OpenSegment:
        """The segment that stays open: that one, unless there is another already. Some others may be closed."""
        with self._lock:
            kept = self._open.setdefault(opened.name, opened)
            kept.used_s = self._clock.monotonic_s()
            self._open.move_to_end(opened.name)
            surplus = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - _OPEN_MAX)]
        for segment in surplus if kept is opened else [*surplus, opened]:
            segment.end()
        return kept


def _end_of(segment: SegmentDescriptor, name: SegmentName) -> int | None:
    """Where the file of that name ends, which is the segment's, or a copy of it."""
    if segment.in_progress:
        return None
    ends = {segment.raw_file: segment.bytes}
    if segment.copy_file is not None and segment.compressed is not None:
        ends[segment.copy_file] = segment.compressed.bytes
    if segment.cold_file is not None and segment.cold is not None:
        ends[segment.cold_file] = segment.cold.bytes
    return ends.get(name)
