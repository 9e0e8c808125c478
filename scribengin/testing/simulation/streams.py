"""What a simulated dataflow reads and writes: the contract of a kind of streams, and streams in memory as the simplest.

A kind says what stands in the config, opens it, lets records come, and tells the oracle what readers of the output see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors import AnySinkConfig, AnySourceConfig, Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.connectors import InputStream, MemorySink, MemorySource, Outputs

if TYPE_CHECKING:
    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

RECORDS_FOR_S = 10.0
"""For so long records are written."""


class SimulatedStreams(ABC):
    """All that one simulation reads and writes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acknowledged: list[bytes] = []
        """What must come out."""

    @abstractmethod
    def endpoints(self, flow: int) -> dict[str, Any]:
        """The `sources` and `sinks` of the config of a dataflow, by its place in the chain."""

    @abstractmethod
    def resources(self, flow: int) -> list[str]:
        """What that dataflow claims."""

    @abstractmethod
    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        """What a config names, as a process of the engine opens it."""

    @abstractmethod
    def begin(self, session: SimulatedSession) -> None:
        """Make what must be there before a dataflow is submitted, and let records come."""

    @abstractmethod
    def behind(self, committed: Mapping[str, Any], missing: list[bytes]) -> list[bytes]:
        """Of what is not visible, what no owner reads again, and nobody has staged. By the path of its commit log,
        `committed` is the position of each stream."""

    @abstractmethod
    def judge(self) -> None:
        """Once everything has left: what is staged, or left behind. Raises Violation."""

    @abstractmethod
    def be_client(self, container: Container, session: SimulatedSession) -> None:
        """What a container does that is no part of a dataflow."""

    @abstractmethod
    def lose_unsynced(self) -> None:
        """The disk fails to write what was not made durable, while the power stays."""

    @abstractmethod
    def fill_up(self, seconds: float) -> None:
        """The disk is full for so long."""

    @abstractmethod
    def lose_power(self) -> None:
        """All processes have just ended with the machine's power."""

    @property
    def all_is_visible(self) -> bool:
        """Whether all was written that is to be, and everything acknowledged is seen."""
        plan = self.world.plan
        written = len(self.acknowledged) == plan.records * plan.streams
        return written and not self.world.seen.missing(self.acknowledged)


class MemoryStreams(SimulatedStreams):
    """Streams of the simulation's own connectors, which see everything at the moment that it happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.inputs = {f"in{number}": InputStream() for number in range(world.plan.streams)}
        self.outputs = Outputs(world.scheduler, world.became_visible)

    def endpoints(self, flow: int) -> dict[str, Any]:
        return {
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "hdfs", "path": "/simulated/out"}},  # a name: it is opened in memory
        }

    def resources(self, flow: int) -> list[str]:
        return ["memory:out"]

    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        def open_source(name: str, _config: AnySourceConfig, _environment: Environment) -> MemorySource:
            return MemorySource(name, self.inputs)

        def open_sink(name: str, _config: AnySinkConfig, _environment: Environment) -> MemorySink:
            return MemorySink(name, self.outputs)

        return OpenedDataflow(config, environment, open_source, open_sink)

    def begin(self, session: SimulatedSession) -> None:
        chance = self.world.scheduler.random
        for name, stream in self.inputs.items():
            self.world.later(chance.uniform(0.0, 2.0), f"writer-{name}", partial(self._write, name, stream))

    def behind(self, committed: Mapping[str, Any], missing: list[bytes]) -> list[bytes]:
        staged = {p for s in self.outputs.streams.values() for _, payloads in s.staged.values() for p in payloads}
        behind = []
        for payload in missing:
            stream, number = oracle.source_of(payload)
            position = next((at["offset"] for path, at in committed.items() if f"/{stream}/" in path), 0)
            if number < position and payload not in staged:
                behind.append(payload)
        return behind

    def judge(self) -> None:
        oracle.check_nothing_staged({name: sorted(stream.staged) for name, stream in self.outputs.streams.items()})

    def be_client(self, container: Container, session: SimulatedSession) -> None:
        """There is none: these streams are written from outside."""

    def lose_unsynced(self) -> None:
        """There is no disk."""

    def fill_up(self, seconds: float) -> None:
        """There is no disk."""

    def lose_power(self) -> None:
        """There is no disk."""

    def _write(self, name: str, stream: InputStream) -> None:
        plan = self.world.plan
        for number in range(plan.records):
            payload = oracle.payload_of(name, number)
            stream.append(payload)
            self.acknowledged.append(payload)
            self.world.scheduler.pass_time(self.world.scheduler.random.expovariate(plan.records / RECORDS_FOR_S))
