"""Sinks of others in simulated clusters: what keeps the contract passes, and each mistake is told by its promise.

The sink is that of the page (docs/examples/own_sink), the mistakes are what somebody could have written instead. Beside
it stand our own sinks of files, on files in memory whose power fails, and of Kafka, on brokers in memory.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import pytest

from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import (
    Attempt,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
    TransactionCoordinator,
)
from scribengin.errors import StaleOwner
from scribengin.testing import check_sink
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.simulation import simulate_sink
from scribengin.testing.simulation.plan import drawn
from scribengin.testing.simulation.streams.files import FilesInMemory
from scribengin.testing.simulation.streams.kafka import KafkaInMemory
from scribengin.testing.simulation.streams.sinks import WatchedCoordinator, WatchedSink, WatchedWriter
from scribengin.testing.simulation.world import MakeSystem, Outcome, simulate
from tests.house.tree import ROOT
from tests.property.simulation_sink_mistakes import DECISIONS, FILE_STOPS

EXAMPLE = ROOT / "docs" / "examples" / "own_sink"
SEEDS = range(120)
A_FEW = [range(10), pytest.param(range(10, 400), marks=pytest.mark.full)]
STOPS = ("shelf.close:after", "shelf.open:before", "shelf.open:after", "shelf.throw_away:after")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the page, afresh: mistakes are put into it."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.delitem(sys.modules, "shelf", raising=False)
    return importlib.import_module("shelf")


def first_broken(make_system: MakeSystem, stops: tuple[str, ...] = ()) -> Outcome:
    """The first schedule that breaks a promise, as it is: making each smaller would be most of these tests."""
    outcomes = (simulate(drawn(seed, "sink", stops), make_system=make_system) for seed in SEEDS)
    return next(outcome for outcome in outcomes if outcome.failure is not None)


@pytest.mark.long
@pytest.mark.parametrize("seeds", A_FEW, ids=len)
def test_a_sink_that_keeps_the_contract_keeps_every_promise(example: ModuleType, seeds: range) -> None:
    shelf = example.Shelf()
    check_sink(lambda: example.ShelfSink("out", shelf), MemoryEnsemble().connect())
    simulate_sink(example.Shelf, seeds=seeds, stops=STOPS)


Mistake = Callable[[pytest.MonkeyPatch, Any], None]


def opens_a_box_twice(patch: pytest.MonkeyPatch, writer: Any) -> None:
    def complete(self: Any, committed: CommitDescriptor) -> None:
        opened = self._shelf.opened[self._stream]
        before = opened.get(committed.data["box"])
        real(self, committed)
        if before is not None:
            opened[f"{committed.data['box']} once more"] = before

    real = writer.complete_commit
    patch.setattr(writer, "complete_commit", complete)


def opens_what_it_has_closed(patch: pytest.MonkeyPatch, writer: Any) -> None:
    def prepare(self: Any) -> CommitDescriptor | None:
        prepared: CommitDescriptor | None = real(self)
        if prepared is not None:
            self.complete_commit(prepared)
        return prepared

    real = writer.prepare_commit
    patch.setattr(writer, "prepare_commit", prepare)


def never_opens_for_others(patch: pytest.MonkeyPatch, writer: Any) -> None:
    real = writer.recover
    patch.setattr(writer, "recover", lambda self, _committed: real(self, None))


def leaves_the_boxes_of_others(patch: pytest.MonkeyPatch, writer: Any) -> None:
    def recover(self: Any, committed: CommitDescriptor | None) -> None:
        self._shelf.fence(self._stream, self._epoch)
        if committed is not None:
            self.complete_commit(committed)

    patch.setattr(writer, "recover", recover)


def opens_all_boxes(patch: pytest.MonkeyPatch, writer: Any) -> None:
    """Whatever is closed, instead of what is named: of an owner that never committed, too."""

    def complete(self: Any, committed: CommitDescriptor) -> None:
        closed = self._shelf.closed[self._stream]
        for name in [*closed]:
            self._shelf.opened[self._stream][name] = closed.pop(name)

    patch.setattr(writer, "complete_commit", complete)


def keeps_the_box_in_its_hands(patch: pytest.MonkeyPatch, writer: Any) -> None:
    """What it says is durable is in the memory of its process until it completes."""

    def prepare(self: Any) -> CommitDescriptor | None:
        prepared: CommitDescriptor | None = real_prepare(self)
        if prepared is not None:
            name = prepared.data["box"]
            self.held = (name, self._shelf.closed[self._stream].pop(name))
        return prepared

    def complete(self: Any, committed: CommitDescriptor) -> None:
        held = getattr(self, "held", None)
        if held is not None and held[0] == committed.data["box"]:
            self._shelf.closed[self._stream].setdefault(*held)
        real_complete(self, committed)

    real_prepare, real_complete = writer.prepare_commit, writer.complete_commit
    patch.setattr(writer, "prepare_commit", prepare)
    patch.setattr(writer, "complete_commit", complete)


def takes_late_words_for_done(patch: pytest.MonkeyPatch, writer: Any) -> None:
    """Throws away before it completes, and says nothing of a box that is gone."""

    def recover(self: Any, committed: CommitDescriptor | None) -> None:
        self._shelf.fence(self._stream, self._epoch)
        self.rollback()
        if committed is not None:
            self.complete_commit(committed)

    def complete(self: Any, committed: CommitDescriptor) -> None:
        try:
            real(self, committed)
        except StaleOwner:
            return

    real = writer.complete_commit
    patch.setattr(writer, "recover", recover)
    patch.setattr(writer, "complete_commit", complete)


def forgets_the_order(patch: pytest.MonkeyPatch, writer: Any) -> None:
    real = writer.complete_commit

    def complete(self: Any, committed: CommitDescriptor) -> None:
        real(self, committed)
        opened = self._shelf.opened[self._stream]
        for name in sorted(opened):
            opened[name] = opened.pop(name)

    patch.setattr(writer, "complete_commit", complete)


@pytest.mark.parametrize(
    ("mistake", "promise"),
    [
        (opens_what_it_has_closed, "nothing is seen before it is committed"),
        (never_opens_for_others, "nothing acknowledged is lost"),
        (leaves_the_boxes_of_others, "what is staged is completed or dropped"),
        (opens_all_boxes, "nothing is seen"),
        (keeps_the_box_in_its_hands, "nothing acknowledged is lost"),
        (takes_late_words_for_done, "nothing acknowledged is lost"),
        (forgets_the_order, "what is seen stays"),
    ],
)
def test_a_sink_with_a_mistake_is_told_by_its_promise(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, mistake: Mistake, promise: str
) -> None:
    mistake(monkeypatch, example.ShelfWriter)
    assert promise in str(first_broken(example.Shelf).promise)


def test_what_is_told_of_a_mistake_is_small_and_can_be_read(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens_a_box_twice(monkeypatch, example.ShelfWriter)
    with pytest.raises(AssertionError) as caught:
        simulate_sink(example.Shelf, seeds=SEEDS)
    told = str(caught.value).splitlines()
    assert "nothing is seen twice" in told[0]
    assert told[2].startswith("seed ")
    assert told[3] == "  into the sink that was given"
    assert any("prepare_commit() = " in line for line in told)
    assert "BROKEN: nothing is seen twice" in told[-1]


@pytest.mark.long
@pytest.mark.parametrize("seeds", A_FEW, ids=len)
def test_the_sink_of_files_keeps_every_promise(seeds: range) -> None:
    simulate_sink(FilesInMemory, seeds=seeds, stops=FILE_STOPS)


@pytest.mark.long
@pytest.mark.parametrize("seeds", A_FEW, ids=len)
def test_the_sink_of_kafka_keeps_every_promise(seeds: range) -> None:
    simulate_sink(KafkaInMemory, seeds=seeds, stops=DECISIONS)


def test_a_sink_that_does_not_replay_is_told_so(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    opens_a_box_twice(monkeypatch, example.ShelfWriter)
    opened = itertools.count()  # goes on over simulations, as a clock does or chance

    def open_writer(sink: Any, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        if next(opened) % 3 == 0:
            raise StaleOwner("nobody knows why")
        return cast(SinkStreamWriter, real(sink, stream, attempt))

    real = example.ShelfSink.open_writer
    monkeypatch.setattr(example.ShelfSink, "open_writer", open_writer)
    with pytest.raises(AssertionError, match="seed 0 goes another way each time"):
        simulate_sink(example.Shelf, seeds=SEEDS)


def test_every_call_of_the_contract_reaches_the_sink() -> None:
    """What the contract is given later must not be lost in the wrapper."""
    pairs = ((WatchedSink, Sink), (WatchedWriter, SinkStreamWriter), (WatchedCoordinator, TransactionCoordinator))
    for watched, contract in pairs:
        public = {name for name in vars(contract) if not name.startswith("_")}
        assert public - set(vars(watched)) == set()
