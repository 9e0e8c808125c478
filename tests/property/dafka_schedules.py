"""Schedules of Dafka's roles on a network that loses, doubles, delays and splits, and what holds after each act.

A schedule is drawn from a seed, or by hypothesis. Who is promised what does not depend on either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scribengin.dafka.state import EARLIEST, LATEST, DafkaPartition
from tests.scenario.dafka_splits import TOWER, SplitWorld
from tests.scenario.dafka_world import TOPIC, Faults, World

W = TypeVar("W", bound=World)
Act = tuple[str, Any, Any]
ROLES = ("P1", "P2", "S1", "S2", "C1", "C2", "C3", "C4", "F1", "F2", TOWER)
AS_C_PROGRAMS = ("S2", "C2", "C4")
"""They take a frame for each record alone. As they come and go, producers go from batches to single frames and back."""
_CALMS_S = 24.0
"""What was under way has come by then, and stores have asked each other for what they have."""
_SETTLES_S = 120.0
_STAYS = 5
"""So often everybody is looked at again once all have all: heads are told once more meanwhile."""


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
            first, contents = world.look(who, partition, number)
            assert first == number or (number == 0 and world.begins(who, partition, first))
            assert contents == [f"{partition.address}:{n}".encode() for n in range(first, first + len(contents))]
    elif what == "truncate" and who in world.stores:
        for partition in list(world.disks[who]):
            world.truncate(who, partition, number)


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
            first = records[0][0] if records else 0  # where it may begin, the world has seen to when it did
            expected = [(n, f"{partition.address}:{n}".encode()) for n in range(first, first + len(records))]
            assert records == expected, f"{consumer}: each record comes once, in order, as it was published"
    for name, producer in world.producers.items():
        assert producer.ahead is None, f"{name}: nobody has more than was published"
        on_disks = [written.get(producer.partition, 0) for written in world.written.values()]
        assert producer.acked <= sorted([0, 0, *on_disks])[-world.acks_min], (
            f"{name}: what is let go of, enough stores have"
        )


def check_everybody_has_all(world: World) -> None:
    """What holds once the network was whole for a while: consumers have what a living store has, and, if nothing is
    lost of what it has let go of, what a living producer has published. Or they were told that it is gone."""
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
                assert reached(world, consumer, partition) >= there, f"{consumer} gets all of {partition.address}"
            elif records and producer is not None and whole:
                assert reached(world, consumer, partition) >= producer.next, (
                    f"{consumer} gets all of {partition.address}"
                )
        halted = {name for name, halt in world.halted if halt.partition == partition}
        able = [store for store in world.stores if f"{store}w" not in halted]
        if producer is not None and whole and len(able) >= world.acks_min:
            assert producer.acked == producer.next, f"{partition.address}: all is acknowledged"


def reached(world: World, consumer: str, partition: DafkaPartition) -> int:
    """The sequence that it wants next: without end, where it was told that this is gone."""
    records = world.got[consumer].get(partition, [])
    at = records[-1][0] + 1 if records else 0
    stands = world.stands.get((consumer, partition), 0)
    if consumer in world.consumers:
        stands = world.consumers[consumer].positions.get(partition, 0)
    if world.begins(consumer, partition, stands):  # else it has what it was given
        at = max(at, stands)
    gone = any(name == consumer and (h.partition, h.sequence) == (partition, at) for name, h in world.halted)
    return 1 << 64 if gone else at


def check_what_becomes_of_it(world: World) -> None:
    """The network stays whole from now on: after a while everybody has all, and it stays so."""
    begun_s = world.now_s
    while world.now_s < begun_s + _CALMS_S or (world.now_s < begun_s + _SETTLES_S and not has_settled(world)):
        settle(world)
    for _ in range(_STAYS):
        check_promises(world)
        check_everybody_has_all(world)
        settle(world)
    check_promises(world)
    check_everybody_has_all(world)


def settle(world: World) -> None:
    """Time passes, in which followers, which hold little, are read on."""
    world.pass_time(2)
    for follower in world.followers:
        world.take(follower, 12)


def has_settled(world: World) -> bool:
    """Whether everybody has all already."""
    try:
        check_everybody_has_all(world)
    except AssertionError:
        return False
    return True


def play_seed(seed: int) -> None:
    """A schedule with everything in it. Raises AssertionError where a promise is broken."""
    chosen = random.Random(seed)
    faults = Faults(
        lost=chosen.choice((0, 0, 10, 30)),
        doubled=chosen.choice((0, 20)),
        late=chosen.choice((0, 50)),
        waiting_max=chosen.choice((0, 0, 3, 10)),
        refused=random.Random(f"{seed}: what stores refuse").choice((0, 0, 0, 20)),  # no other draw is another for it
    )
    world = SplitWorld(seed=seed, faults=faults, acks_min=chosen.choice((1, 2)))
    play(world, [_drawn(chosen) for _ in range(chosen.randrange(10, 40))], act_or_split)
    world.whole()
    check_what_becomes_of_it(world)


def _drawn(chosen: random.Random) -> Act:
    producer, store, follower = (chosen.choice(names) for names in (("P1", "P2"), ("S1", "S2"), ("F1", "F2")))
    acts: list[tuple[int, Act]] = [
        (8, ("publish", producer, chosen.randrange(1, 30))),
        (2, ("resume", producer, chosen.randrange(15))),
        (6, ("run", "", chosen.randrange(1, 60))),
        (4, ("time", "", chosen.randrange(1, 4))),
        (1, ("time", "", chosen.randrange(4, 12))),
        (2, ("kill", chosen.choice((producer, store, "C4")), 0)),
        (4, ("start", chosen.choice((store, "C2", "C3", "C4", "F2")), 0)),
        (2, ("take", follower, chosen.randrange(1, 20))),
        (1, ("look", follower, chosen.randrange(40))),
        (2, ("split", {role: chosen.choice((1, 2)) for role in chosen.sample(ROLES, 3)}, chosen.random() < 0.5)),
        (2, ("whole", "", 0)),
        (1, ("truncate", store, chosen.choice((chosen.randrange(40), 1000)))),
    ]
    weights, drawn = zip(*acts, strict=True)
    return chosen.choices(drawn, weights)[0]
