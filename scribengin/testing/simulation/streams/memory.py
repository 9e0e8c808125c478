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
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.streams.connectors import InputStream, MemorySink, MemorySource, Outputs, offset_of
from scribengin.testing.simulation.streams.contract import RECORDS_FOR_S, SimulatedStreams

if TYPE_CHECKING:
    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World


class FromMemory(SimulatedStreams):
    """Input streams in memory, written from outside, into some sink."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.inputs = {f"in{number}": InputStream() for number in range(world.plan.streams)}

    @abstractmethod
    def open_sink(self, name: str, environment: Environment) -> Sink:
        """The sink, as a process opens it."""

    @abstractmethod
    def staged(self) -> set[bytes]:
        """What is not visible yet, and will be."""

    def source_config(self) -> dict[str, Any]:
        """What stands in the config of it."""
        return {"kind": "log", "logs": "in/*"}  # a name: it is opened in memory

    def open_source(self, name: str, _config: AnySourceConfig, _environment: Environment) -> Source:
        """The source, as a process opens it."""
        return MemorySource(name, self.inputs)

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

    def _write(self, name: str, stream: InputStream) -> None:
        plan = self.world.plan
        for number in range(plan.records):
            payload = oracle.payload_of(name, number)
            stream.append(payload, self.world.now_ms())
            self.acknowledged.append(payload)
            self.world.scheduler.pass_time(self.world.scheduler.random.expovariate(plan.records / RECORDS_FOR_S))


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
