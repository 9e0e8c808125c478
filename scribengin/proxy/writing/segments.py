"""What a proxy does in its machine's store for whoever writes a log from another machine.

It decides nothing: who owns the log, what a segment is called and what was committed is known to its writer, by the
registry. A segment that is being written is open here, under a handle of its writer. What is done to it has a number
each, its step. A step that is asked for again, since its answer was lost, gets the same answer and is not done again;
one that comes late is refused. So a segment holds what its writer has written, in order and once.

A proxy that ends takes its open segments along. Their writers fail then, and whoever writes the log next recovers it,
as after any writer's death. The store fences: a writer that was succeeded is acknowledged nothing.

What a writer has left open is closed once it can have nothing to write any more: its log was deleted, its segment
fenced, removed or completed, or the log has another owner. A segment whose writer may live is never closed for others.
No file of a log's segment has an epoch that the registry has not given yet: nobody could write the log after that.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import (
    Fenced,
    LogClosed,
    LogNotFound,
    LogWriteFailed,
    MessageDamaged,
    RegistryError,
    ScribenginError,
    StoreNotMounted,
    StoreUnreachable,
    WritersTooMany,
)
from scribengin.log import LogNamespace
from scribengin.log.metadata.names import check_log_name
from scribengin.log.metadata.segments import LogMetadata, SegmentsHead
from scribengin.log.store.contract import SegmentAppender, SegmentName
from scribengin.log.store.opening import open_store
from scribengin.proxy.config import RIGHTS, Right
from scribengin.proxy.owned import HeldSegment
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone, Refused
from scribengin.proxy.wire.requests import AskRequest
from scribengin_registry.contract import SessionState

OPEN_MAX = 1000
"""So many segments are open at most. More are refused until some of these are closed."""
IDLE_S = 600.0
"""A segment for which nothing was asked for so long may have lost its writer: the registry is asked."""
_SWEEP_S = 60.0
_SWEEP_AGAIN_S = 10.0
"""Where there is no room, the registry is asked so often at most, however many writers ask for some."""
_FENCED_KEPT = 1000
_ADMINISTER: tuple[Right, ...] = ("administer",)
Doing = Callable[[AskRequest], AskDone]
_log = logging.getLogger(__name__)


@dataclass
class _WrittenSegment(HeldSegment):
    """A segment that is open for its writer, or is being made."""

    used_s: float
    """When something was asked for last, by the clock."""
    appender: SegmentAppender | None = None
    step: int = 0
    answer: Answer = field(default_factory=AskDone)
    """To the last step."""

    def close_file(self) -> None:
        if self.appender is not None:
            self.appender.close()


class SegmentWrites(ClosedAtExit):
    """Writes segments of a namespace for writers elsewhere. Thread-safe."""

    def __init__(self, namespace: LogNamespace, address: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """`address` is the proxy's. The namespace is closed by whoever made it."""
        kept = namespace.descriptor
        self._registry = namespace.registry
        self._path = namespace.path
        self._store = open_store(kept.store, kept.location, kept.token)
        self._address = address
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _WrittenSegment] = OrderedDict()
        self._fenced: OrderedDict[str, None] = OrderedDict()
        """Handles of the last segments that were closed as somebody had fenced or removed them."""
        self._closed = False
        self._swept_s = float("-inf")
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        doings: dict[str, tuple[tuple[Right, ...], Doing]] = {
            wire.CREATE: (RIGHTS, self._create),
            wire.APPEND: (RIGHTS, self._stepped(self._append)),
            wire.SYNC: (RIGHTS, self._stepped(lambda appender, _request: appender.sync())),
            wire.SETTLE: (RIGHTS, self._stepped(lambda appender, _request: appender.make_durable())),
            wire.SHOW: (RIGHTS, self._stepped(self._show)),
            wire.CLOSE: (RIGHTS, self._leave),
            wire.SAVE_INDEX: (RIGHTS, self._save_index),
            wire.FENCE: (RIGHTS, self._fence),
            wire.MAKE_DURABLE: (RIGHTS, self._make_durable),
            wire.ANNOUNCE: (RIGHTS, self._announce),
            wire.MOVE: (RIGHTS, self._move),
            wire.CREATE_LOG: (_ADMINISTER, self._create_log),
            wire.DELETE_LOG: (_ADMINISTER, self._delete_log),
            wire.REMOVE: (_ADMINISTER, self._remove),
            wire.NAMES: (_ADMINISTER, self._names),
            wire.ANNOUNCED: (_ADMINISTER, self._announced),
            wire.DISK_SIZE: (_ADMINISTER, self._disk_size),
            wire.DISK_BYTES: (_ADMINISTER, self._disk_bytes),
        }
        self.asked: Mapping[str, tuple[tuple[Right, ...], Callable[[AskRequest], Answer]]] = {
            op: (rights, _answering(do)) for op, (rights, do) in doings.items()
        }
        """What writers ask for, the rights that it takes, and who answers. Raises KeyError, TypeError and ValueError
        for what is no question, MessageDamaged, and what the registry raises."""

    @property
    def open_segments(self) -> int:
        """How many segments are being written."""
        with self._lock:
            return len(self._open)

    def start(self) -> None:
        """Look for segments that were left open, now and then, on a thread of its own."""
        self._thread = background("proxy-segments", self._run)
        self._thread.start()

    def close(self) -> None:
        """Close all segments as they are. Idempotent."""
        self._ending.set()
        with self._lock:
            self._closed = True
            left = list(self._open.values())
            self._open.clear()
        for segment in left:
            segment.end()
        if self._thread is not None:
            self._thread.join()

    def sweep(self) -> None:
        """Close what has had no step for IDLE_S and has no writer by the registry, unless that cannot tell."""
        now_s = self._clock.monotonic_s()
        since_s = now_s - IDLE_S
        with self._lock:
            self._swept_s = now_s
            idle = {handle: one.name for handle, one in self._open.items() if one.used_s <= since_s}
        heads = self._heads({wire.log_of(name) for name in idle.values()})
        with self._lock:
            over = [
                handle
                for handle, name in idle.items()
                if (one := self._open.get(handle)) is not None
                and one.used_s <= since_s
                and wire.log_of(name) in heads
                and _is_over(name, heads[wire.log_of(name)])
            ]
            left = [self._open.pop(handle) for handle in over]
        for segment in left:
            segment.end()

    def _run(self) -> None:
        while not self._ending.wait(_SWEEP_S):
            self.sweep()

    def _heads(self, logs: Collection[str]) -> dict[str, SegmentsHead | None]:
        """What the registry says of logs. One that cannot be read just now, or is damaged, says nothing of others."""
        heads: dict[str, SegmentsHead | None] = {}
        for log in logs:
            try:
                heads[log] = self._head(log)
            except ScribenginError as error:
                _log.warning("segments of log '%s' that were left open are not closed just now: %s", log, error)
        return heads

    def _head(self, log: str) -> SegmentsHead | None:
        """What the registry says of the log. None: there is none."""
        try:
            return LogMetadata(self._registry, self._path, check_log_name(log)).head()[0]
        except LogNotFound:
            return None

    def _check_epoch(self, name: SegmentName) -> None:
        """Raises LogWriteFailed: a log has no owner of that epoch, and nothing gets such a name. One that no node names
        yet may have any, as a copy of a log does."""
        log = wire.log_of(name)
        if _is_ahead(name, self._head(log)):
            self._registry.sync(LogMetadata(self._registry, self._path, check_log_name(log)).segments_path)
            if _is_ahead(name, self._head(log)):
                raise LogWriteFailed(
                    f"no file is made for segment {name}: no writer of log '{log}' has had its epoch; write under the "
                    "epoch that the registry gives"
                )

    def _create(self, request: AskRequest) -> AskDone:
        name, handle = _segment(request), str(request.fields["handle"])
        fsync = bool(request.fields["fsync"])
        self._check_epoch(name)
        now_s = self._clock.monotonic_s()
        with self._lock:
            full = handle not in self._open and len(self._open) >= OPEN_MAX
            sweep = full and now_s - self._swept_s >= _SWEEP_AGAIN_S
        if sweep:
            self.sweep()
        segment = _WrittenSegment(name, now_s)
        with segment.using():
            known = self._reserved(handle, segment)
            if known is segment:
                self._make(segment, handle, fsync=fsync)
                return AskDone()
        with known.using():  # its answer was lost, or it is being made
            if known.appender is None and isinstance(known.answer, Refused):
                raise known.answer.error
            if known.closed:
                raise self._not_open(name, handle)
        return AskDone()

    def _reserved(self, handle: str, segment: _WrittenSegment) -> _WrittenSegment:
        """The segment of that handle: this one, unless there is one already."""
        with self._lock:
            if self._closed:
                raise LogClosed("the proxy ends; ask another one")
            known = self._open.get(handle)
            if known is None and len(self._open) >= OPEN_MAX:
                raise WritersTooMany(
                    f"segment {segment.name} is not made: the proxy {self._address} has as many segments open for "
                    f"writers elsewhere as it may ({OPEN_MAX:,}); start another proxy there, or end some of the writers"
                )
            if known is not None and known.name != segment.name:
                raise ValueError(f"{handle} is the handle of {known.name}")
            return self._open.setdefault(handle, segment)

    def _make(self, segment: _WrittenSegment, handle: str, *, fsync: bool) -> None:
        name = segment.name
        try:
            segment.appender = self._store.create(name, fsync=fsync)
        except BaseException as error:
            segment.closed = True
            if isinstance(error, ScribenginError):
                segment.answer = Refused(error)  # for the same attempt, sent again
            with self._lock:
                self._open.pop(handle, None)
            raise
        with self._lock:
            late = self._closed
            stale = [known for known, one in self._open.items() if _is_before(one.name, name)]
            left = [self._open.pop(known) for known in stale]
        for one in left:
            one.end()
        if late:  # the file stays: by now another proxy may have made one of this name, which is not ours to remove
            segment.closed = True
            segment.appender.close()
            raise StoreUnreachable(f"segment {name} is not written here: the proxy ends; open a new writer")

    def _stepped(self, do: Callable[[SegmentAppender, AskRequest], None]) -> Doing:
        """That, as the next step of an open segment."""

        def step(request: AskRequest) -> AskDone:
            segment, handle = self._using(request)
            number = int(request.fields["step"])
            with segment.using():
                appender = segment.appender
                if segment.closed or appender is None or number not in (segment.step, segment.step + 1):
                    raise self._not_open(segment.name, handle)
                if number > segment.step:
                    segment.answer = _answering(_nothing(lambda said: do(appender, said)))(request)
                    segment.step = number
                if isinstance(segment.answer, Refused):
                    raise segment.answer.error
            return AskDone()

        return step

    def _using(self, request: AskRequest) -> tuple[_WrittenSegment, str]:
        name, handle = _segment(request), str(request.fields["handle"])
        with self._lock:
            segment = self._open.get(handle)
            if segment is not None and segment.name == name:
                segment.used_s = self._clock.monotonic_s()
                return segment, handle
        raise self._not_open(name, handle)

    def _not_open(self, name: SegmentName, handle: str) -> StoreUnreachable | Fenced:
        """What its writer is told, as if this proxy were gone: what it had open it has not any more."""
        with self._lock:
            if handle in self._fenced:
                return Fenced(f"segment {name} was fenced, or removed: open a new writer to go on")
        return StoreUnreachable(
            f"segment {name} is not open at the proxy {self._address} any more: what was not acknowledged may not be "
            "in the log; open a new writer"
        )

    def _end_fenced(self, fenced: Callable[[SegmentName], bool]) -> None:
        """Close what nobody is acknowledged anything of any more. Waits for no writer."""
        with self._lock:
            handles = [handle for handle, one in self._open.items() if fenced(one.name)]
            left = [self._open.pop(handle) for handle in handles]
            self._fenced.update(dict.fromkeys(handles))
            while len(self._fenced) > _FENCED_KEPT:
                self._fenced.popitem(last=False)
        for segment in left:
            segment.end()

    @staticmethod
    def _append(appender: SegmentAppender, request: AskRequest) -> None:
        appender.write(wire.entries_heard(_data(request), int(request.fields["offset"])))

    @staticmethod
    def _show(appender: SegmentAppender, request: AskRequest) -> None:
        tail = wire.heard_tail(request.fields)
        if tail is None:
            raise ValueError("no tail is said")
        appender.publish(tail)

    def _leave(self, request: AskRequest) -> AskDone:
        name, handle = _segment(request), str(request.fields["handle"])
        with self._lock:
            segment = self._open.get(handle)
            if segment is None or segment.name != name:
                return AskDone()
            del self._open[handle]
        segment.end()
        return AskDone()

    def _save_index(self, request: AskRequest) -> AskDone:
        kind = request.fields["kind"]
        if kind not in ("positions", "keys"):
            raise ValueError(f"no index is called {kind}")
        name = _segment(request)
        if self._registry.state is not SessionState.CONNECTED:  # it is a hint: nobody waits for the registry
            return AskDone({"kept": False})
        try:
            self._check_epoch(name)
        except RegistryError:
            return AskDone({"kept": False})
        return AskDone({"kept": self._store.save_index(name, bytes(_data(request)), kind)})

    def _disk_size(self, request: AskRequest) -> AskDone:
        with closing(self._store.open(_segment(request), from_disk=True)) as view:
            return AskDone({"size": view.size(), **wire.told_tail(view.tail())})

    def _disk_bytes(self, request: AskRequest) -> AskDone:
        offset, length = int(request.fields["offset"]), int(request.fields["length"])
        if min(offset, length) < 0:
            raise ValueError("bytes before the beginning")
        with closing(self._store.open(_segment(request), from_disk=True)) as view:
            return AskDone(data=pa.py_buffer(view.read_once(offset, min(length, wire.ANSWER_BYTES_MAX))))

    def _create_log(self, request: AskRequest) -> AskDone:
        self._store.create_log(wire.directory_asked(request))
        return AskDone()

    def _delete_log(self, request: AskRequest) -> AskDone:
        directory = wire.directory_asked(request)
        self._store.delete_log(directory)
        self._end_fenced(lambda name: name.directory == directory or name.directory.startswith(f"{directory}/"))
        return AskDone()

    def _fence(self, request: AskRequest) -> AskDone:
        name = _segment(request)
        if not self._is_there(name):
            self._check_epoch(name)  # the fence is a file of that name
        self._store.fence(name)
        self._end_fenced(lambda one: one == name)
        return AskDone()

    def _is_there(self, name: SegmentName) -> bool:
        """Whether it has a file, and so its epoch too, whatever the registry says. Raises StoreNotMounted."""
        try:
            self._store.open(name).close()
        except (LogNotFound, OSError):  # of what cannot be opened nothing is known
            return False
        return True

    def _make_durable(self, request: AskRequest) -> AskDone:
        self._store.make_durable(_segment(request))
        return AskDone()

    def _announce(self, request: AskRequest) -> AskDone:
        name = _segment(request)
        self._check_epoch(name)
        self._store.announce(name)
        return AskDone()

    def _names(self, request: AskRequest) -> AskDone:
        names = self._store.names(wire.directory_asked(request))
        return AskDone({"names": [list(name[:4]) for name in names]})

    def _announced(self, request: AskRequest) -> AskDone:
        return AskDone({"announced": list(self._store.announced(wire.directory_asked(request)))})

    def _remove(self, request: AskRequest) -> AskDone:
        name = _segment(request)
        size = self._store.remove(name)
        self._end_fenced(lambda one: one == name)
        return AskDone({"size": size})

    def _move(self, request: AskRequest) -> AskDone:
        name, to = _segment(request), _segment(request, "to")
        if (wire.log_directory(to), to.segment, to.epoch) != (wire.log_directory(name), name.segment, name.epoch):
            raise LogWriteFailed(
                f"segment {name} is not moved to {to}: it stays its log's, with its number and epoch; set it aside, or "
                "bring it back"
            )
        self._store.move(name, to)
        self._end_fenced(lambda one: one == name)
        return AskDone()


def _answering(do: Doing) -> Callable[[AskRequest], Answer]:
    """What it comes to. What the store refuses is an answer for good: its writer decides what comes next."""

    def answer(request: AskRequest) -> Answer:
        try:
            return do(request)
        except (MessageDamaged, LogClosed, RegistryError, StoreNotMounted):
            raise  # another attempt may go better
        except ScribenginError as error:
            return Refused(error)

    return answer


def _nothing(do: Callable[[AskRequest], None]) -> Doing:
    def done(request: AskRequest) -> AskDone:
        do(request)
        return AskDone()

    return done


def _segment(request: AskRequest, field: str = "segment") -> SegmentName:
    """The segment that a question is about, which is one of the log that it names."""
    name = wire.segment_asked(request, field)
    wire.directory_asked(request, name.directory)
    return name


def _data(request: AskRequest) -> pa.Buffer:
    if request.data is None:
        raise ValueError("no data came with it")
    return request.data


def _is_before(name: SegmentName, by: SegmentName) -> bool:
    """Whether that was an earlier owner's of the log, who has nothing to write any more. Copies are of any epoch."""
    return name.directory == by.directory and not name.copy and not by.copy and name.epoch < by.epoch


def _is_ahead(name: SegmentName, head: SegmentsHead | None) -> bool:
    """Whether nobody who writes that log has had such an epoch yet."""
    return head is not None and head.directory == wire.log_directory(name) and name.epoch > head.epoch


def _is_over(name: SegmentName, head: SegmentsHead | None) -> bool:
    """Whether nobody is writing it, by what the registry says, if nothing was done to it for long. Of a copy it says
    nothing: its maker begins again."""
    if head is None or head.directory != name.directory or name.copy or name.epoch < head.epoch:
        return True
    return head.max_segment > name.segment or (head.max_segment == name.segment and not head.in_progress)
