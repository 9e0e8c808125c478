"""Mistakes of protocol about rewinds, put in one at a time: what simulations that rewind are there to find.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin.connectors.contract import StartAt
from scribengin.connectors.kafka.source.source import KafkaStreamReader
from scribengin.connectors.log.source import LogSource
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.log import DLSN
from scribengin.log.retention import truncation
from scribengin.log.retention.holds import RegisteredReaders
from scribengin.operations.rewind import Rewind
from scribengin.testing.simulation.plan import Fault, Plan, PlannedRewind, RewindTo, Storage, drawn
from scribengin_registry.contract import ANY_VERSION, Create, Delete, Operation, Set
from tests.property.simulation_log_mistakes import LASTING, Where
from tests.property.simulation_mistakes import Mistake


def rewind_without_versions(patch: pytest.MonkeyPatch) -> None:
    """Whoever has committed since the rewind looked is overwritten."""
    _write_as(patch, lambda made: Set(made.path, made.data, ANY_VERSION) if isinstance(made, Set) else made)


def rewind_with_rounds_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """A rewound stream counts its rounds anew, as if it had never been read."""
    _write_as(patch, lambda made: _with_log(made, round=0))


def forget_the_fence_with_a_rewind(patch: pytest.MonkeyPatch) -> None:
    """A rewound stream forgets which of its owners were fenced."""
    _write_as(patch, lambda made: _with_log(made, epoch=0))


def rewind_by_deleting(patch: pytest.MonkeyPatch) -> None:
    """A rewind deletes what was committed, for the next owner to begin anew."""
    _write_as(patch, lambda made: Delete(made.path, made.version) if isinstance(made, Set) else made)


def rewind_stream_by_stream(patch: pytest.MonkeyPatch) -> None:
    """A transaction a stream: whoever dies in between leaves some of them rewound."""
    _commit_as(patch, lambda _view, operations: [[operation] for operation in operations])


def rewind_the_sinks_too(patch: pytest.MonkeyPatch) -> None:
    """What was committed and is not complete yet is forgotten with the positions."""

    def with_sinks(view: Any, operations: Sequence[Operation]) -> list[list[Operation]]:
        sinks = [sink for task in view.tasks().values() for sink in task.sinks]
        found = [STREAM_NODES.commit_log(STREAM_NODES.sink_stream(sink.resource, sink.name)) for sink in sinks]
        there = [(path, node) for path in found if (node := view.registry.find(path)) is not None]
        forgotten = [_with_log(Set(path, node.data, node.version), committed=None) for path, node in there]
        return [[*operations, *forgotten]]

    _commit_as(patch, with_sinks)


def rewind_to_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether what is to be read again was truncated while the positions moved."""
    patch.setattr(Rewind, "_guard", lambda _self, _guarded: None)
    patch.setattr(Rewind, "_keep_or_move_back", lambda _self, _versions: None)


def rewind_to_a_beginning_that_is_gone(patch: pytest.MonkeyPatch) -> None:
    """The same, of those alone who go back to where a log begins: that moves, too."""
    guard, keep = Rewind._guard, Rewind._keep_or_move_back
    patch.setattr(Rewind, "_guard", lambda self, guarded: self._at.kind == "earliest" or guard(self, guarded))
    patch.setattr(
        Rewind, "_keep_or_move_back", lambda self, versions: self._at.kind == "earliest" or keep(self, versions)
    )


def rewind_to_what_is_still_to_come(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a log has come to the position that it is to be read from."""
    patch.setattr(LogSource, "_refuse_to_come", lambda _self, _log, _dlsn: None)


def rewind_the_first_stream(patch: pytest.MonkeyPatch) -> None:
    """All streams but one stay where they are."""
    real = Rewind._streams
    patch.setattr(Rewind, "_streams", lambda self, resources: islice(real(self, resources), 1))


def hold_back_for_no_rewind(patch: pytest.MonkeyPatch) -> None:
    """A log is held back from the furthest position that its reader ever had, as if there were no way back."""
    furthest: dict[str, DLSN] = {}

    def position(self: Any, reader: Any) -> DLSN:
        key = f"{self._path} {reader.commit_log}"
        furthest[key] = max(furthest.get(key, DLSN.INITIAL), real(self, reader))
        return furthest[key]

    real = RegisteredReaders._position
    patch.setattr(RegisteredReaders, "_position", position)


def rewind_behind_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """The end of a log is taken from what its writer has begun, and readers do not see yet."""

    def position_at(self: LogSource, stream: Any, at: StartAt, before: Position | None = None) -> Position:
        found = real(self, stream, at, before)
        return found if at.kind != "latest" else {**found, "entry": int(found["entry"]) + 2}

    real = LogSource.position_at
    patch.setattr(LogSource, "position_at", position_at)


def rewind_to_an_end_that_readers_have_passed(patch: pytest.MonkeyPatch) -> None:
    """The power failed, and readers see less of a log than was read: that is taken for its end."""
    real = LogSource.position_at
    patch.setattr(LogSource, "position_at", lambda self, stream, at, _before=None: real(self, stream, at))


def remove_files_of_a_purge_that_failed(patch: pytest.MonkeyPatch) -> None:
    """Who comes to want a segment again, while a purge looks, finds it listed, and its file is gone."""

    last: list[Any] = []

    def droppable(*look: Any) -> Any:
        found = looked(*look)
        last[:] = found or last
        return found

    def drop(*purge: Any) -> Any:
        last.clear()
        dropped, state = real(*purge)
        return dropped or [*last], state

    looked, real = truncation._droppable_now, truncation._drop
    patch.setattr(truncation, "_droppable_now", droppable)
    patch.setattr(truncation, "_drop", drop)


def ask_how_much_is_left_and_not_from_where(patch: pytest.MonkeyPatch) -> None:
    """Retention took what was to be read again while the positions moved, and a topic's lag says nothing of that."""

    def refuse_gone(self: KafkaStreamReader, position: Position) -> None:
        self.lag(position)

    patch.setattr(KafkaStreamReader, "refuse_gone", refuse_gone)


def move_back_whoever_came(patch: pytest.MonkeyPatch) -> None:
    """A rewind that is taken back does not compare: it writes over an owner that came meanwhile."""

    def keep_or_move_back(self: Any, versions: Sequence[int]) -> None:
        real(self, [ANY_VERSION for _ in versions])

    real = Rewind._keep_or_move_back
    patch.setattr(Rewind, "_keep_or_move_back", keep_or_move_back)


def _write_as(patch: pytest.MonkeyPatch, change: Callable[[Create | Set], Operation]) -> None:
    real = Rewind._operation
    patch.setattr(Rewind, "_operation", lambda self, move: change(real(self, move)))


def _with_log(made: Create | Set, **changes: Any) -> Create | Set:
    log = CommitLog.from_bytes(made.data, path=made.path)
    return replace(made, data=log.model_copy(update=changes).to_bytes())


def _commit_as(patch: pytest.MonkeyPatch, split: Callable[[Any, Sequence[Operation]], list[list[Operation]]]) -> None:
    """Let the registry that a rewind writes to be asked for these transactions instead of one."""

    class Instead:
        def __init__(self, view: Any) -> None:
            self._view = view

        def __getattr__(self, name: str) -> Any:
            return getattr(self._view.registry, name)

        def commit(self, operations: Sequence[Operation]) -> list[int]:
            versions: list[int] = []
            for part in split(self._view, operations):
                versions += self._view.registry.commit(part)
            return versions

    class View:
        def __init__(self, view: Any) -> None:
            self._view = view
            self.registry = Instead(view)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._view, name)

    def apply(self: Any) -> None:
        self._view = View(self._view)
        real(self)

    real = Rewind.apply
    patch.setattr(Rewind, "apply", apply)


class RewindAim:
    """The seed that caught a mistake last, on what, and the faults that it does harm at."""

    def __init__(
        self,
        seed: int,
        *where: tuple[Any, str],
        storage: Storage = "memory",
        to: RewindTo = "earlier",
        flow: int = 0,
        ended: bool = False,
    ) -> None:
        self.seed = seed
        self.where: Where = where
        self.storage = storage
        self.to = to
        self.flow = flow
        self.ended = ended

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, rewound twice, with faults that are likely to meet the mistake."""
        chance, plan = random.Random(seed), drawn(seed, self.storage, lagging=False)
        faults = tuple(
            Fault(kind, at, chance.randint(1, 3), 3.5 if kind in LASTING else 0.0) for kind, at in self.where
        )
        begun_s = [round(chance.uniform(begin_s, begin_s + 3.0), 3) for begin_s in (3.0, 6.0)]
        rewinds = tuple(PlannedRewind(at_s, self.to, self.flow, self.ended) for at_s in begun_s)
        flows = max(plan.flows, self.flow + 1)
        return replace(plan, flows=flows, records=30, rewinds=rewinds, faults=(*plan.faults, *faults))


A_PURGE_LOSES_TO_A_REWIND = Plan(
    126,
    storage="logs",
    flows=2,
    streams=3,
    rewinds=(PlannedRewind(5.481, "latest", flow=1), PlannedRewind(7.855, "earliest")),
    faults=(
        Fault("disk full", "log.control_write:before", 1, 0.657),
        Fault("cut off", "", 1, 0.859),
        Fault("power off", "", 23),
    ),
)


class AimAtAPurge(RewindAim):
    """Rewinds to the beginnings of logs that are purged all the while: one seed in ten catches what is done wrong."""

    def plan(self, seed: int) -> Plan:
        chance = random.Random(seed)
        later = PlannedRewind(round(chance.uniform(4.5, 6.5), 3), "latest", flow=1)
        begun_s = [round(chance.uniform(begin_s, begin_s + 2.0), 3) for begin_s in (5.0, 7.0, 9.0)]
        first = (PlannedRewind(at_s, "earliest") for at_s in begun_s)
        power_off = Fault("power off", "", chance.randint(10, 60))
        return Plan(seed, storage="logs", flows=2, streams=3, rewinds=(later, *first), faults=(power_off,))


class AimAtAnEnd(RewindAim):
    """A power failure, just when a segment was rolled, that has readers of the log between see less of it than was
    read. One schedule in a hundred comes to that: this one does, and of all times to rewind at one in six meets it."""

    def plan(self, seed: int) -> Plan:
        late_s = random.Random(seed).uniform(-0.8, 0.8)
        power_off = (Fault("power off", "log.segment_roll:after", passing) for passing in (5, 9, 3))
        lost = Fault("lose reply", "log.segment_roll:before", 1)
        stalled = Fault("stall", "ownership.lock:after", 4, 0.3)
        return Plan(
            118,
            storage="logs",
            flows=2,
            streams=1,
            workers=3,
            standbys=0,
            rewinds=tuple(PlannedRewind(round(at_s + late_s, 3), "latest", flow=1) for at_s in (5.13, 6.55)),
            faults=(*power_off, lost, stalled),
        )


class AimAtRetention(RewindAim):
    """Retention takes what a rewind would have read again, just when the positions move; who moves them back stands
    still, so that now and then somebody lets the dataflow run before that."""

    def plan(self, seed: int) -> Plan:
        chance = random.Random(seed)
        begun_s = sorted(round(chance.uniform(begin_s, begin_s + 3.0), 3) for begin_s in (3.0, 6.0))
        taken = (Fault("retention", "rewind.commit:before", passing) for passing in range(1, 5))
        stalled = (Fault("stall", "rewind.back:before", passing, 1.6) for passing in range(1, 5))
        rewinds = tuple(PlannedRewind(at_s, "earliest") for at_s in begun_s)
        return Plan(seed, storage="kafka", rewinds=rewinds, faults=(*taken, *stalled))


REWIND_MISTAKES: dict[Mistake, RewindAim] = {
    rewind_without_versions: RewindAim(4, ("stall", "rewind.looked:after")),
    rewind_with_rounds_from_the_start: RewindAim(0),
    forget_the_fence_with_a_rewind: RewindAim(0),
    rewind_by_deleting: RewindAim(0),
    rewind_stream_by_stream: RewindAim(0),
    rewind_the_sinks_too: RewindAim(4, ("kill", "round.commit:after")),
    rewind_to_what_is_gone: RewindAim(
        31, ("stall", "rewind.looked:after"), ("stall", "rewind.commit:before"), storage="logs"
    ),
    rewind_to_a_beginning_that_is_gone: RewindAim(
        4, ("stall", "rewind.looked:after"), ("stall", "rewind.commit:before"), storage="logs", to="earliest"
    ),
    rewind_to_what_is_still_to_come: RewindAim(1, storage="logs", to="anywhere"),
    rewind_the_first_stream: RewindAim(0),
    hold_back_for_no_rewind: RewindAim(4, storage="logs"),
    rewind_behind_what_is_there: RewindAim(0, storage="logs", to="latest", flow=1),
    rewind_to_an_end_that_readers_have_passed: AimAtAnEnd(3),
    remove_files_of_a_purge_that_failed: AimAtAPurge(20),
    ask_how_much_is_left_and_not_from_where: AimAtRetention(0),
    move_back_whoever_came: AimAtRetention(0),
}
