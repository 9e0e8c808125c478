"""How many messages of Kafka become one batch: by their number, and by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.kafka.client.client import made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.source.reading import (
    BATCH_BYTES,
    BATCH_RECORDS,
    KafkaSplit,
    PartitionConsumer,
    Reading,
    close_idle,
)

MIB = 1024 * 1024
LARGE = bytes(4 * MIB)
VALUES, KEYS = st.sampled_from([0, 100, MIB, 4 * MIB]), st.sampled_from([None, 0, 100, 4 * MIB])


def record(offset: int, value: int = 0, key: int | None = None, headers: Any = None) -> Message:
    """One with a value and a key of these sizes, which all messages share."""
    return Message(
        topic="t",
        partition=0,
        offset=offset,
        value=LARGE[:value] if value < len(LARGE) else LARGE,
        key=None if key is None else LARGE[:key] if key < len(LARGE) else LARGE,
        headers=headers,
        timestamp=(1, 1_700_000_000_000),
    )


class Client:
    """A consumer that has all messages at once, or gives one at a time."""

    def __init__(self, messages: Sequence[Message], *, one_at_a_time: bool = False) -> None:
        self._left = list(messages)
        self._slow = one_at_a_time
        self.given = 0

    def assign(self, _partitions: Sequence[TopicPartition]) -> None:
        """It has one partition only."""

    def unassign(self) -> None:
        """Nothing is asked for."""

    def consume(self, count: int, _timeout_s: float) -> list[Message]:
        if self._slow:
            return []
        taken, self._left = self._left[:count], self._left[count:]
        self.given += len(taken)
        return taken

    def poll(self, _timeout_s: float) -> Message:
        self.given += 1
        return self._left.pop(0)

    def close(self) -> None:
        """Nothing is held."""


def split_of(count: int) -> KafkaSplit:
    reading = Reading(KafkaConnectionConfig(bootstrap="batches:1"), "read_committed", "keep")
    return KafkaSplit(reading, "t", "", 0, 0, count, count, 1)


def batches(messages: Sequence[Message], *, one_at_a_time: bool = False) -> list[list[Message]]:
    client = Client(messages, one_at_a_time=one_at_a_time)
    with made_by("batches:1", lambda _kind, _conf: client):
        split = split_of(len(messages))
        consumer = PartitionConsumer(split)
        consumer.seek(split)
        return list(consumer.read(split.end))


def size(message: Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"")


@given(st.lists(st.tuples(VALUES, KEYS), max_size=99), st.booleans())
def test_a_batch_ends_with_the_message_that_fills_it(sizes: list[tuple[int, int | None]], slow: bool) -> None:
    messages = [record(n, value, key) for n, (value, key) in enumerate(sizes)]
    found = batches(messages, one_at_a_time=slow)
    assert [message.offset() for batch in found for message in batch] == list(range(len(messages)))
    for batch in found:
        assert sum(map(size, batch[:-1])) < BATCH_BYTES
    for batch in found[:-1]:
        assert sum(map(size, batch)) >= BATCH_BYTES


@pytest.mark.parametrize("slow", [True, False])
def test_small_messages_fill_a_batch_by_their_number(slow: bool) -> None:
    found = batches([record(n, 10) for n in range(2 * BATCH_RECORDS + 1)], one_at_a_time=slow)
    assert [len(batch) for batch in found] == [BATCH_RECORDS, BATCH_RECORDS, 1]


def test_what_is_large_is_not_all_held_before_the_first_of_it_is_handed_out() -> None:
    client = Client([record(n, 4 * MIB) for n in range(1000)], one_at_a_time=True)
    with made_by("batches:1", lambda _kind, _conf: client):
        split = split_of(1000)
        consumer = PartitionConsumer(split)
        consumer.seek(split)
        next(consumer.read(split.end))
    assert client.given == BATCH_BYTES // (4 * MIB)


@pytest.mark.parametrize(
    "large",
    [{"value": MIB}, {"key": MIB}, {"headers": [("a", LARGE[: MIB // 2]), ("b", LARGE[: MIB // 2])]}],
    ids=("values", "keys", "headers"),
)
def test_whatever_makes_a_record_large_is_looked_at_when_a_range_is_planned(large: dict[str, Any]) -> None:
    """Else a round's `bytes_max` would be as many of them as there are small records in it."""
    client = Client([record(n, **large) for n in range(10)])
    with made_by("batches:1", lambda _kind, _conf: client):
        mean = split_of(10).sample(10)
        close_idle()
    assert mean is not None
    assert MIB <= mean < MIB + 1000
