"""Every fault at a random moment of a running dataflow: nothing is lost, and nothing is there twice.

The moment is a seed's, and so is the one of a chain's dataflows that is struck. Each fault strikes each pipeline, with
state and without, in `test --full`. In every run what strikes has a dataflow of its own: on this machine
(test_cluster_kills, test_cluster_registry, test_cluster_state), on YARN (test_yarn_dataflow), on HDFS
(test_hdfs_data_node), on Kafka (test_kafka_brokers_killed).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from tests.faults.faults import FAULTS, Fault, struck
from tests.faults.world import PIPELINES, Pipeline, World, running_world

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(3600)]
RECORDS = 800
RECORDS_AFTER = 20
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", PIPELINES, ids=lambda kind: kind.__name__)
def test_nothing_is_lost_or_twice(world: World, kind: type[Pipeline], seed: int) -> None:
    play(kind(world, f"{kind.__name__}-{seed}"), FAULTS, seed)


def play(pipeline: Pipeline, faults: Sequence[Fault], seed: int) -> None:
    """Start it, let one fault after the other strike, and stop it: what was struck still ends in order."""
    pipeline.submit()
    pipeline.feed(40)
    pipeline.await_output()
    for fault in faults:
        print(f"{fault.__name__}, seed {seed}")  # shown when the test fails: which one it was
        strike(pipeline, fault, seed)
    pipeline.stop()
    pipeline.compare()


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
