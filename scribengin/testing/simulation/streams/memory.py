"""Streams in memory: input streams of the simulation's own, and its own sink as the simplest of outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.base.model import Position
from scribengin.connectors import AnySinkConfig, AnySourceConfig, Environment
from scribengin.connectors.contract import Sink, Source
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.gone_streams import put_together
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.plan import FAULTS_END_S
from scribengin.testing.simulation.streams.connectors import InputStream, MemorySink, MemorySource, Outputs, offset_of
from scribengin.testing.simulation.streams.contract import FLOWS, RECORDS_FOR_S, SimulatedStreams

if TYPE_CHECKING:
    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

_PASSING_S = 2.0
"""A stream that comes and goes would write all its records in so long."""
_PUT_TOGETHER = 4
"""So often somebody puts streams together that nobody owns just then, whether tasks read them or not."""


class FromMemory(SimulatedStreams):
    """Input streams in memory, written from outside, into some sink."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.inputs = {name: InputStream() for name in self._names(1 if world.plan.passing else world.plan.streams)}

    @abstractmethod
    def open_sink(self, name: str, environment: Environment) -> Sink:
        """The sink, as a process opens it."""

    @abstractmethod
    def staged(self) -> set[bytes]:
        """What is not visible yet, and will be."""

    def source_config(self) -> dict[str, Any]:
        """What stands in the config of it."""
        if self.world.plan.passing:
            return {"kind": "dafka", "topic": "in"}  # as below: of the kinds there are, its streams come and go
        return {"kind": "log", "logs": "in/*"}  # a name: it is opened in memory

    def open_source(self, name: str, _config: AnySourceConfig, _environment: Environment) -> Source:
        """The source, as a process opens it."""
        return MemorySource(name, self.inputs, streams_leave=self.world.plan.passing)

    def endpoints(self, flow: int) -> dict[str, Any]:
        return {
            "sources": {"in": self.source_config()},
            "sinks": {"out": {"kind": "hdfs", "path": "/simulated/out"}},  # a name: it is opened in memory
        }

    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        def open_sink(name: str, _config: AnySinkConfig, environment: Environment) -> Sink:
            return self.open_sink(name, environment)

        return OpenedDataflow(config, environment, self.open_source, open_sink)

    def begin(self, session: SimulatedSession) -> None:
        chance = self.world.scheduler.random
        if self.world.plan.passing:
            for number, name in enumerate(self._names(self.world.plan.streams)):
                at_s = chance.uniform(0.0, RECORDS_FOR_S - 2.0 if number else 1.0)
                self.world.later(at_s, f"writer-{name}", partial(self._pass, name))
            for _ in range(_PUT_TOGETHER):
                at_s = chance.uniform(1.0, FAULTS_END_S)
                self.world.later(at_s, "tidier", partial(put_together, session, FLOWS[0], "in", beside=()))
            return
        for name, stream in self.inputs.items():
            self.world.later(chance.uniform(0.0, 2.0), f"writer-{name}", partial(self._write, name, stream))

    def behind(self, committed: Mapping[str, Position], missing: list[bytes]) -> list[bytes]:
        staged, reached = self.staged(), self.reached(committed)
        sources = [(payload, *oracle.source_of(payload)) for payload in missing]
        return [payload for payload, name, number in sources if number < reached.get(name, 0) and payload not in staged]

    def reached(self, committed: Mapping[str, Position]) -> dict[str, int]:
        """How many records of each input stream were read, some of them before it was rewound."""
        reached: dict[str, int] = {}
        for path, position in committed.items():
            reached.update(self.numbers_at(path, position))
        return {name: max(number, self.world.seen.read_once(name)) for name, number in reached.items()}

    def numbers_at(self, path: str, position: Position | None) -> dict[str, int]:
        names = [name for name in self.inputs if f"/{name}/" in path]
        return {name: 0 if position is None else offset_of(position) for name in names}

    def be_client(self, container: Container, session: SimulatedSession) -> None:
        """There is none: these streams are written from outside."""

    def lose_unsynced(self) -> None:
        """There is no disk."""

    def fill_up(self, seconds: float) -> None:
        """There is no disk."""

    @staticmethod
    def _names(count: int) -> list[str]:
        return [f"in{number}" for number in range(count)]

    def _write(self, name: str, stream: InputStream) -> None:
        self._append_some(name, stream, range(self.world.plan.records), RECORDS_FOR_S)

    def _pass(self, name: str) -> None:
        """Come, go, come back for a while, and go for good."""
        records, scheduler = self.world.plan.records, self.world.scheduler
        stream = self.inputs.setdefault(name, InputStream())
        first = scheduler.random.randrange(1, records)
        self._append_some(name, stream, range(first), _PASSING_S)
        stream.seal()
        scheduler.pass_time(scheduler.random.uniform(0.5, 2 * _PASSING_S))
        stream.reopen()
        self._append_some(name, stream, range(first, records), _PASSING_S)
        stream.seal()

    def _append_some(self, name: str, stream: InputStream, numbers: range, for_s: float) -> None:
        scheduler = self.world.scheduler
        for number in numbers:
            payload = oracle.payload_of(name, number)
            stream.append(payload, self.world.now_ms())
            self.acknowledged.append(payload)
            scheduler.pass_time(scheduler.random.expovariate(self.world.plan.records / for_s))


class MemoryStreams(FromMemory):
    """Into the simulation's own sink, which sees everything at the moment that it happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.outputs = Outputs(world.scheduler, world.became_visible)

    def open_sink(self, name: str, environment: Environment) -> Sink:
        return MemorySink(name, self.outputs)

    def resources(self, flow: int) -> list[str]:
        return ["memory:out"]

    def staged(self) -> set[bytes]:
        return {p for s in self.outputs.streams.values() for _, payloads in s.staged.values() for p in payloads}

    def judge(self) -> None:
        oracle.check_nothing_staged({name: sorted(stream.staged) for name, stream in self.outputs.streams.items()})

    def lose_power(self) -> None:
        """There is no disk."""
