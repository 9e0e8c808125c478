"""Every fault at a random moment of a running dataflow: nothing is lost, and nothing is there twice.

The moment is a seed's, and so is the one of a chain's dataflows that is struck. One round of each fault in every run of
the tests, over three pipelines that run one after the other; each fault against each of them in `test --full`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tests.faults.faults import FAULTS, Fault, struck
from tests.faults.world import PIPELINES, Pipeline, World, running_world

pytestmark = [pytest.mark.in_order, pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(1500)]
RECORDS = 800
RECORDS_AFTER = 20
SEED = 9  # with which the second dataflow of the chain loses master and worker
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as world:
        yield world


class Stage:
    """Where one pipeline runs at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._current: Pipeline | None = None
        self._numbers = itertools.count(1)

    def play(self, kind: type[Pipeline]) -> Pipeline:
        """The one of that kind, up and running. Another one is stopped first."""
        if not isinstance(self._current, kind):
            self.clear()
            self._current = kind(self._world, f"{kind.__name__}-{next(self._numbers)}")
            self._current.submit()
            self._current.feed(40)
            self._current.await_output()
        return self._current

    def clear(self) -> None:
        """Stop what runs; at its end it has still lost and repeated nothing."""
        if self._current is not None:
            stopping, self._current = self._current, None
            stopping.stop()
            stopping.compare()


@pytest.fixture(scope="module")
def stage(world: World) -> Stage:
    return Stage(world)


# Those of one pipeline behind each other, so that it is started once.
ONE_EACH = [
    pytest.param(kind, fault, id=f"{fault.__name__}-{kind.__name__}")
    for aim, kind in enumerate(PIPELINES)
    for fault in FAULTS[aim :: len(PIPELINES)]
]


@pytest.mark.parametrize(("kind", "fault"), ONE_EACH)
def test_nothing_is_lost_or_twice(stage: Stage, kind: type[Pipeline], fault: Fault) -> None:
    strike(stage.play(kind), fault, SEED)


def test_what_was_struck_still_stops_in_order_and_complete(stage: Stage) -> None:
    stage.clear()


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("kind", PIPELINES, ids=lambda kind: kind.__name__)
def test_the_whole_matrix(stage: Stage, kind: type[Pipeline], fault: Fault, seed: int) -> None:
    strike(stage.play(kind), fault, seed)


def strike(pipeline: Pipeline, fault: Fault, seed: int) -> None:
    """Let the fault strike after some more rounds, while there is more to do."""
    chance = random.Random(f"{fault.__name__} {pipeline.name} {seed}")
    pipeline.aim(chance)
    pipeline.target.wait_for_workers(1)
    before, moment = pipeline.rounds(), chance.randint(1, 12)
    pipeline.feed(RECORDS)
    pipeline.target.wait(lambda: pipeline.rounds() >= before + moment, f"{moment} rounds of {pipeline.name}")
    with struck(fault, pipeline):
        pipeline.feed(RECORDS_AFTER)
        pipeline.await_output()
