"""What a proxy does in its machine's store for whoever writes a log from another machine.

It decides nothing: who owns the log, what a segment is called and what was committed is known to its writer, by the
registry. A segment that is being written is open here, under a handle of its writer. What is done to it has a number
each, its step. A step that is asked for again, since its answer was lost, gets the same answer and is not done again;
one that comes late is refused. So a segment holds what its writer has written, in order and once.

A proxy that ends takes its open segments along. Their writers fail then, and whoever writes the log next recovers it,
as after any writer's death. The store fences: a writer that was succeeded is acknowledged nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from scribengin.base.closing import ClosedAtExit
from scribengin.errors import LogClosed, LogWriteFailed, MessageInvalid, ScribenginError
from scribengin.log import LogNamespace
from scribengin.log.store.contract import SegmentAppender, SegmentName
from scribengin.log.store.opening import open_store
from scribengin.proxy.config import Right
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone, Refused
from scribengin.proxy.wire.requests import AskRequest

_OPEN_MAX = 1000
Doing = Callable[[AskRequest], AskDone]


@dataclass
class _WrittenSegment:
    """A segment that is open for its writer. Used under its lock."""

    name: SegmentName
    appender: SegmentAppender
    lock: threading.Lock = field(default_factory=threading.Lock)
    step: int = 0
    answer: Answer = field(default_factory=AskDone)
    """To the last step."""
    closed: bool = False


class SegmentWrites(ClosedAtExit):
    """Writes segments of a namespace for writers elsewhere. Thread-safe."""

    def __init__(self, namespace: LogNamespace, address: str) -> None:
        """`address` is the proxy's. The namespace is closed by whoever made it."""
        kept = namespace.descriptor
        self._store = open_store(kept.store, kept.location, kept.token)
        self._address = address
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _WrittenSegment] = OrderedDict()
        self._closed = False
        doings: dict[str, tuple[Right, Doing]] = {
            wire.CREATE: ("write", self._create),
            wire.APPEND: ("write", self._stepped(self._append)),
            wire.SYNC: ("write", self._stepped(lambda appender, _request: appender.sync())),
            wire.SETTLE: ("write", self._stepped(lambda appender, _request: appender.make_durable())),
            wire.SHOW: ("write", self._stepped(self._show)),
            wire.CLOSE: ("write", self._leave),
            wire.SAVE_INDEX: ("write", self._save_index),
            wire.DISK_SIZE: ("read", self._disk_size),
            wire.DISK_BYTES: ("read", self._disk_bytes),
            wire.CREATE_LOG: ("administer", self._create_log),
            wire.DELETE_LOG: ("administer", self._delete_log),
            wire.FENCE: ("administer", self._fence),
            wire.MAKE_DURABLE: ("administer", self._make_durable),
            wire.ANNOUNCE: ("administer", self._announce),
            wire.NAMES: ("administer", self._names),
            wire.ANNOUNCED: ("administer", self._announced),
            wire.REMOVE: ("administer", self._remove),
            wire.MOVE: ("administer", self._move),
        }
        self.asked: Mapping[str, tuple[Right, Callable[[AskRequest], Answer]]] = {
            op: (right, _answering(do)) for op, (right, do) in doings.items()
        }
        """What writers ask for, the right that it takes, and who answers. Raises KeyError, TypeError and ValueError for
        what is no question, and MessageInvalid."""

    @property
    def open_segments(self) -> int:
        """How many segments are being written."""
        with self._lock:
            return len(self._open)

    def close(self) -> None:
        """Close all segments as they are. Idempotent."""
        with self._lock:
            self._closed = True
            left = list(self._open.values())
            self._open.clear()
        _close_all(left)

    def _create(self, request: AskRequest) -> AskDone:
        name, handle = _segment(request), str(request.fields["handle"])
        with self._lock:
            if self._closed:
                raise LogClosed("the proxy ends; ask another one")
            if (known := self._open.get(handle)) is not None and known.name == name:
                return AskDone()  # its answer was lost
        appender = self._store.create(name, fsync=bool(request.fields["fsync"]))
        with self._lock:
            late = self._closed
            if not late:
                self._open[handle] = _WrittenSegment(name, appender)
            left = self._succeeded(name)
        _close_all(left)
        if late:
            appender.close()
            raise LogWriteFailed(f"segment {name} is not written here: the proxy ends; open a new writer")
        return AskDone()

    def _succeeded(self, by: SegmentName) -> list[_WrittenSegment]:
        """What nobody writes any more: segments of a log that has a new owner, and those that were used longest ago,
        where there are too many. The caller holds the lock."""
        stale = [handle for handle, one in self._open.items() if _is_before(one.name, by)]
        surplus = len(self._open) - len(stale) - _OPEN_MAX
        stale += [handle for handle in self._open if handle not in stale][: max(0, surplus)]
        return [self._open.pop(handle) for handle in stale]

    def _stepped(self, do: Callable[[SegmentAppender, AskRequest], None]) -> Doing:
        """That, as the next step of an open segment."""

        def step(request: AskRequest) -> AskDone:
            segment = self._using(request)
            number = int(request.fields["step"])
            with segment.lock:
                if segment.closed or number not in (segment.step, segment.step + 1):
                    raise self._not_open(segment.name)
                if number > segment.step:
                    segment.answer = _answering(_nothing(lambda said: do(segment.appender, said)))(request)
                    segment.step = number
                if isinstance(segment.answer, Refused):
                    raise segment.answer.error
            return AskDone()

        return step

    def _using(self, request: AskRequest) -> _WrittenSegment:
        name, handle = _segment(request), str(request.fields["handle"])
        with self._lock:
            segment = self._open.get(handle)
            if segment is None or segment.name != name:
                raise self._not_open(name)
            self._open.move_to_end(handle)
            return segment

    def _not_open(self, name: SegmentName) -> LogWriteFailed:
        return LogWriteFailed(
            f"segment {name} is not open at the proxy {self._address} any more: what was not acknowledged may not be "
            "in the log; open a new writer"
        )

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
            if segment is not None and segment.name == name:
                del self._open[handle]
        _close_all([] if segment is None else [segment])
        return AskDone()

    def _save_index(self, request: AskRequest) -> AskDone:
        kind = request.fields["kind"]
        if kind not in ("positions", "keys"):
            raise ValueError(f"no index is called {kind}")
        return AskDone({"kept": self._store.save_index(_segment(request), bytes(_data(request)), kind)})

    def _disk_size(self, request: AskRequest) -> AskDone:
        with closing(self._store.open(_segment(request), from_disk=True)) as view:
            return AskDone({"size": view.size(), **wire.told_tail(view.tail())})

    def _disk_bytes(self, request: AskRequest) -> AskDone:
        offset, length = int(request.fields["offset"]), int(request.fields["length"])
        if min(offset, length) < 0:
            raise ValueError("bytes before the beginning")
        with closing(self._store.open(_segment(request), from_disk=True)) as view:
            return AskDone(data=pa.py_buffer(view.read(offset, min(length, wire.ANSWER_BYTES_MAX))))

    def _create_log(self, request: AskRequest) -> AskDone:
        self._store.create_log(wire.directory_asked(request))
        return AskDone()

    def _delete_log(self, request: AskRequest) -> AskDone:
        self._store.delete_log(wire.directory_asked(request))
        return AskDone()

    def _fence(self, request: AskRequest) -> AskDone:
        self._store.fence(_segment(request))
        return AskDone()

    def _make_durable(self, request: AskRequest) -> AskDone:
        self._store.make_durable(_segment(request))
        return AskDone()

    def _announce(self, request: AskRequest) -> AskDone:
        self._store.announce(_segment(request))
        return AskDone()

    def _names(self, request: AskRequest) -> AskDone:
        names = self._store.names(wire.directory_asked(request))
        return AskDone({"names": [list(name[:4]) for name in names]})

    def _announced(self, request: AskRequest) -> AskDone:
        return AskDone({"announced": list(self._store.announced(wire.directory_asked(request)))})

    def _remove(self, request: AskRequest) -> AskDone:
        return AskDone({"size": self._store.remove(_segment(request))})

    def _move(self, request: AskRequest) -> AskDone:
        self._store.move(_segment(request), _segment(request, "to"))
        return AskDone()


def _answering(do: Doing) -> Callable[[AskRequest], Answer]:
    """What it comes to. What the store refuses is an answer for good: its writer decides what comes next."""

    def answer(request: AskRequest) -> Answer:
        try:
            return do(request)
        except (MessageInvalid, LogClosed):
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


def _close_all(segments: list[_WrittenSegment]) -> None:
    for segment in segments:
        with segment.lock:
            segment.closed = True
            segment.appender.close()
