"""Whatever the network loses, doubles or reorders, however it splits, and whoever comes late or dies: every consumer
gets every partition in order, without a gap, each record once and with its own bytes; and what producers let go of,
enough stores have.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.dafka.state import DafkaPartition
from tests.property.dafka_schedules import ROLES, act, act_or_split, begin, check_what_becomes_of_it, play, play_seed
from tests.scenario.dafka_splits import TOWER, SplitWorld
from tests.scenario.dafka_world import TOPIC, Faults, World

ACTS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(["P1", "P2"]), st.integers(1, 30)),
    st.tuples(st.just("resume"), st.sampled_from(["P1", "P2"]), st.integers(0, 15)),
    st.tuples(st.just("run"), st.just(""), st.integers(1, 60)),
    st.tuples(st.just("time"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("kill"), st.sampled_from(["P1", "P2", "S1", "S2", "C4"]), st.just(0)),
    st.tuples(st.just("start"), st.sampled_from(["S1", "S2", "C2", "C3", "C4", "F2"]), st.just(0)),
    st.tuples(st.just("take"), st.sampled_from(["F1", "F2"]), st.integers(1, 20)),
    st.tuples(st.just("look"), st.sampled_from(["F1", "F2"]), st.integers(0, 40)),
)
SPLITS = st.tuples(
    st.just("split"), st.dictionaries(st.sampled_from(ROLES), st.integers(1, 2), min_size=1), st.booleans()
)
WHOLE = st.tuples(st.just("whole"), st.just(""), st.just(0))
LONGER = st.tuples(st.just("time"), st.just(""), st.integers(4, 12))
FAULTS = st.builds(Faults, lost=st.integers(0, 30), doubled=st.integers(0, 20), late=st.integers(0, 50))


@settings(max_examples=150)
@given(st.integers(0, 2**32), FAULTS, st.sampled_from([1, 2]), st.lists(ACTS, max_size=25))
def test_every_partition_comes_in_order_whole_and_once(
    seed: int, faults: Faults, acks_min: int, acts: list[tuple[str, str, int]]
) -> None:
    world = World(seed=seed, faults=faults, acks_min=acks_min)
    play(world, acts, act)
    check_what_becomes_of_it(world)


@settings(max_examples=150)
@given(
    st.integers(0, 2**32),
    FAULTS,
    st.sampled_from([1, 2]),
    st.lists(st.one_of(ACTS, SPLITS, WHOLE, LONGER), max_size=25),
)
def test_a_network_that_splits_gives_everybody_all_once_it_is_whole(
    seed: int, faults: Faults, acks_min: int, acts: list[tuple[str, Any, Any]]
) -> None:
    world = SplitWorld(seed=seed, faults=faults, acks_min=acks_min)
    play(world, acts, act_or_split)
    world.whole()
    check_what_becomes_of_it(world)


@pytest.mark.parametrize(
    "seeds",
    [
        range(50),
        pytest.param(range(50, 150), marks=pytest.mark.long),
        pytest.param(range(150, 5000), marks=pytest.mark.full),
    ],
    ids=str,
)
def test_every_seed_keeps_every_promise(seeds: range) -> None:
    """Retention and high watermarks among the rest."""
    for seed in seeds:
        play_seed(seed)


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize(
    ("others", "reaches_consumer", "reaches_store"),
    [
        (["C1"], False, True),
        (["P1"], False, False),
        (["S1"], True, False),
        (["C1", TOWER], False, True),
        (["P1", "C1"], True, False),
    ],
)
def test_nothing_passes_from_side_to_side_and_all_comes_when_the_network_is_whole(
    others: list[str], reaches_consumer: bool, reaches_store: bool, stalls: bool
) -> None:
    world = SplitWorld()
    begin(world)
    partition, got = DafkaPartition(TOPIC, "P1"), world.got["C1"]
    world.publish("P1", 5)
    world.pass_time(3)
    assert len(got[partition]) == 5
    world.split(dict.fromkeys(others, 1), stalls=stalls)
    world.publish("P1", 5)
    world.run()
    assert len(got[partition]) == (10 if reaches_consumer else 5)
    world.pass_time(10)  # whoever is apart has left the others by now
    assert world.producers["P1"].acked == (10 if reaches_store else 5)
    world.whole()
    world.pass_time(10)
    assert [number for number, _ in got[partition]] == list(range(10))
    assert world.producers["P1"].acked == 10
