"""What a master has done beside its decisions, without a registry: which attempt is told, and what sinks are asked."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from scribengin.connectors.contract import Sink
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.followers import UnreadOutput
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.errors import DataflowError, LogWriteFailed, ScribenginError, SystemUnreachable
from scribengin.master import jobs
from scribengin.master.jobs import Grouping, Job, find_streams, maintain_sinks
from scribengin.master.state.events import Drained, JobDone, MasterEvent, OutputRead
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry

WAIT_S = 120.0


class Kept:
    """A sink that is full the first time it is asked for its last maintenance."""

    def __init__(self) -> None:
        self.asked: queue.Queue[bool] = queue.Queue()
        self._full = True

    def maintain(self, registry: Registry, *, idle: bool) -> None:
        self.asked.put(idle)
        if idle and self._full:
            self._full = False
            raise LogWriteFailed("the disk is full")


def test_a_sink_is_told_that_nothing_more_comes_and_is_asked_again_until_it_has_merged_everything() -> None:
    sink, told = Kept(), queue.Queue[MasterEvent]()
    resources = cast(OpenedDataflow, SimpleNamespace(sinks={"out": cast(Sink, sink)}, close=lambda: None))
    with MemoryEnsemble().connect() as registry:
        job = Job("maintenance", 0.01, lambda: resources, maintain_sinks(registry), told.put)
        job.start()
        try:
            assert sink.asked.get(timeout=WAIT_S) is False
            job.become("last maintenance")
            heard = [told.get(timeout=WAIT_S) for _attempt in range(2)]
        finally:
            job.stop()
    assert heard == [JobDone("last maintenance", "the disk is full"), JobDone("last maintenance", None)]


class Damaged(Kept):
    """A sink of which something is damaged, or away."""

    def __init__(self, error: ScribenginError) -> None:
        super().__init__()
        self._error = error

    def maintain(self, registry: Registry, *, idle: bool) -> None:
        self.asked.put(idle)
        raise self._error


@pytest.mark.parametrize("error", [DataflowError("a file is damaged"), SystemUnreachable("nobody answers")])
def test_what_is_wrong_with_one_sink_keeps_no_other_one_from_its_maintenance(error: ScribenginError) -> None:
    """Of damage a sink is told that stays open: how long files have waited to be merged is known to it alone."""
    sinks, told, opened = [Damaged(error), Kept()], queue.Queue[MasterEvent](), list[OpenedDataflow]()

    def opening() -> OpenedDataflow:
        named = {str(number): cast(Sink, sink) for number, sink in enumerate(sinks)}
        opened.append(cast(OpenedDataflow, SimpleNamespace(sinks=named, close=lambda: None)))
        return opened[-1]

    with MemoryEnsemble().connect() as registry:
        job = Job("maintenance", 0.01, opening, maintain_sinks(registry), told.put)
        job.start()
        try:
            assert [sinks[1].asked.get(timeout=WAIT_S) for _attempt in range(3)] == [False] * 3
        finally:
            job.stop()
    assert told.get(timeout=WAIT_S) == JobDone("maintenance", str(error))
    assert (len(opened) == 1) is isinstance(error, DataflowError)


class Readers:
    """Stands in for `Followers`: somebody is behind when it is asked first, and has read all when it is asked again."""

    made: list[tuple[TaskDescriptor, ...]]

    def __init__(self, _registry: Registry, _config: DataflowConfig, tasks: Iterable[TaskDescriptor]) -> None:
        self.made.append(tuple(tasks))
        self._answers = [(UnreadOutput("down", "out/0", 7),), ()]

    def unread(self) -> tuple[UnreadOutput, ...]:
        return self._answers.pop(0)


def test_what_the_readers_of_drained_tasks_have_not_read_is_told_and_then_that_they_have_read_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = TaskDescriptor(name="task-0", sources=(), sinks=())
    drained, again = Drained((task,)), Drained((task,))
    asked, told = iter([drained, drained, again]), list[MasterEvent]()
    monkeypatch.setattr(Readers, "made", [], raising=False)
    monkeypatch.setattr(jobs, "Followers", Readers)
    resources = cast(OpenedDataflow, SimpleNamespace(config=None))
    with MemoryEnsemble().connect() as registry:
        look = find_streams(registry, lambda: Grouping({}, True, next(asked)), told.append)
        for _look in range(3):
            look(resources, "streams")
    behind = ("down has 7 records of log 'out/0' to read",)
    assert told == [OutputRead(drained, behind), OutputRead(drained), OutputRead(again, behind)]
    assert [event.drained for event in told if isinstance(event, OutputRead)] == [drained, drained, again]
    assert Readers.made == [(task,), (task,)], "what was written is marked once each time that tasks are drained"
