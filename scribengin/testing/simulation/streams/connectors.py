"""A source and a sink in memory that keep the contract: append-only streams in, records that become visible once out.

What outlives processes is in `InputStream` and `Outputs`; what a process opens is a view of them. The sink stages
under a token of its own, fences by epoch as the log does, completes what is named, and rolls back the rest. Whatever a
reader sees is told to who wants to know, at the moment that it is seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Position
from scribengin.connectors.contract import (
    PAYLOAD,
    RECORD_SCHEMA,
    Attempt,
    PlannedRange,
    RoundLimits,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
    Source,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.errors import ConfigInvalid, InconsistentLog, StaleOwner
from scribengin.log.format.columns import texts
from scribengin.testing.simulation.primitives import Waiters
from scribengin.testing.simulation.scheduler import Scheduler

KIND = "memory"


class InputStream:
    """An append-only stream of payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.times_ms: list[int] = []
        self.sealed = False
        self._grown = Waiters()

    def append(self, payload: bytes, now_ms: int) -> None:
        """Acknowledged when this returns."""
        self.payloads.append(payload)
        self.times_ms.append(now_ms)
        self._grown.wake_all()

    def seal(self) -> None:
        """Nothing comes any more."""
        self.sealed = True
        self._grown.wake_all()

    def reopen(self) -> None:
        """More may come again."""
        self.sealed = False

    def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Whether there is something at that offset, or was within that time."""
        if len(self.payloads) <= offset:
            self._grown.park(timeout_s)
        return len(self.payloads) > offset


@dataclass(frozen=True, slots=True)
class _Split:
    payloads: tuple[bytes, ...]

    @property
    def records(self) -> int:
        return len(self.payloads)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.payloads))

    def read(self) -> Iterator[pa.RecordBatch]:
        """All of them as one batch."""
        yield batch_of(self.payloads)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """A number each."""
        return [str(index) for index in indices]


class _Reader(SourceStreamReader):
    def __init__(self, stream: InputStream) -> None:
        self._stream = stream

    def initial_position(self) -> Position:
        return {"offset": 0}

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        first = offset_of(position)
        payloads = tuple(self._stream.payloads[first : first + limits.records_max])
        if not payloads:
            return None
        return PlannedRange(position, {"offset": first + len(payloads)}, len(payloads), (_Split(payloads),))

    def wait(self, position: Position, timeout_s: float) -> bool:
        return self._stream.wait_beyond(offset_of(position), timeout_s)

    def lag(self, position: Position) -> int:
        return len(self._stream.payloads) - offset_of(position)

    def ended(self, position: Position) -> bool:
        return self._stream.sealed and not self.lag(position)

    def close(self) -> None:
        """Nothing is held."""


class MemorySource(Source):
    """All input streams there are. With `streams_leave`, those that are sealed may be opened again."""

    def __init__(self, name: str, streams: dict[str, InputStream], *, streams_leave: bool = False) -> None:
        self._name = name
        self._streams = streams
        self._streams_leave = streams_leave

    @property
    def schema(self) -> pa.Schema:
        return RECORD_SCHEMA

    def streams(self) -> list[SourceStreamDescriptor]:
        return [SourceStreamDescriptor(source=self._name, name=name) for name in sorted(self._streams)]

    @property
    def streams_leave(self) -> bool:
        return self._streams_leave

    def goes_on(self, stream: SourceStreamDescriptor, position: Position) -> bool:
        return not self.open_reader(stream).ended(position)

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        return _Reader(self._streams[stream.name])

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        times_ms = self._streams[stream.name].times_ms
        end, value = len(times_ms), int(at.value)
        if at.kind == "offset" and value > end:
            raise ConfigInvalid(f"source '{self._name}': {stream.name} has {end} records, and {value} is none of them")
        offsets = {"earliest": 0, "latest": end, "time": bisect_left(times_ms, value), "offset": value}
        return {"offset": offsets[at.kind]}

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class OutputStream:
    """One stream of the sink, as it outlives processes."""

    visible: list[bytes] = field(default_factory=list)
    staged: dict[str, tuple[int, tuple[bytes, ...]]] = field(default_factory=dict)
    """By token: the epoch of who staged it, and the records."""
    completed: set[str] = field(default_factory=set)
    epoch: int = 0
    """Of the last owner that recovered: those before it may not stage any more."""


class Outputs:
    """All output streams. `seen` is called with what became visible."""

    def __init__(self, scheduler: Scheduler, seen: Callable[[str, tuple[bytes, ...]], None]) -> None:
        self.scheduler = scheduler
        self.streams: dict[str, OutputStream] = {}
        self._seen = seen
        self._tokens = 0

    def stage(self, name: str, epoch: int, payloads: tuple[bytes, ...]) -> str:
        """Keep these, invisibly, under a new token. Raises StaleOwner."""
        self.scheduler.refuse_ended()
        stream = self.streams[name]
        if epoch < stream.epoch:
            raise StaleOwner(f"stream {name} was recovered under epoch {stream.epoch}; this is {epoch}")
        self._tokens += 1
        token = f"{name}-{self._tokens}"
        stream.staged[token] = (epoch, payloads)
        return token

    def fence(self, name: str, epoch: int) -> None:
        """No owner before that epoch stages any more. Raises StaleOwner."""
        self.scheduler.refuse_ended()
        stream = self.streams[name]
        if epoch < stream.epoch:
            raise StaleOwner(f"stream {name} was recovered under epoch {stream.epoch}; this is {epoch}")
        stream.epoch = epoch

    def complete(self, name: str, token: str) -> None:
        """Make visible what was staged under this token, unless it is. Raises InconsistentLog: it is not there."""
        self.scheduler.refuse_ended()
        stream = self.streams[name]
        if token in stream.completed:
            return
        if token not in stream.staged:
            raise InconsistentLog(f"stream {name}: {token} was committed, and is not there")
        _, payloads = stream.staged.pop(token)
        stream.completed.add(token)
        stream.visible += payloads
        self._seen(name, payloads)

    def drop(self, name: str, tokens: Iterable[str]) -> None:
        """Forget what was staged under these."""
        self.scheduler.refuse_ended()
        for token in tokens:
            self.streams[name].staged.pop(token, None)

    def staged_before(self, name: str, epoch: int) -> list[str]:
        """The tokens of what owners up to that epoch have staged."""
        return [token for token, (by, _) in self.streams[name].staged.items() if by <= epoch]


class _Writer(SinkStreamWriter):
    def __init__(self, outputs: Outputs, name: str, attempt: Attempt) -> None:
        self._outputs = outputs
        self._name = name
        self._epoch = attempt.epoch
        self._written: list[bytes] = []

    def recover(self, committed: CommitDescriptor | None) -> None:
        with failpoint("sink.fence"):
            self._outputs.fence(self._name, self._epoch)
        if committed is not None:
            self.complete_commit(committed)
        self._written = []
        left = self._outputs.staged_before(self._name, self._epoch)
        if left:
            with failpoint("sink.roll-back"):
                self._outputs.drop(self._name, left)

    def write(self, batch: pa.RecordBatch) -> None:
        self._written += batch.column(PAYLOAD).to_pylist()

    def prepare_commit(self) -> CommitDescriptor | None:
        if not self._written:
            return None
        payloads, self._written = tuple(self._written), []
        with failpoint("sink.stage"):
            token = self._outputs.stage(self._name, self._epoch, payloads)
        return CommitDescriptor(kind=KIND, records=len(payloads), data={"token": token})

    def complete_commit(self, committed: CommitDescriptor) -> None:
        with failpoint("sink.complete"):
            self._outputs.complete(self._name, str(committed.data["token"]))

    def rollback(self) -> None:
        self._written = []
        with failpoint("sink.roll-back"):
            self._outputs.drop(self._name, self._outputs.staged_before(self._name, self._epoch))

    def close(self) -> None:
        """What is staged stays."""


class MemorySink(Sink):
    """Streams by number."""

    def __init__(self, name: str, outputs: Outputs) -> None:
        self._name = name
        self._outputs = outputs

    @property
    def resource(self) -> str:
        return "memory:out"

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [
            SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(number)) for number in range(count)
        ]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        for stream in streams:
            self._outputs.streams.setdefault(stream.name, OutputStream())

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        return _Writer(self._outputs, stream.name, attempt)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        return [batch_of(self._outputs.streams[stream.name].visible)]

    def close(self) -> None:
        """Nothing is held."""


def batch_of(payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Records of these payloads."""
    return pa.record_batch([texts(payloads, pa.binary())], names=[PAYLOAD])


def offset_of(position: Position) -> int:
    """How many records of a stream lie before a position."""
    offset = position["offset"]
    assert isinstance(offset, int)
    return offset
