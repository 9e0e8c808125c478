"""Whatever the network loses, doubles or reorders, and whoever comes late or dies: every consumer gets every partition
in order, without a gap, each record once and with its own bytes; and what producers let go of, enough stores have.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.dafka.state import EARLIEST, LATEST, DafkaPartition
from tests.scenario.dafka_world import TOPIC, Faults, World

ACTS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(["P1", "P2"]), st.integers(1, 30)),
    st.tuples(st.just("run"), st.just(""), st.integers(1, 60)),
    st.tuples(st.just("time"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("kill"), st.sampled_from(["P1", "P2", "S1", "S2"]), st.just(0)),
    st.tuples(st.just("start"), st.sampled_from(["S1", "S2", "C2", "C3"]), st.just(0)),
)
FAULTS = st.builds(Faults, lost=st.integers(0, 30), doubled=st.integers(0, 20), late=st.integers(0, 50))


def act(world: World, what: str, who: str, number: int) -> None:
    if what == "publish" and who in world.producers:
        world.publish(who, number)
    elif what == "run":
        world.run(number)
    elif what == "time":
        world.pass_time(number)
    elif what == "kill":
        world.kill(who)
    elif what == "start" and who.startswith("S") and who not in world.stores:
        world.add_store(who)
    elif what == "start" and who.startswith("C") and who not in world.consumers:
        world.add_consumer(who, LATEST if who == "C3" else EARLIEST)


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
            if consumer != "C3":
                assert len(records) >= there, (consumer, partition)
            elif records and producer is not None and whole:
                assert records[-1][0] + 1 == producer.next, (consumer, partition)
        if producer is not None and whole and len(world.stores) >= world.acks_min:
            assert producer.acked == producer.next, partition


@settings(max_examples=150)
@given(st.integers(0, 2**32), FAULTS, st.sampled_from([1, 2]), st.lists(ACTS, max_size=25))
def test_every_partition_comes_in_order_whole_and_once(
    seed: int, faults: Faults, acks_min: int, acts: list[tuple[str, str, int]]
) -> None:
    world = World(seed=seed, faults=faults, acks_min=acks_min)
    for name in ("P1", "P2"):
        world.add_producer(name)
    world.add_store("S1")
    world.add_consumer("C1")
    for what, who, number in acts:
        act(world, what, who, number)
        check_promises(world)
    world.faults = Faults()
    world.pass_time(60)
    check_promises(world)
    check_everybody_has_all(world)
