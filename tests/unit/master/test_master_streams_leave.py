"""Streams that come, go and come back, as producers of Dafka.

Each record is read once and in order, into the output of one task. There are few more tasks than streams at once. As in
`test_master_ended_streams`, what decides is the real thing. The network, the worker and the registry's transaction are
a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dafka.wire import LiveBatch
from scribengin.dataflow import tasks as splitting
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.descriptors import PlacementHead, TaskReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.tasks import ComingsAndGoings, missing_tasks, stream_key
from scribengin.master.ended_streams import EndedStreams, Grouping
from scribengin.master.state import events as ev
from scribengin.master.state.placement import TaskPlacement
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from tests.unit.master.test_master_ended_streams import EXECUTORS, FORGET_AFTER_S, TOPIC, Model, partition_of

THERE_MAX = 3
"""So many producers are there at once."""


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many that are gone the nodes are put together."""
    monkeypatch.setattr(gone_streams, "TOGETHER_MIN", 2)


def sink_streams(count: int) -> dict[str, list[SinkStreamDescriptor]]:
    return {"out": [SinkStreamDescriptor(sink="out", resource="log:/out", name=str(k)) for k in range(count)]}


class ComingAndGoing(Model):
    """A dataflow whose producers are ever new ones. `wanted`: its config's `tasks`."""

    def __init__(self, ensemble: MemoryEnsemble, registry: Registry, wanted: int | None) -> None:
        self.ensemble = ensemble
        self.wanted = wanted
        super().__init__(registry)
        registry.create(paths.DataflowPaths("flow").worker("worker-1"), parents=True)
        self.placement = TaskPlacement({}, PlacementHead(), wanted)
        self.running = {}
        self.published.clear()
        self.read.clear()
        self.outputs: dict[str, set[str]] = {}
        """By producer, the tasks whose output has records of it."""
        self.tasks_most = 0
        self.nodes_most = 0
        """Of the registry."""
        self.unheard: list[ev.TasksFound] = []
        """What was looked at while the master's thread was busy."""
        source = SimpleNamespace(goes_on=self.goes_on, streams_leave=True)
        endless = SimpleNamespace(endless=True)
        config = SimpleNamespace(name="flow", sources={"in": endless}, state=None, desired_state="running")
        self.resources = cast(OpenedDataflow, SimpleNamespace(config=config, sources={"in": source}))
        self.come()

    def come(self) -> None:
        name = f"P{len(self.published)}"
        self.published[name], self.read[name] = 0, []
        self.alive.add(name)
        self.publish(name, random.Random(name))

    def streams(self) -> dict[str, list[SourceStreamDescriptor]]:
        names = sorted(partition.address for partition in self.master.ends)
        return {"in": [SourceStreamDescriptor(source="in", name=f"{TOPIC}/{name}") for name in names]}

    def look(self) -> None:
        """As the master's job looks. The master hears it later."""
        placement = self.placement
        now = Grouping(dict(placement.tasks), anew=False, finished=frozenset(placement.finished))
        again = self.ended.going_on(self.resources, now)
        streams = self.streams()
        moves = self.ended.moves(self.resources, now, streams, again)
        missing = missing_tasks(now.tasks, streams, self.wanted, sink_streams, {"out"}, moves)
        self.unheard.append(
            ev.TasksFound(now.tasks, missing.tasks, self.wanted, missing.grown, again=again, left=missing.left)
        )
        of_tasks = (*now.tasks.values(), *missing.tasks, *missing.grown)
        self.ended.put_together(self.resources, {stream_key(stream) for task in of_tasks for stream in task.sources})

    def hear(self) -> None:
        for found in self.unheard:
            self.placement.looked(found)
            self.settle()
            read = [partition_of(stream) for task in self.placement.tasks.values() for stream in task.sources]
            assert len(set(read)) == len(read), "two tasks read one stream"
        self.unheard.clear()

    def settle(self) -> None:
        self.placement.grow(EXECUTORS)
        self.place()
        self.tasks_most = max(self.tasks_most, len(self.placement.tasks))
        self.nodes_most = max(self.nodes_most, len(self.ensemble.tree.paths()))

    def work(self, task: str) -> None:
        streams, place = self.placement.tasks[task].sources, self.placement._places[task]
        for stream in streams:
            self.read_on(task, stream)
        state = "released" if place.release else "finished" if all(map(self.has_ended, streams)) else "idle"
        report = TaskReport.model_validate({"task": task, "generation": self.running[task], "state": state})
        self.placement.heard("worker-1", report)
        self.settle()

    def read_on(self, task: str, stream: SourceStreamDescriptor) -> None:
        name = partition_of(stream).address
        first, end = self.position(stream), self.worker.ends.get(partition_of(stream), 0)
        if end > first:
            self.read[name] += range(first, end)
            self.outputs.setdefault(name, set()).add(task)
        self.commit(stream, max(first, end), task)

    def rewind(self) -> None:
        """All stand still, and everything that was ever read is read again from its beginning."""
        self.placement.drain(EXECUTORS)
        for task in sorted(self.running):
            self.work(task)
        for name in self.published:
            stream = SourceStreamDescriptor(source="in", name=f"{TOPIC}/{name}")
            if self.commit_log(stream) is not None:
                assert self.read[name] == list(range(self.position(stream))), name
                self.read[name] = []
                self.commit(stream, 0)
        view = DataflowView(self.registry, "flow")
        if view.streams_read("in"):
            self.registry.commit([view.next_era("in")])
        self.settle()

    def step(self, chosen: random.Random) -> None:
        if chosen.random() < 0.12 and len(self.alive) < THERE_MAX:
            self.come()
        elif chosen.random() < 0.02:
            self.rewind()
        else:
            self.happen(chosen)

    def happen(self, chosen: random.Random) -> None:
        there, running = sorted(self.alive), sorted(self.running)
        match chosen.choice(
            ("leave", "back", "publish", "publish", "time", "long time", "work", "work", "look", "look", "late look")
        ):
            case "leave" if there:
                self.alive.remove(chosen.choice(there))
            case "back" if len(there) < THERE_MAX and chosen.random() < 0.4:
                self.alive.add(chosen.choice(sorted(self.published)))
            case "publish" if there:
                self.publish(chosen.choice(there), chosen)
            case "time":
                self.pass_time(1.0, chosen)
            case "long time":
                self.pass_time(chosen.uniform(0.8, 1.3) * FORGET_AFTER_S, chosen)
            case "work" if running:
                self.work(chosen.choice(running))
            case "look":
                self.stores_tell()
                self.look()
                self.hear()
            case "late look":
                self.stores_tell()
                self.look()

    def end(self) -> None:
        """All is told, and everybody looks and works."""
        for _ in range(6):
            self.stores_tell()
            self.look()
            self.hear()
            for task in sorted(self.running):
                self.work(task)


@contextmanager
def played(seed: int) -> Iterator[ComingAndGoing]:
    chosen = random.Random(seed)
    ensemble = MemoryEnsemble()
    with ensemble.connect() as registry:
        model = ComingAndGoing(ensemble, registry, chosen.choice((None, None, 1, 2)))
        for _ in range(120):
            model.step(chosen)
        model.end()
        yield model


def check_seeds(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with played(seed) as model:
            for name, end in model.published.items():
                assert model.read[name] == list(range(end)), f"seed {seed}: {name}"
                assert len(model.outputs[name]) == 1, f"seed {seed}: {name} is in several outputs"


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 200, 50)])
def test_whoever_comes_goes_and_comes_back_is_read_once_into_one_output(seeds: range) -> None:
    check_seeds(seeds)


def pass_on(model: ComingAndGoing) -> None:
    """The one producer that is there goes, and another comes."""
    chosen = random.Random(0)
    model.pass_time(FORGET_AFTER_S + 1, chosen)
    model.end()
    model.alive.clear()
    model.come()
    model.stores_tell()


def tasks_of_a_hundred(wanted: int | None) -> ComingAndGoing:
    ensemble = MemoryEnsemble()
    with ensemble.connect() as registry:
        model = ComingAndGoing(ensemble, registry, wanted)
        for _ in range(100):
            pass_on(model)
        model.end()
        assert all(model.read[name] == list(range(end)) for name, end in model.published.items())
        return model


@pytest.mark.parametrize("wanted", [None, 1, 2])
def test_a_hundred_producers_one_after_the_other_take_few_tasks_and_few_streams(wanted: int | None) -> None:
    model = tasks_of_a_hundred(wanted)
    assert len(model.published) == 101
    assert model.tasks_most <= 2
    assert sum(len(task.sources) for task in model.placement.tasks.values()) <= 4
    assert model.nodes_most <= 30, "and few nodes of the registry"


def all_stay(self: EndedStreams, resources: Any, now: Grouping, streams: Any, again: Any) -> ComingsAndGoings:
    """Nobody leaves: what there was before."""
    return splitting.STAYING


def nobody_has_a_home(self: EndedStreams, *said: Any) -> ComingsAndGoings:
    """Whoever comes back goes where there is room."""
    found = _MOVES(self, *said)
    return replace(found, homes={})


def whoever_is_back_is_gone(self: EndedStreams, *said: Any) -> ComingsAndGoings:
    """Nobody that was read before is ever read again."""
    found = _MOVES(self, *said)
    return replace(found, gone=found.gone | found.homes.keys(), homes={})


_MOVES = EndedStreams.moves


@pytest.mark.parametrize("mistake", [nobody_has_a_home, whoever_is_back_is_gone])
def test_a_mistake_is_caught(monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., Any]) -> None:
    monkeypatch.setattr(EndedStreams, "moves", mistake)
    with pytest.raises(AssertionError):
        check_seeds(range(200))


def test_a_rewind_that_is_overlooked_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndedStreams, "_forget_moved", lambda *_: None)
    with pytest.raises(AssertionError):
        check_seeds(range(200))


def every_look_counts(self: TaskPlacement, found: ev.TasksFound) -> tuple[int, list[str]]:
    """Whatever has changed since it was looked."""
    return _LOOKED(self, replace(found, seen=self.tasks))


_LOOKED = TaskPlacement.looked


def test_a_look_at_tasks_that_have_changed_meanwhile_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskPlacement, "looked", every_look_counts)
    with pytest.raises((AssertionError, KeyError)):
        check_seeds(range(200))


@pytest.mark.parametrize("wanted", [None, 1])
def test_a_stream_that_the_master_alone_does_not_hear_stays_in_its_task(wanted: int | None) -> None:
    """Its worker holds records that no store has, and has not come to read them."""
    ensemble = MemoryEnsemble()
    with ensemble.connect() as registry:
        model = ComingAndGoing(ensemble, registry, wanted)
        model.end()
        [task] = model.running
        model.worker.messages([LiveBatch(TOPIC, "P0", TOPIC, model.published["P0"], [b"live"])], model.now_s)
        model.now_s += 2 * FORGET_AFTER_S
        model.come()
        model.stores_tell()
        model.look()
        model.hear()
        model.work(task)
        assert "flights/P0" in [stream.name for stream in model.placement.tasks[task].sources]
        assert model.read["P0"] == list(range(model.published["P0"] + 1))


def test_without_leaving_each_producer_takes_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndedStreams, "moves", all_stay)
    assert tasks_of_a_hundred(None).tasks_most == 101
