"""Streams that end and go on, as producers of Dafka that leave and come back: whatever happens in which order, each
record is read once, and nothing waits for a task that nobody runs.

What decides is the real thing: followers in the master and in the worker, the look at what has ended, and placement.
The network, the worker and the registry's transaction are a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin.connectors.contract import SourceStreamDescriptor
from scribengin.dafka.state import DafkaPartition, FollowerState
from scribengin.dafka.wire import DirectHead, Head, LiveBatch, Message
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import PlacementHead, TaskDescriptor, TaskReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.master.ended_streams import EndedStreams, Grouping
from scribengin.master.state.placement import TaskPlacement
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry

FORGET_AFTER_S = 10.0
TOPIC, EXECUTORS = "flights", {"worker-1": ["executor-1"]}
PRODUCERS = ("P0", "P1")
STREAMS = [SourceStreamDescriptor(source="in", name=f"{TOPIC}/{name}") for name in PRODUCERS]


def partition_of(stream: SourceStreamDescriptor) -> DafkaPartition:
    return DafkaPartition(*stream.name.split("/"))


@dataclass
class Model:
    """A dataflow of a task for each producer."""

    registry: Registry
    now_s: float = 0.0
    published: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    alive: set[str] = field(default_factory=set)
    read: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in PRODUCERS})
    running: dict[str, int] = field(default_factory=dict)
    """By task, the generation that the worker has."""

    def __post_init__(self) -> None:
        self.master, self.worker = FollowerState("M", TOPIC), FollowerState("W", TOPIC)
        self.ended = EndedStreams(self.registry)
        tasks = {
            f"task-{k}": TaskDescriptor(name=f"task-{k}", sources=(stream,), sinks=())
            for k, stream in enumerate(STREAMS)
        }
        self.placement = TaskPlacement(tasks, PlacementHead(), None)
        self.place()

    def goes_on(self, stream: SourceStreamDescriptor, position: Position) -> bool:
        """As DafkaSource says it, by the master's follower."""
        partition = partition_of(stream)
        heard_s = self.master.heard_s(partition)
        late = self.master.ends.get(partition, 0) > position["sequence"]
        return late or (heard_s is not None and self.now_s - heard_s < FORGET_AFTER_S)

    def has_ended(self, stream: SourceStreamDescriptor) -> bool:
        """As a reader says it, by the worker's follower."""
        partition = partition_of(stream)
        silent = self.now_s - (self.worker.heard_s(partition) or 0.0) >= FORGET_AFTER_S
        return silent and self.worker.ends.get(partition, 0) <= self.position(stream)

    def position(self, stream: SourceStreamDescriptor) -> int:
        log = self.commit_log(stream)
        return 0 if log is None or log.position is None else int(log.position["sequence"])

    def commit_log(self, stream: SourceStreamDescriptor) -> CommitLog | None:
        """As an owner has it once he has taken the stream."""
        return DataflowView(self.registry, "flow").commit_log_of(stream.source, stream.name)

    def _path(self, stream: SourceStreamDescriptor) -> str:
        return paths.commit_log(paths.source_stream("flow", stream.source, stream.name))

    def commit(self, stream: SourceStreamDescriptor, end: int, task: str | None = None) -> None:
        """`task`: who does; None: whoever has before."""
        before = self.commit_log(stream)
        task = task or ("" if before is None else before.task)
        log = CommitLog(
            dataflow="flow", task=task, owner="", generation=0, epoch=0, round=0, position={"sequence": end}
        )
        path = self._path(stream)
        if self.registry.find(path) is None:
            self.registry.create(path, log.to_bytes(), parents=True)
        else:
            self.registry.set(path, log.to_bytes())

    # -- what happens

    def tell(self, message: Message, chosen: random.Random) -> None:
        """What a producer says is heard by each follower, or lost to it."""
        for follower in (self.master, self.worker):
            if chosen.random() < 0.7:
                follower.messages([message], self.now_s)

    def publish(self, name: str, chosen: random.Random) -> None:
        first = self.published[name]
        self.published[name] += 2
        self.tell(LiveBatch(TOPIC, name, TOPIC, first, [b"", b""]), chosen)

    def stores_tell(self) -> None:
        """Now and then a store says of all what it has."""
        for follower in (self.master, self.worker):
            heads = [DirectHead(follower.address, name, TOPIC, end - 1) for name, end in self.published.items() if end]
            follower.messages(heads, self.now_s)

    def work(self, task: str) -> None:
        """The worker reads all that it knows of, then looks whether that was all, and gives the task back then."""
        [stream] = self.placement.tasks[task].sources
        first, end = self.position(stream), self.worker.ends.get(partition_of(stream), 0)
        if end > first:
            self.read[partition_of(stream).address] += range(first, end)
        self.commit(stream, max(first, end))
        if self.has_ended(stream):
            report = TaskReport(task=task, generation=self.running.pop(task), state="finished")
            self.placement.heard("worker-1", report)

    def look(self) -> None:
        """The master looks at what has ended."""
        now = Grouping(self.placement.tasks, anew=False, finished=frozenset(self.placement.finished))
        source = SimpleNamespace(goes_on=self.goes_on)
        config = SimpleNamespace(name="flow", sources={"in": SimpleNamespace(endless=True)})
        resources = cast(OpenedDataflow, SimpleNamespace(config=config, sources={"in": source}))
        again = self.ended.going_on(resources, now)
        assert set(self.placement.run_again(again)) == set(again)
        self.place()

    def place(self) -> None:
        self.placement.place(EXECUTORS)
        self.running = {task: place.generation for task, place in self._places() if not place.done}

    def _places(self) -> list[tuple[str, Any]]:
        return list(self.placement._places.items())

    def step(self, chosen: random.Random) -> None:
        name = chosen.choice(PRODUCERS)
        match chosen.choice(("alive", "publish", "publish", "time", "long time", "work", "work", "look", "stores")):
            case "alive":
                self.alive ^= {name}
            case "publish" if name in self.alive:
                self.publish(name, chosen)
            case "time":
                self.pass_time(1.0, chosen)
            case "long time":
                self.pass_time(chosen.uniform(0.8, 1.3) * FORGET_AFTER_S, chosen)
            case "work" if self.running:
                self.work(chosen.choice(sorted(self.running)))
            case "look":
                self.look()
            case "stores":
                self.stores_tell()

    def pass_time(self, seconds: float, chosen: random.Random) -> None:
        self.now_s += seconds
        for name in sorted(self.alive):
            if self.published[name]:
                self.tell(Head(TOPIC, name, TOPIC, self.published[name] - 1), chosen)


@contextmanager
def played(seed: int) -> Iterator[Model]:
    chosen = random.Random(seed)
    with MemoryEnsemble().connect() as registry:
        model = Model(registry)
        for _ in range(80):
            model.step(chosen)
        for _ in range(4):  # all is told, and everybody looks
            model.stores_tell()
            model.look()
            for task in sorted(model.running):
                model.work(task)
        yield model


def check(model: Model) -> None:
    for name, end in model.published.items():
        assert model.read[name] == list(range(end)), name


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 200, 50)])
def test_whoever_comes_back_when_is_read_on_where_he_stands(seeds: range) -> None:
    for seed in seeds:
        with played(seed) as model:
            check(model)


def check_who_has_a_task(model: Model) -> int:
    """Some time later, and both followers have heard who is there. Returns how many tasks have ended."""
    model.now_s += FORGET_AFTER_S
    there = {name for name in model.alive if model.published[name]}
    for name in sorted(there):
        for follower in (model.master, model.worker):
            follower.messages([Head(TOPIC, name, TOPIC, model.published[name] - 1)], model.now_s)
    for _ in range(2):
        model.look()
        for task in sorted(model.running):
            model.work(task)
    model.look()
    running = {partition_of(model.placement.tasks[task].sources[0]).address for task in model.running}
    assert running == there
    return len(PRODUCERS) - len(there)


def test_producers_that_are_gone_keep_no_task_and_those_that_are_there_do() -> None:
    ended = 0
    for seed in range(100):
        with played(seed) as model:
            ended += check_who_has_a_task(model)
    assert ended > 20


def never_looks(_self: EndedStreams, *_now: object) -> tuple[str, ...]:
    """What has ended stays so."""
    return ()


def looks_at_where_it_has_ended_before(self: EndedStreams, resources: OpenedDataflow, now: Grouping) -> tuple[str, ...]:
    """A position is kept over a life of the task, which so runs again and again for what it has read."""
    before = self._positions
    told = _GOING_ON(self, resources, now)
    self._positions = {**self._positions, **before}
    return told


_GOING_ON = EndedStreams.going_on


@pytest.mark.parametrize("mistake", [never_looks, looks_at_where_it_has_ended_before])
def test_a_mistake_is_caught(monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., Any]) -> None:
    monkeypatch.setattr(EndedStreams, "going_on", mistake)
    with pytest.raises(AssertionError):
        check_all(range(100))


def check_all(seeds: range) -> None:
    for seed in seeds:
        with played(seed) as model:
            check(model)
            check_who_has_a_task(model)
