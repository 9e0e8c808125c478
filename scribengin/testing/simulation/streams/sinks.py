"""A sink that somebody gives, in a simulation: its calls are stops, what it raises is told, and a reader looks on.

Of what the sink writes to, the simulation sees what any reader sees. The reader looks whenever something was done, and
remembers it: later looks may only add to that. The sink itself is unchanged; every call goes through a wrapper, where
its process may die or stand still, and where its system may seem not to answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor, CommitLog, Decision
from scribengin.base.jvm import JvmUse
from scribengin.connectors import Environment
from scribengin.connectors.contract import (
    PAYLOAD,
    Attempt,
    Guarantee,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
    TransactionCoordinator,
)
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.owner import TaskOwner
from scribengin.errors import DecisionUnknown, ScribenginError, SystemUnreachable
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.primitives import SimulatedLock, Waiters
from scribengin.testing.simulation.streams.contract import FLOWS
from scribengin.testing.simulation.streams.memory import FromMemory
from scribengin_registry.contract import Registry

if TYPE_CHECKING:
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

_T = TypeVar("_T")
NAME = "out"
"""The sink's name in the dataflow."""
_LAST = 1_000_000_000
"""The generation of who comes after all others."""
_LOOK_S = 0.25
_SHOWN_MAX = 80
"""Of the data of a commit, in characters."""


class SinkSystem(ABC):
    """What a sink writes to, kept in memory. Each simulation makes one of its own, and all its processes share it.

    All of them run on one thread of this machine. So neither it nor its sink may wait for a real lock, thread, socket
    or timer: nobody would run meanwhile. They are overtaken only where they ask the registry, or pass a `failpoint`.
    What they need of time, `Environment.clock` gives. A seed replays only if they draw nothing by chance themselves.
    """

    @abstractmethod
    def open_sink(self, name: str, environment: Environment) -> Sink:
        """The sink, opened afresh, as another process opens it. Its output is the column `payload`."""

    def read(self, sink: Sink, stream: SinkStreamDescriptor) -> Sequence[bytes]:
        """The payloads that readers of a stream see now, in order. What `Sink.committed` says, if nothing else."""
        return [payload for batch in sink.committed(stream) for payload in batch.column(PAYLOAD).to_pylist()]

    def staged(self) -> Sequence[str]:
        """What is staged there now, in words for people. Asked at the end, when each stream was recovered by one more
        owner: nothing may be left then."""
        return ()

    def lose_power(self, seed: int) -> None:  # noqa: B027  most systems are elsewhere
        """All processes have just ended with the power of their machine. A system that is elsewhere keeps everything;
        one on that machine loses what was not durable, as `seed` wants it. From then on readers may see less than
        before, until an owner has recovered; in the end they see everything."""

    def close(self) -> None:  # noqa: B027  most systems hold nothing
        """The simulation is over. Called once."""


class SinkStreams(FromMemory):
    """Input streams in memory, into a sink that somebody gives."""

    def __init__(self, world: World, system: SinkSystem) -> None:
        super().__init__(world)
        self.system = system
        self._environment: Environment | None = None
        self._created: dict[str, SinkStreamDescriptor] = {}
        self._seen: dict[str, list[bytes]] = {}
        self._changed = Waiters()
        self._looking = SimulatedLock()
        self._powered = True
        """Whether nothing may be gone, not for a while either."""

    def open_sink(self, name: str, environment: Environment) -> Sink:
        return WatchedSink(self, self.system.open_sink(name, environment))

    def resources(self, flow: int) -> list[str]:
        with closing(self._open_reading()) as sink:
            return [sink.resource]

    def begin(self, session: SimulatedSession) -> None:
        self._environment = Environment(session, FLOWS[0], STREAM_NODES, self.world.clock, looking=True)
        super().begin(session)
        self.world.later(0.0, "readers", self._have_read)

    def staged(self) -> set[bytes]:
        return set()  # what a round has committed is visible, or somebody's to complete: asked when nobody has for long

    def judge(self) -> None:
        self._powered = True
        with self._looking:
            self._look()
            self._settle()
            self._look()
        oracle.check_nothing_staged({NAME: list(self.system.staged())})

    def _settle(self) -> None:
        """Take every stream over once more, as the next dataflow does: a late owner may have staged after the last."""
        assert self._environment is not None, "it has begun"
        registry = self._environment.registry
        with closing(self.open_sink(NAME, replace(self._environment, looking=False))) as sink:
            for stream in self._created.values():
                path = STREAM_NODES.commit_log(STREAM_NODES.sink_stream(stream.resource, stream.name))
                node = registry.find(path)
                if node is not None:  # else nobody has ever owned it
                    name = CommitLog.from_bytes(node.data, path=path).task
                    task = TaskDescriptor(name=name, sources=(), sinks=(stream,))
                    owner = TaskOwner(registry, FLOWS[0], task, owner="settling", generation=_LAST, sinks={NAME: sink})
                    owner.take_over()
                    owner.release()

    def lose_power(self) -> None:
        self._powered = False
        self.system.lose_power(self.world.scheduler.random.getrandbits(32))

    # -- what is done to it

    def created(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        """Readers look at these from now on."""
        self._created.update({stream.name: stream for stream in streams})

    def call(
        self, what: str, about: str, do: Callable[[], _T], unheard: type[ScribenginError] = SystemUnreachable
    ) -> _T:
        """Pass the stops of a call; in between, its system may not hear of it, or its answer may be lost: that is
        `unheard`. Raises it, and what the call raises."""
        world = self.world
        world.passed(f"sink.{what}:before", about)
        lost = world.loss()
        if lost == "request":
            raise unheard(f"{what} of {about}: the simulated system has not heard of it; it is asked again")
        try:
            answer = do()
        except Exception as error:
            world.tell(f"{about}: {what} raised {error!r}")
            raise
        self._changed.wake_all()
        if lost == "reply":
            raise unheard(f"{what} of {about}: the simulated system has not answered; it is asked again")
        world.passed(f"sink.{what}:after", about)
        return answer

    # -- who reads

    def _open_reading(self) -> Sink:
        assert self._environment is not None, "it has begun"
        return self.system.open_sink(NAME, self._environment)

    def _have_read(self) -> None:
        while True:
            self._changed.park(_LOOK_S)
            with self._looking:
                try:
                    self._look()
                except ScribenginError as error:
                    self.world.tell(f"readers look again: {error}")

    def _look(self) -> None:
        with closing(self._open_reading()) as sink:
            for stream in list(self._created.values()):
                self._saw(stream.name, list(self.system.read(sink, stream)))

    def _saw(self, stream: str, found: list[bytes]) -> None:
        seen = self._seen.setdefault(stream, [])
        if not self._powered and found == seen[: len(found)]:
            return
        oracle.check_extended(stream, seen, found)
        new = tuple(found[len(seen) :])
        if not new:
            return
        seen += new
        oracle.check_written(stream, new, self.acknowledged)
        self.world.became_visible(stream, new)
        oracle.check_committed(stream, new, self.reached(self.world.positions()))


class WatchedSink(Sink):
    """A sink whose calls are stops."""

    def __init__(self, streams: SinkStreams, inner: Sink) -> None:
        self._streams = streams
        self._inner = inner

    @property
    def resource(self) -> str:
        return self._inner.resource

    @property
    def side_columns(self) -> pa.Schema:
        return self._inner.side_columns

    @property
    def guarantee(self) -> Guarantee:
        return self._inner.guarantee

    @property
    def guarantee_note(self) -> str:
        return self._inner.guarantee_note

    @property
    def jvm_a_process(self) -> JvmUse | None:
        return self._inner.jvm_a_process

    def refuse_unwritable(self) -> None:
        self._inner.refuse_unwritable()

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return self._inner.streams(count)

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        names = " ".join(stream.name for stream in streams)
        self._streams.call("create", names, lambda: self._inner.create(streams))
        self._streams.created(streams)

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        about = f"stream {stream.name} of epoch {attempt.epoch}"
        given = attempt
        if isinstance(attempt.coordinator, WatchedCoordinator):  # the sink knows its own
            given = replace(attempt, coordinator=attempt.coordinator.inner)
        opened = self._streams.call("open_writer", about, lambda: self._inner.open_writer(stream, given))
        return WatchedWriter(self._streams, opened, about)

    def coordinator_id(self, stream: SinkStreamDescriptor) -> str | None:
        return self._inner.coordinator_id(stream)

    def open_coordinator(self, stream: SinkStreamDescriptor, task: str) -> TransactionCoordinator:
        return WatchedCoordinator(self._streams, self._inner.open_coordinator(stream, task), f"decisions of {task}")

    def maintain(self, registry: Registry, *, idle: bool) -> None:
        self._streams.call("maintain", "the sink", lambda: self._inner.maintain(registry, idle=idle))

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        return self._inner.committed(stream)

    def unreachable(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        return self._inner.unreachable(stream)

    def close(self) -> None:
        self._streams.world.scheduler.refuse_ended()
        self._inner.close()


class WatchedWriter(SinkStreamWriter):
    """A writer whose calls are stops, and lines of the transcript."""

    def __init__(self, streams: SinkStreams, inner: SinkStreamWriter, about: str) -> None:
        self._streams = streams
        self._inner = inner
        self._about = about

    def recover(self, committed: CommitDescriptor | None) -> None:
        self._call("recover", _shown(committed), lambda: self._inner.recover(committed))

    @property
    def payload_bytes_max(self) -> int | None:
        return self._inner.payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        self._inner.check(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        self._call("write", oracle.told(batch.column(PAYLOAD).to_pylist()), lambda: self._inner.write(batch))

    def prepare_commit(self) -> CommitDescriptor | None:
        return self._call("prepare_commit", "", self._inner.prepare_commit)

    def complete_commit(self, committed: CommitDescriptor) -> None:
        self._call("complete_commit", _shown(committed), lambda: self._inner.complete_commit(committed))

    def rollback(self) -> None:
        self._call("rollback", "", self._inner.rollback)

    def close(self) -> None:
        self._streams.world.scheduler.refuse_ended()
        self._inner.close()

    def _call(self, what: str, given: str, do: Callable[[], _T]) -> _T:
        def told() -> _T:
            answer = do()
            returned = f" = {_shown(answer)}" if isinstance(answer, CommitDescriptor) else ""
            self._streams.world.tell(f"{self._about}: {what}({given}){returned}")
            return answer

        return self._streams.call(what, self._about, told)


class WatchedCoordinator(TransactionCoordinator):
    """A transaction coordinator whose calls are stops, and lines of the transcript."""

    def __init__(self, streams: SinkStreams, inner: TransactionCoordinator, about: str) -> None:
        self._streams = streams
        self.inner = inner
        self._about = about

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def staged(self) -> bool:
        return self.inner.staged

    def recover(self) -> Decision | None:
        return self._call("recover_decision", "", self.inner.recover)

    def establish(self, last: Decision) -> None:
        self._call("establish", f"epoch {last.epoch}, round {last.round}", lambda: self.inner.establish(last))

    def prepare(self, decision: Decision) -> None:
        given = f"epoch {decision.epoch}, round {decision.round}"
        self._call("prepare", given, lambda: self.inner.prepare(decision))

    def commit(self) -> None:
        self._call("commit", "", self.inner.commit, DecisionUnknown)

    def abort(self) -> None:
        self._call("abort", "", self.inner.abort)

    def close(self) -> None:
        self._streams.world.scheduler.refuse_ended()
        self.inner.close()

    def _call(
        self, what: str, given: str, do: Callable[[], _T], unheard: type[ScribenginError] = SystemUnreachable
    ) -> _T:
        def told() -> _T:
            answer = do()
            returned = f" = epoch {answer.epoch}, round {answer.round}" if isinstance(answer, Decision) else ""
            self._streams.world.tell(f"{self._about}: {what}({given}){returned}")
            return answer

        return self._streams.call(what, self._about, told, unheard)


def _shown(committed: CommitDescriptor | None) -> str:
    if committed is None:
        return "None"
    data = str(committed.data)
    return f"{committed.records} records {data if len(data) <= _SHOWN_MAX else data[:_SHOWN_MAX] + '...'}"
