"""What a simulated dataflow reads and writes: the contract of a kind of streams.

A kind says what stands in the config, opens it, lets records come, and tells the oracle what readers of the output see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from scribengin.base.model import Position
from scribengin.connectors import Environment
from scribengin.connectors.contract import StartAt
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow

if TYPE_CHECKING:
    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

FLOWS = ("flow", "next", "third")
"""The dataflows of a chain, from its beginning on."""
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
    def numbers_at(self, path: str, position: Position | None) -> dict[str, int]:
        """What is read next at a position (None: at the beginning) of an input stream, by the path of its commit log:
        the number of a record, of everything that its records say that they are from. Of what a later dataflow reads,
        the place (`oracle.place_number`)."""

    def passed_over(  # noqa: B027  it is about chains
        self, source: str, before: Position | None, after: Position | None
    ) -> None:
        """A stream was just rewound: of one that a later dataflow reads, the oracle is told what is not read by that.
        Raises Violation."""

    def some_place(self, chance: Random, flow: int) -> StartAt | None:
        """A position that somebody names, for all streams that a dataflow reads; None: none can be named. It need not
        be in all."""
        return StartAt("offset", chance.randrange(self.world.plan.records + 1))

    @property
    def knows_times(self) -> bool:
        """Whether input streams can be rewound to any time, and to their ends."""
        return True

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

    def go_away(self, seconds: float) -> None:  # noqa: B027  most systems are in everybody's own process
        """The system that is read and written answers nobody for so long."""

    def fail_one(self, seconds: float, *, unheard: bool) -> None:  # noqa: B027  most systems are one
        """One of the servers of that system fails for so long. `unheard`: it does what it is asked next, and nobody
        hears of that."""

    def give_up(self) -> None:  # noqa: B027  most systems keep it for their readers
        """Retention takes what every owner has committed of the input."""

    def has_gone(self, path: str, position: Position) -> bool:
        """Whether retention has taken what is read next at a position of an input stream, by the path of its commit
        log."""
        return False

    @abstractmethod
    def lose_power(self) -> None:
        """All processes have just ended with the machine's power."""

    @property
    def all_is_visible(self) -> bool:
        """Whether all was written that is to be, and everything acknowledged is seen."""
        plan = self.world.plan
        written = len(self.acknowledged) == plan.records * plan.streams
        return written and not self.world.seen.missing(self.acknowledged)
