"""How dataflows are deleted at the end of some simulations, by several at the same time, who may die at it.

One or two begin, at moments that are drawn. Some of them end before they are done, and some stand still for a while:
they go on when others have deleted the dataflow, and somebody has submitted it again. That one stays, whole, until it
is deleted, too, and uses no number that the first one has used. Then the registry holds nothing of it.
Some rewind it instead, and do not know that it goes.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors.contract import StartAt
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes, mark_deleting
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import release_all_holds
from scribengin.errors import DataflowBusy, DataflowNotFound, ScribenginError
from scribengin.operations.delete import refuse_running
from scribengin.operations.rewind import Rewind
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.registry import SimulatedSession
from scribengin.testing.simulation.scheduler import SimulatedProcess
from scribengin.testing.simulation.streams.contract import FLOWS
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, RegistryError, VersionConflict

if TYPE_CHECKING:
    from scribengin.testing.simulation.world import World

_LONG_S = 10.0
"""Nobody who deletes has a session that ends by itself."""
_BEGUN_S = 0.3
"""Within so long those begin who do not end it, and are ended, or stand still."""
_STALL_S = 3.0
_TRIES = 5
_STALLS = 0.5
_SUBMITTED_AGAIN = 0.5
_REWINDS = 0.25
"""So many of those who begin rewind it instead."""


class Deleting:
    """The deletion of one simulation's dataflows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0

    def delete(self, session: Registry, flow: int, view: DataflowView) -> None:
        """One of them, until nothing of it is there. Raises Violation."""
        world, chance = self._world, self._world.scheduler.random
        config, resources = view.config_in_force().value, world.streams.resources(flow)
        reached = view.numbers_reached()
        begun = [self._begin(view.dataflow) for _ in range(chance.choice((1, 1, 2)))]
        world.scheduler.pass_time(chance.uniform(0.0, _BEGUN_S))
        for process in begun:
            if chance.random() < _STALLS:
                world.tell(f"{process.name} stands still")
                world.scheduler.stall(process, _STALL_S)
            else:
                world.scheduler.end(process)
        self._end(session, view.dataflow)
        if chance.random() < _SUBMITTED_AGAIN:
            view.submit(config, resources, world.now_ms())
            world.tell(f"{view.dataflow} is submitted again")
            oracle.check_numbers_grow(view.dataflow, reached.model_dump(), view.numbers_reached().model_dump())
            there = self._left(view.dataflow)
            world.scheduler.pass_time(2 * _STALL_S)
            oracle.check_stays(view.dataflow, there, self._left(view.dataflow))
            view.set_status(view.status().model_copy(update={"state": "stopped"}))
            self._end(session, view.dataflow)
        world.scheduler.pass_time(2 * _STALL_S)
        oracle.check_nothing_left(self._left(view.dataflow))

    def _begin(self, dataflow: str) -> SimulatedProcess:
        world = self._world
        self._count += 1
        process = world.process(f"people-{self._count}")
        session = SimulatedSession(world, process, _LONG_S)
        delay_s = world.scheduler.random.uniform(0.0, _BEGUN_S / 2)
        does = self._rewind if world.scheduler.random.random() < _REWINDS else self._delete
        world.scheduler.spawn(process, "main", partial(does, session, dataflow), delay_s=delay_s)
        return process

    def _rewind(self, session: Registry, dataflow: str) -> None:
        """Somebody who does not know that it is deleted rewinds it, or is refused."""
        world = self._world
        try:
            rewind = Rewind(
                DataflowView(session, dataflow), StartAt("earliest"), None, world.clock, world.open_dataflow
            )
            world.passed("rewind.looked:after")
            rewind.apply()
        except (ScribenginError, RegistryError) as error:
            world.tell(f"does not rewind {dataflow}: {error}")
        else:
            world.tell(f"has rewound {dataflow}")

    def _delete(self, session: Registry, dataflow: str) -> None:
        """As the command does, of what stands in the registry. It is refused, or all is done, by it or others."""
        view = DataflowView(session, dataflow)
        try:
            seen = refuse_running(view)
            self._world.tell(f"deletes {dataflow}")
            mark = mark_deleting(view, seen)
            if self._world.plan.storage == "logs":
                self._release_holds(view)
            delete_nodes(view, mark)
        except (DataflowBusy, DataflowNotFound, VersionConflict, NodeMissing) as error:
            self._world.tell(f"does not delete {dataflow}: {error}")
        else:
            self._world.tell(f"has deleted {dataflow}")

    @staticmethod
    def _release_holds(view: DataflowView) -> None:
        with suppress(DataflowNotFound):  # somebody else has come that far
            release_all_holds(view.registry, view.config_in_force().value)

    def _end(self, session: Registry, dataflow: str) -> None:
        """Delete it, whatever others leave. Raises Violation."""
        for _ in range(_TRIES):
            if self._world.ensemble.tree.find(paths.DataflowPaths(dataflow).root) is None:
                break
            self._delete(session, dataflow)
        oracle.check_nothing_left(self._left(dataflow))

    def _left(self, dataflow: str) -> list[str]:
        """What stands in the registry of one, but for the numbers that it has reached. Claims are the last one's."""
        tree = self._world.ensemble.tree
        roots = (paths.DataflowPaths(dataflow).root, f"{paths.SOURCES}/{dataflow}.", *self._claims(dataflow))
        reads = f"/readers/dataflow%20{dataflow}."
        return [path for path in tree.paths() if path.startswith(roots) or reads in path]

    def _claims(self, dataflow: str) -> list[str]:
        """The nodes of the sinks that it writes: with the last one, nobody has any."""
        flow = FLOWS.index(dataflow)
        named = [paths.sink_resource(resource) for resource in self._world.streams.resources(flow)]
        return [*named, f"{paths.SINKS}/"] if flow == self._world.plan.flows - 1 else named
