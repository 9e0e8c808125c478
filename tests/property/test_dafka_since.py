"""A consumer that begins at a time, on a network that loses and delays, with stores that come late, copy each other and
are truncated: it leaves out nothing that was published since, as long as anybody keeps it.
"""

from __future__ import annotations

import random

import pytest

from scribengin.dafka.state import DafkaPartition, StartOf
from tests.scenario.dafka_world import TOPIC, Faults, World

_LISTENS_S = 40.0
"""Longer than anybody is waited for."""


def grown(random_: random.Random) -> World:
    """Producers and stores that come and go for a while."""
    faults = Faults(lost=random_.choice([0, 0, 20]), doubled=random_.choice([0, 10]), late=random_.choice([0, 30]))
    world = World(seed=random_.randrange(2**32), faults=faults)
    world.add_producer("P1")
    world.add_store("S1")
    for _ in range(random_.randint(3, 25)):
        act, store = random_.randrange(8), random_.choice(["S1", "S2", "S3"])
        if act < 3 and "P1" in world.producers:
            world.publish("P1", random_.randint(1, 10))
        elif act < 5:
            world.pass_time(random_.choice([0.5, 1.0, 3.0]))
        elif act == 5 and store not in world.stores:
            world.add_store(store, batches=store != "S3")
        elif act == 6 and random_.random() < 0.5:
            world.kill(random_.choice([store, "P1"]))
        elif act == 7 and world.stores.get(store) is not None and random_.random() < 0.5:
            for partition in list(world.disks[store]):
                world.truncate(store, partition, random_.randint(0, 20))
    return world


def check_seed(seed: int) -> bool:
    """Whether anything was to be read."""
    random_ = random.Random(seed)
    world = grown(random_)
    since_ms = random_.randint(0, world.now_ms)
    partition = DafkaPartition(TOPIC, "P1")
    world.add_consumer("C9", StartOf("latest", since_ms=since_ms))
    world.pass_time(random_.choice([0, 5]))
    world.faults = Faults()
    world.pass_time(_LISTENS_S)
    got = world.got["C9"][partition]
    assert got == [(n, f"P1:{n}".encode()) for n, _ in got], "right bytes"
    assert [n for n, _ in got] == list(range(got[0][0], got[0][0] + len(got)) if got else ()), "in order, without a gap"
    wanted = [n for n, at_ms in enumerate(world.published_ms.get(partition, [])) if at_ms >= since_ms]
    tell = [store for store in world.stores if world.nodes[f"{store}r"].batches]
    kept = {n for store in tell for n in world.disks[store].get(partition, ())}
    if (producer := world.producers.get("P1")) is not None:
        kept |= set(range(producer.acked, producer.next))
    begins = got[0][0] if got else world.consumers["C9"].positions.get(partition)
    left_out = sorted(n for n in set(wanted) & kept if begins is None or n < begins)
    assert not left_out or world.given_up, f"{left_out} were published since, and are kept"
    if world.given_up:
        assert not got
        assert not any(partition in world.stores[store].stored for store in tell), "who knows has told"
    return bool(got)


def truncated_beside_a_whole_one(seed: int, begin: int | None = 60) -> list[int]:
    """One store keeps all, the other one nothing before 80, and much is lost while a consumer begins with the time of a
    record (None: with the earliest): the sequences that it gets."""
    world = World(seed=seed)
    world.add_producer("P1")
    for store in ("S1", "S2"):
        world.add_store(store)
    partition = DafkaPartition(TOPIC, "P1")
    for _ in range(5):
        world.publish("P1", 20)
        world.run()
        world.pass_time(1)
    world.kill("P1")
    world.truncate("S1", partition, 80)
    world.faults = Faults(lost=20)
    since_ms = None if begin is None else world.published_ms[partition][begin]
    world.add_consumer("C9", StartOf("earliest", since_ms=since_ms))
    world.pass_time(5)
    world.faults = Faults()
    world.pass_time(_LISTENS_S)
    return [n for n, _ in world.got["C9"][partition]]


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 2000), marks=pytest.mark.full)], ids=str)
def test_what_one_store_has_let_go_of_and_another_keeps_is_read_though_much_is_lost(seeds: range) -> None:
    assert [seed for seed in seeds if truncated_beside_a_whole_one(seed) != list(range(60, 100))] == []
    assert [seed for seed in seeds if truncated_beside_a_whole_one(seed, None) != list(range(100))] == []


@pytest.mark.parametrize("seed", [4501, 6376, 8118])
def test_a_schedule_that_has_lost_records_once_loses_none_now(seed: int) -> None:
    check_seed(seed)


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 3000), marks=pytest.mark.full)], ids=str)
def test_who_begins_at_a_time_misses_nothing_of_it_that_is_kept(seeds: range) -> None:
    assert sum(map(check_seed, seeds)) > len(seeds) / 4


@pytest.mark.parametrize("has_producer", [True, False])
@pytest.mark.parametrize("since", range(9))
@pytest.mark.parametrize("is_copied", [False, True])
def test_where_nothing_is_lost_it_begins_with_the_very_record(since: int, has_producer: bool, is_copied: bool) -> None:
    """Told by stores that have taken all as it was published. With one beside them that has copied all of it later, it
    begins with what that one says: nobody knows whose clock is right."""
    world = World()
    world.add_producer("P1")
    world.add_store("S1")
    world.add_store("S3")
    world.pass_time(2)
    for _ in range(4):
        world.publish("P1", 5)
        world.run()
        world.pass_time(2)
    if is_copied:
        world.add_store("S2")
    world.pass_time(20)
    if not has_producer:
        world.kill("P1")
    world.add_consumer("C9", StartOf("latest", since_ms=since * 1000 + 1500))
    world.pass_time(3)
    partition = DafkaPartition(TOPIC, "P1")
    wanted = [n for n, at_ms in enumerate(world.published_ms[partition]) if at_ms >= since * 1000 + 1500]
    if is_copied:
        wanted = list(range(20))
    assert [n for n, _ in world.got["C9"][partition]] == wanted
