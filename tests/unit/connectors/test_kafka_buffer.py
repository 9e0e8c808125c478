"""What a Kafka sink makes of a producer whose buffer the brokers do not empty."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors.kafka.sink.records import Target, hand_over, outgoing
from scribengin.errors import SystemUnreachable

TARGET = Target("out", 1, 0, 1_000_000, by_key=True, tombstones=False)


class FullProducer:
    """The client while no broker answers: it has room again after so many waits."""

    def __init__(self, waits: int) -> None:
        self._waits = waits
        self.taken: list[bytes] = []

    def produce(self, _topic: str, value: bytes, *_place: Any, **_record: Any) -> None:
        if self._waits > 0:
            raise BufferError
        self.taken.append(value)

    def poll(self, _timeout_s: float) -> None:
        self._waits -= 1


def handed_over(producer: Any) -> None:
    batch = pa.record_batch({"payload": pa.array([b"1", b"2"], pa.binary())})
    hand_over(producer, TARGET, outgoing(batch, TARGET))


def test_brokers_that_are_away_for_long_are_waited_for_and_no_failure_of_the_task() -> None:
    with pytest.raises(SystemUnreachable, match=r"topic out: .*buffer stays full.*see whether the brokers run"):
        handed_over(FullProducer(10_000))


def test_a_buffer_that_empties_takes_the_record_that_waited() -> None:
    producer = FullProducer(3)
    handed_over(producer)
    assert producer.taken == [b"1", b"2"]
