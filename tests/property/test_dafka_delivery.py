"""Whatever the network loses, doubles or reorders, however it splits, and whoever comes late or dies: every consumer
gets every partition in order, without a gap, each record once and with its own bytes; and what producers let go of,
enough stores have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.dafka.state import EARLIEST, LATEST, DafkaPartition
from tests.scenario.dafka_splits import TOWER, SplitWorld
from tests.scenario.dafka_world import TOPIC, Faults, World

W = TypeVar("W", bound=World)

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
ROLES = ("P1", "P2", "S1", "S2", "C1", "C2", "C3", "C4", "F1", "F2", TOWER)
AS_C_PROGRAMS = ("S2", "C2", "C4")
"""They take a frame for each record alone. As they come and go, producers go from batches to single frames and back."""
SPLITS = st.tuples(
    st.just("split"), st.dictionaries(st.sampled_from(ROLES), st.integers(1, 2), min_size=1), st.booleans()
)
WHOLE = st.tuples(st.just("whole"), st.just(""), st.just(0))
LONGER = st.tuples(st.just("time"), st.just(""), st.integers(4, 12))
FAULTS = st.builds(Faults, lost=st.integers(0, 30), doubled=st.integers(0, 20), late=st.integers(0, 50))


def act(world: World, what: str, who: str, number: int) -> None:
    if what == "publish" and who in world.producers:
        world.publish(who, number)
    elif what == "resume" and who in world.producers:
        world.resume(who, number)
    elif what == "run":
        world.run(number)
    elif what == "time":
        world.pass_time(number)
    elif what == "kill":
        world.kill(who)
    elif what == "start" and who.startswith("S") and who not in world.stores:
        world.add_store(who, batches=who not in AS_C_PROGRAMS)
    elif what == "start" and who == "C4" and who not in world.consumers:
        world.got.pop(who, None)  # it begins anew
        world.add_consumer(who, batches=False)
    elif what == "start" and who.startswith("C") and who not in world.consumers:
        world.add_consumer(who, LATEST if who == "C3" else EARLIEST, batches=who not in AS_C_PROGRAMS)
    elif what == "start" and who.startswith("F") and who not in world.followers:
        world.add_follower(who)
    elif what == "take" and who in world.followers:
        world.take(who, number)
    elif what == "look" and who in world.followers:
        for partition in list(world.followers[who].ends):
            held = world.look(who, partition, number)
            assert held.contents == [f"{partition.address}:{n}".encode() for n in range(number, number + len(held[1]))]


def act_or_split(world: SplitWorld, what: str, who: Any, number: Any) -> None:
    if what == "split":
        world.split(who, stalls=number)
    elif what == "whole":
        world.whole()
    else:
        act(world, what, who, number)


def play(world: W, acts: Sequence[tuple[str, Any, Any]], act_in: Callable[[W, str, Any, Any], None]) -> None:
    """From the beginning on, with the promises looked at after each act; then nothing is lost any more."""
    begin(world)
    for one in acts:
        act_in(world, *one)
        check_promises(world)
    world.faults = Faults()


def begin(world: World) -> None:
    """Who is there from the beginning."""
    for name in ("P1", "P2"):
        world.add_producer(name)
    world.add_store("S1")
    world.add_consumer("C1")
    world.add_follower("F1")


def check_promises(world: World) -> None:
    """What holds at any moment."""
    for consumer, partitions in world.got.items():
        for partition, records in partitions.items():
            first = records[0][0] if consumer == "C3" else 0
            expected = [(n, f"{partition.address}:{n}".encode()) for n in range(first, first + len(records))]
            assert records == expected, consumer
    for name, producer in world.producers.items():
        on_disks = [max(disk.get(producer.partition, {}), default=-1) + 1 for disk in world.disks.values()]
        assert producer.acked <= sorted([0, 0, *on_disks])[-world.acks_min], name


def check_everybody_has_all(world: World) -> None:
    """What holds once the network was whole for a while: consumers have what a living store has, and, if nothing is
    lost of what it has let go of, what a living producer has published."""
    for partition in (DafkaPartition(TOPIC, "P1"), DafkaPartition(TOPIC, "P2")):
        kept = [store.stored[partition] for store in world.stores.values() if partition in store.stored]
        stored = max((one.next for one in kept), default=0)
        producer = world.producers.get(partition.address)
        whole = producer is not None and stored >= producer.acked
        there = producer.next if producer is not None and whole else stored
        for consumer, got in world.got.items():
            records = got.get(partition, [])
            if consumer not in world.consumers and consumer not in world.followers:
                continue  # it has left
            if consumer != "C3":
                assert len(records) >= there, (consumer, partition)
            elif records and producer is not None and whole:
                assert records[-1][0] + 1 == producer.next, (consumer, partition)
        if producer is not None and whole and len(world.stores) >= world.acks_min:
            assert producer.acked == producer.next, partition


def check_what_becomes_of_it(world: World) -> None:
    """The network stays whole from now on."""
    for _ in range(60):  # followers hold little: they are read on
        world.pass_time(2)
        for follower in world.followers:
            world.take(follower, 12)
    check_promises(world)
    check_everybody_has_all(world)


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
