"""Somebody who rewinds a dataflow of a simulation: a process like others, which dies and stalls as they do.

It pauses the dataflow or stops it, moves its streams once nobody owns them, and lets it run again. Now and then
somebody else does that too early, so that owners come while it is at it. The simulation is told of every move at the
moment that it is made: how much was read until then, and from where on it is read again. Then each record has to come
out once more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import yaml

from scribengin.base.model import Position
from scribengin.connectors.contract import StartAt
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy, RewindOvertaken, ScribenginError
from scribengin.launcher.contract import ContainerExit, ContainerRequest
from scribengin.operations.lifecycle import masters
from scribengin.operations.rewind import Rewind, Rewound
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.plan import PlannedRewind
from scribengin.testing.simulation.streams.contract import FLOWS
from scribengin_registry.errors import VersionConflict

if TYPE_CHECKING:
    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

Move = tuple[str, Position | None, Position | None]
"""The path of a commit log, its position, and the new one."""
PROGRAM = "rewinder"
PEOPLE = "people"
"""Stands for the dataflow of processes that belong to none."""
TRIES = 12
_AGAIN_S = 0.5
_EARLIER_S = 4.0
"""A rewind to an earlier time goes back up to so far."""
_TOO_EARLY = 0.3
"""How often somebody else lets the dataflow run again."""
_GONE = "is wanted, and the first one that is still there is"
"""What a dataflow fails with that stands at what retention has taken."""


@dataclass(eq=False, slots=True)
class _Attempt:
    """Somebody moves a dataflow, or moves it back."""

    dataflow: str
    went_astray: bool = False
    """Whether it has stood at what has gone meanwhile."""


class Rewinding:
    """All rewinds of one simulation, and what is known of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers: dict[tuple[str, str], dict[str, int]] = {}
        """Which records come next, by the commit log's path and the position: of those that a rewind has looked at."""
        self._looked: list[set[str]] = []
        """What each of them was to move, and to move back."""
        self._at_it: list[_Attempt] = []
        """Those who move a dataflow to what retention may take meanwhile, or move it back, just now."""
        self._left: set[str] = set()
        """Dataflows that somebody moved to what has gone, and came to no end: they may fail by it, or have failed."""
        self._planned: dict[str, PlannedRewind] = {}
        """By the name of who is to do it."""
        self._count = 0

    def start(self, hosts: str, rewind: PlannedRewind) -> None:
        """Launch one who rewinds."""
        self._count += 1
        name = f"rewinder-{self._count}"
        self._planned[name] = rewind
        self._world.machine.start(ContainerRequest(hosts, PEOPLE, name, [PROGRAM], memory_mb=1))

    def mended(self, dataflow: str) -> list[str]:
        """By which words a dataflow may fail, because of a rewind that was cut short, until people rewind it again."""
        return [_GONE] if dataflow in self._left.union(one.dataflow for one in self._at_it) else []

    def mended_by_now(self, dataflow: str) -> None:
        """People have seen that it failed, and it is about to run again: it may not fail so once more, if it stands at
        what is there."""
        if not self._stands_at_what_has_gone():
            self._left.discard(dataflow)

    def makes_good(self, hosts: str, flow: int) -> bool:
        """Whether a dataflow stands at what is there, or a rewind of it has said that it does. Else somebody rewinds it
        to where its streams begin by now."""
        if any(PROGRAM in container.request.argv for container in self._world.machine.running):
            return False
        if any(one.dataflow == FLOWS[flow] for one in self._at_it):
            return False  # it has just been ended: nothing says yet where it has left the dataflow
        if FLOWS[flow] in self._left and self._stands_at_what_has_gone():
            self.start(hosts, PlannedRewind(self._world.scheduler.now_s, "earliest", flow))
            return False
        return True

    def end(self) -> None:
        """Those that are still at it are told to leave it."""
        for container in self._world.machine.running:
            if PROGRAM in container.request.argv:
                self._world.machine.end(container, ContainerExit("killed", -9, "told to leave it"))

    def is_by_one(self, session_id: int) -> bool:
        """Whether that session is of one who rewinds."""
        at_it = [one for one in self._world.machine.running if PROGRAM in one.request.argv]
        return any(one.session is not None and one.session.session_id == session_id for one in at_it)

    def be_one(self, container: Container, session: SimulatedSession) -> None:
        """What the process of one does. Raises ScribenginError, for it to end by."""
        rewind, world = self._planned[container.descriptor.name], self._world
        view = DataflowView(session, FLOWS[rewind.flow])
        self._edit(view, "desired_state", "stopped" if rewind.ended else "paused")
        if world.scheduler.random.random() < _TOO_EARLY:
            early_s = world.scheduler.random.uniform(0.0, 2.0)
            world.later(early_s, "editor", partial(world.run_again, rewind.flow))
        for _ in range(TRIES):
            world.scheduler.pass_time(_AGAIN_S)
            try:
                if rewind.ended:
                    _refuse_unless_ended(view)
                self._rewind(view, self._place(rewind))
                break
            except ScribenginError as error:
                world.tell(f"does not rewind: {error}")
        self._edit(view, "desired_state", "running")
        if rewind.ended:
            world.start_again(view)

    def moved(self, moves: Sequence[Move]) -> None:
        """Positions were set without a round, in one transaction. Raises Violation."""
        oracle.check_moved_together({_told(*move) for move in moves}, self._looked)
        if self._stands_at_what_has_gone():
            for attempt in self._at_it:
                attempt.went_astray = True
        for path, before, after in moves:
            read, first = self._numbers[path, _text(before)], self._numbers[path, _text(after)]
            for source in sorted({*read, *first}):
                self._world.tell(f"{source} is read again from {first.get(source, 0)}, of {read.get(source, 0)}")
                self._world.seen.rewound(source, read.get(source, 0), first.get(source, 0))
                self._world.streams.passed_over(source, before, after)

    def _rewind(self, view: DataflowView, at: StartAt) -> None:
        world = self._world
        before = self._commit_logs(view)
        rewind = Rewind(view, at, None, world.clock, world.open_dataflow)
        world.passed("rewind.looked:after", str(at))
        whole, looked = before & self._commit_logs(view), self._look(view, rewind.streams)
        world.judged(partial(oracle.check_all_looked_at, whole, looked))
        self._apply(rewind, view.dataflow)
        world.tell(f"has rewound to {at}")

    def _apply(self, rewind: Rewind, dataflow: str) -> None:
        """A rewind that returns leaves all streams at what is there; one that says that nothing was rewound, where they
        were."""
        if not self._world.plan.gives_up:
            rewind.apply()
            return
        attempt, settled = _Attempt(dataflow), False
        self._at_it.append(attempt)
        try:
            rewind.apply()
            settled = True
        except RewindOvertaken:
            settled = True
            raise
        finally:
            self._at_it.remove(attempt)
            if attempt.went_astray and not settled:
                self._left.add(dataflow)

    def _stands_at_what_has_gone(self) -> bool:
        """Whether any stream does. Retention takes nothing but in plans of one dataflow."""
        positions = self._world.safe_positions()
        return any(self._world.streams.has_gone(path, position) for path, position in positions.items())

    def _commit_logs(self, view: DataflowView) -> set[str]:
        """Of all streams that the dataflow's tasks read, or have read."""
        found = [(stream.source, stream.name) for task in view.tasks().values() for stream in task.sources]
        if self._world.plan.passing:
            found += [("in", name) for name in view.streams_read("in") if view.commit_log_of("in", name) is not None]
        return {paths.commit_log(view.paths.source_stream(*stream)) for stream in found}

    def _look(self, view: DataflowView, streams: Sequence[Rewound]) -> set[str]:
        moves: list[Move] = []
        for stream in streams:
            path = paths.commit_log(view.paths.source_stream(stream.source, stream.stream))
            moves.append((path, stream.before, stream.after))
            for position in (stream.before, stream.after):
                self._numbers[path, _text(position)] = self._world.streams.numbers_at(path, position)
        there = {_told(*move) for move in moves if move[1] != move[2]}
        back = {_told(path, after, before) for path, before, after in moves if before != after}
        self._looked += [there, back]
        return {path for path, _, _ in moves}

    def _place(self, rewind: PlannedRewind) -> StartAt:
        to, chance = rewind.to, self._world.scheduler.random
        if to == "anywhere":
            return self._world.streams.some_place(chance, rewind.flow) or StartAt("earliest")
        if to != "earlier" or not self._world.streams.knows_times:
            return StartAt("latest" if to == "latest" and self._world.streams.knows_times else "earliest")
        back_s = chance.uniform(0.0, _EARLIER_S)
        return StartAt("time", self._world.now_ms() - round(back_s * 1000))

    def _edit(self, view: DataflowView, key: str, value: str) -> None:
        edit(view, key, value)
        self._world.tell(f"edits {key} to {value}")


@cache
def _value(text: str) -> object:
    """What somebody types, as it is meant: one word."""
    return yaml.safe_load(text)


def edit(view: DataflowView, key: str, value: str) -> None:
    """Change one thing of a dataflow's config, whatever else is changed meanwhile."""
    *parents, last = key.split(".")
    while True:
        found = view.config()
        changed = found.value.model_dump(mode="json")
        node = changed
        for parent in parents:
            node = node[parent]
        node[last] = _value(value)
        with suppress(VersionConflict):
            view.set_config(DataflowConfig.parse(changed, source="an edit"), found.version)
            return


def _refuse_unless_ended(view: DataflowView) -> None:
    """As the command does. Raises DataflowBusy."""
    state = view.status().state
    if state not in FINAL_STATES or masters(view):
        raise DataflowBusy(f"dataflow '{view.dataflow}' is {state}, and {masters(view)} masters of it are there")


def _text(position: Position | None) -> str:
    return json.dumps(position, sort_keys=True)


def _told(path: str, before: Position | None, after: Position | None) -> str:
    return f"{path} from {_text(before)} to {_text(after)}"
