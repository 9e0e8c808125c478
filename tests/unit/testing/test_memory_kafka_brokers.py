"""Single brokers of the Kafka in memory fail, as `test_kafka_brokers_killed` has it of real ones: others lead.

Nothing waits for a time to pass: an election takes none, or an hour, after which the broker that failed is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from scribengin.connectors.kafka.client.client import KafkaControl
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.connectors.kafka.sink.transaction import committed_offset
from scribengin.errors import SystemUnreachable
from scribengin.testing.conformance.kafka import KafkaClients
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.kafka.brokers import Brokers

_LIMIT_S = 60.0
_HOUR_S = 3600.0


@pytest.fixture
def cluster() -> Iterator[MemoryKafka]:
    with MemoryKafka("in-memory:4", patience_s=0.1, brokers=3).serving() as cluster:
        yield cluster


def leader(cluster: MemoryKafka, role: str) -> int:
    led = cluster.brokers.leadership(role)
    assert led is not None
    return led.broker


def topic_of_two_leaders(cluster: MemoryKafka) -> KafkaClients:
    """A topic whose two partitions are led by two brokers."""
    while True:
        side = KafkaClients(cluster.bootstrap, partitions=2)
        if leader(cluster, f"{side.topic}/0") != leader(cluster, f"{side.topic}/1"):
            return side


def without_elections(cluster: MemoryKafka) -> None:
    cluster.brokers.elects_s = lambda _role: _HOUR_S


def with_elections(cluster: MemoryKafka) -> None:
    cluster.brokers.elects_s = lambda _role: 0.0


def test_another_broker_leads_what_one_that_fails_has_led_and_gives_it_back() -> None:
    brokers = Brokers(3)
    roles = [f"topic/{number}" for number in range(12)]
    first = {role: brokers.leadership(role) for role in roles}
    brokers.elects_s, brokers.settles_s = lambda _role: 1.0, lambda _role: 2.0
    gone = {role for role, led in first.items() if led is not None and led.broker == 1}
    brokers.fail(1, 10.0)
    assert {role for role in roles if not brokers.leads(role, 10.5)} == gone
    assert {role for role in roles if not brokers.knows(role, 12.5)} == gone
    assert all(brokers.knows(role, 13.0) for role in roles)
    brokers.come_back(1, 20.0)
    assert {role for role in roles if (led := brokers.leadership(role)) is not None and led.planned} == gone
    assert {role: led.broker for role in roles if (led := brokers.leadership(role))} == {
        role: led.broker for role, led in first.items() if led is not None
    }


def test_nobody_leads_anything_while_no_broker_runs() -> None:
    brokers = Brokers(2)
    for number in (1, 2):
        brokers.fail(number, 0.0)
    assert not brokers.leads("topic/0", 1.0)
    brokers.come_back(2, 2.0)
    assert brokers.knows("topic/0", 2.0)


def test_a_partition_without_a_leader_waits_and_the_others_do_not(cluster: MemoryKafka) -> None:
    side = topic_of_two_leaders(cluster)
    producer = cluster.client(Producer, {})
    without_elections(cluster)
    gone = leader(cluster, f"{side.topic}/0")
    cluster.fail(gone)
    for value, partition in ((b"1", 0), (b"2", 1), (b"3", 0)):
        producer.produce(side.topic, value, None, partition)
    assert (producer.flush(_LIMIT_S), cluster.visible(side.topic)) == (2, [b"2"])
    with_elections(cluster)
    cluster.come_back(gone)
    assert (producer.flush(_LIMIT_S), cluster.visible(side.topic, 0)) == (0, [b"1", b"3"])


def test_a_decision_that_nobody_heard_of_stands_and_is_not_made_twice(cluster: MemoryKafka) -> None:
    """The broker that decides fails before it says so: its client asks the next one."""
    side = KafkaClients(cluster.bootstrap)
    producer = side.producer()
    side.stage(producer, b"1")
    side.move(producer, 1, "decided")
    cluster.fail(leader(cluster, f"id/{side.topic}"), after_next=True)
    producer.commit_transaction(_LIMIT_S)
    assert len(cluster.brokers.running) == 2
    assert (side.seen(), side.moved()) == ([(0, b"1")], (1, "decided"))


@pytest.mark.parametrize("unheard", [True, False])
def test_a_coordinator_that_is_away_for_long_leaves_a_commit_unknown_and_the_next_producer_finds_out(
    cluster: MemoryKafka, unheard: bool
) -> None:
    side = KafkaClients(cluster.bootstrap)
    producer = side.producer()
    side.stage(producer, b"1")
    side.move(producer, 1, "decided")
    without_elections(cluster)
    gone = leader(cluster, f"id/{side.topic}")
    cluster.fail(gone, after_next=unheard)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        producer.commit_transaction(_LIMIT_S)
    with_elections(cluster)
    cluster.come_back(gone)
    side.producer()
    assert (side.moved()[0] == 1, [value for _, value in side.seen()]) == (unheard, [b"1"] if unheard else [])


@pytest.mark.parametrize("unheard", [True, False])
def test_a_decision_is_told_once_and_where_it_is_made(cluster: MemoryKafka, unheard: bool) -> None:
    """Nobody coordinates the transaction while its client waits."""
    side = KafkaClients(cluster.bootstrap)
    producer = side.producer()
    side.stage(producer, b"1")
    told: list[str] = []
    cluster.decided = lambda _id, outcome: told.append(outcome)
    without_elections(cluster)
    gone = leader(cluster, f"id/{side.topic}")
    cluster.fail(gone, after_next=unheard)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        producer.commit_transaction(_LIMIT_S)
    assert told == (["commit"] if unheard else [])
    with_elections(cluster)
    cluster.come_back(gone)
    producer.commit_transaction(_LIMIT_S)
    assert told == ["commit"]


def test_marks_of_what_is_decided_wait_for_the_next_coordinator(cluster: MemoryKafka) -> None:
    cluster.mark_after_s = lambda _id, _place: 0.01
    side = KafkaClients(cluster.bootstrap)
    producer = side.producer()
    side.stage(producer, b"1")
    without_elections(cluster)
    gone = leader(cluster, f"id/{side.topic}")
    with cluster.changed:
        producer.commit_transaction(_LIMIT_S)
        cluster.fail(gone)
        cluster.write_marks()
    assert cluster.visible(side.topic) == []
    with_elections(cluster)
    cluster.come_back(gone)
    side.producer()  # waits for them
    assert cluster.visible(side.topic) == [b"1"]


def test_the_next_coordinator_of_a_group_says_that_it_does_not_know_yet_and_the_engine_asks_again(
    cluster: MemoryKafka,
) -> None:
    side = KafkaClients(cluster.bootstrap)
    producer = side.producer()
    side.stage(producer, b"1")
    side.move(producer, 1, "decided")
    producer.commit_transaction(_LIMIT_S)
    gone = leader(cluster, f"group/{side.group}")
    place = TopicPartition(side.topic, 0)
    cluster.brokers.settles_s = lambda _role: _HOUR_S
    cluster.fail(gone)
    with closing(side.consumer()) as member:
        with pytest.raises(KafkaException, match="COORDINATOR_LOAD_IN_PROGRESS"):
            member.committed([place], _LIMIT_S)
        without_elections(cluster)
        cluster.come_back(gone)
        with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
            member.committed([place], _LIMIT_S)
        cluster.fail(gone)
        with_elections(cluster)
        cluster.brokers.settles_s = lambda _role: 0.05
        cluster.come_back(gone)
        assert committed_offset(member, place).offset == 1


def two_records_behind(cluster: MemoryKafka, side: KafkaClients) -> None:
    """The partition's new leader has not settled, and does not show the last two of three records."""
    cluster.send(side.topic, [b"1", b"2", b"3"])
    cluster.brokers.settles_s = lambda _role: _HOUR_S
    cluster.forgets = lambda _place: 2
    cluster.fail(leader(cluster, f"{side.topic}/0"))


def ends(side: KafkaClients) -> Any:
    control = KafkaControl.of(side.config)
    try:
        return control.ends([(side.topic, 0)], "read_committed")[side.topic, 0]
    finally:
        control.release()


def test_a_leader_that_has_not_settled_does_not_say_where_it_ends(cluster: MemoryKafka) -> None:
    side = KafkaClients(cluster.bootstrap)
    two_records_behind(cluster, side)
    found = ends(side)
    assert isinstance(found, SystemUnreachable)
    assert "high watermark is not caught up" in str(found)


def test_one_before_2_2_says_that_it_ends_earlier(cluster: MemoryKafka) -> None:
    side = KafkaClients(cluster.bootstrap)
    cluster.tells_short_ends = True
    two_records_behind(cluster, side)
    found = ends(side)
    assert isinstance(found, PartitionEnds)
    assert found.end == 1


def test_readers_are_shown_less_for_a_while_and_told_of_no_end_behind_them(cluster: MemoryKafka) -> None:
    side = KafkaClients(cluster.bootstrap)
    two_records_behind(cluster, side)
    assert side.seen() == [(0, b"1")]
    with closing(side.consumer()) as consumer:
        consumer.assign([TopicPartition(side.topic, 0, 2)])
        assert consumer.poll(0.05) is None
        cluster.brokers.settles_s = lambda _role: 0.0
        cluster.come_back(next(iter({1, 2, 3} - cluster.brokers.running)))
        assert consumer.poll(_LIMIT_S).value() == b"3"


def test_a_partition_that_has_just_gone_elsewhere_is_asked_for_in_vain(cluster: MemoryKafka) -> None:
    """The broker that led it runs still, and says so."""
    side = KafkaClients(cluster.bootstrap)
    gone = leader(cluster, f"{side.topic}/0")
    cluster.fail(gone)
    without_elections(cluster)
    cluster.come_back(gone)
    found = ends(side)
    assert isinstance(found, SystemUnreachable)
    assert "Not leader for partition" in str(found)
