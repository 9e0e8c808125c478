"""Waiting for records of Kafka: what the brokers refuse meanwhile is told, once, to who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from queue import Empty, Queue
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.kafka.client.client import KafkaControl, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.source.offsets import PartitionWatch
from scribengin.connectors.kafka.source.watching import Watch
from scribengin.errors import ConfigInvalid

DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
PATIENCE_S = 60.0


class Client:
    """A consumer that is told something when it is assigned a partition."""

    def __init__(self) -> None:
        self.told: Callable[[TopicPartition], Message | None] = lambda _place: None
        self._queue: Queue[Message] = Queue()

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        for message in filter(None, map(self.told, places)):
            self._queue.put(message)

    def incremental_unassign(self, _places: Sequence[TopicPartition]) -> None:
        """What was told stays so."""

    def poll(self, timeout_s: float) -> Message | None:
        try:
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return []

    def close(self) -> None:
        """Nothing is held."""


def of(place: TopicPartition, *, partition: int | None = None, code: int | None = None) -> Message:
    error = None if code is None else KafkaError(code)
    number = place.partition if partition is None else partition
    return Message(topic=place.topic, partition=number, offset=place.offset, value=b"1", error=error)


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    with made_by("watch:1", lambda _kind, _conf: made):
        yield made


@pytest.fixture
def watch(client: Client) -> Iterator[Watch]:
    looks = PartitionWatch(cast("KafkaControl", None), "read_committed", SYSTEM_CLOCK)
    with closing(Watch(KafkaConnectionConfig(bootstrap="watch:1"), "read_committed", looks)) as made:
        yield made


@pytest.mark.parametrize("partition", [0, -1], ids=["of the partition", "of the topic"])
def test_who_waits_for_what_it_may_not_read_is_told(watch: Watch, client: Client, partition: int) -> None:
    """Else it would look again at once, find nothing new, and wait again, without end."""
    client.told = lambda place: of(place, partition=partition, code=DENIED)
    for _again in range(2):
        with pytest.raises(ConfigInvalid, match=r"^Kafka at watch:1, waiting for records of t/0: .*auth.*; correct"):
            watch.wait(("t", 0), 5, PATIENCE_S)


def test_what_was_refused_before_is_not_told_once_it_is_permitted(watch: Watch, client: Client) -> None:
    client.told = lambda place: of(place, code=DENIED)
    with pytest.raises(ConfigInvalid):
        watch.wait(("t", 0), 5, PATIENCE_S)
    client.told = of
    assert watch.wait(("t", 0), 5, PATIENCE_S)


def test_what_is_out_of_range_wakes_the_reader_which_looks_for_itself(watch: Watch, client: Client) -> None:
    client.told = lambda place: of(place, code=KafkaError._AUTO_OFFSET_RESET)
    assert watch.wait(("t", 0), 5, PATIENCE_S)
