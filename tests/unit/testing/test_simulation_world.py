"""What a simulated cluster makes of a commit log that goes away: only one that no owner has had may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.rewind import Rewound
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.simulation.oracle import Violation
from scribengin.testing.simulation.plan import Plan
from scribengin.testing.simulation.scheduler import Scheduler
from scribengin.testing.simulation.takeover import taken_over
from scribengin.testing.simulation.world import World
from scribengin_registry.contract import Create, Delete

SESSION = 1


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What ends the simulation."""
    found: list[BaseException] = []
    monkeypatch.setattr(Scheduler, "fail", lambda _self, failure: found.append(failure))
    return found


@pytest.fixture
def world() -> Iterator[World]:
    scheduler = Scheduler(1)
    with taken_over(scheduler):
        world = World(Plan(1, storage="memory"), scheduler, every_stop=False, system=None)
        yield world
        scheduler.close(world.processes)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_stream_that_was_never_read_may_be_moved_back_to_no_commit_log_until_somebody_has_owned_it(
    memory_registry: MemoryRegistry, world: World, broken: list[BaseException], epoch: int
) -> None:
    view = DataflowView(memory_registry, "flow")
    stream = next(iter(world.streams.inputs))
    path = paths.commit_log(view.paths.source_stream("in", stream))
    after = {"offset": 3}
    world.rewinding._look(view, [Rewound("task-0", "in", stream, None, after)])
    log = CommitLog(dataflow="flow", task="task-0", owner="rewind", generation=0, epoch=epoch, round=0, position=after)
    world._changed(SESSION, [Create(path, log.to_bytes())], [0])
    assert world.positions() == {path: after}
    world._changed(SESSION, [Delete(path, 0)], [0])
    assert world.positions() == {}
    told = [failure.promise for failure in broken if isinstance(failure, Violation)]
    assert told == (["fenced owners change nothing"] if epoch else [])
    world._changed(SESSION, [Create(path, log.to_bytes())], [0])
    assert len(broken) == epoch, "who reads it next begins anew"
