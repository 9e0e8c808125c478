"""What becomes of a Kafka record's own time and headers at the client: as given, or refused, and never another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.kafka.sink.records import SIDE_COLUMNS, Target, checked, hand_over, outgoing
from scribengin.errors import RecordRefused
from scribengin.testing.waiting import wait_until
from tests.servers.kafka_mock import mock_broker

TARGET = Target("t", partitions=1, partition=0, bytes_max=1_000_000, by_key=True, tombstones=False)
US = pa.timestamp("us", "UTC")


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_broker() as address:
        yield address


def batch(**columns: Any) -> pa.RecordBatch:
    """Records with these side columns."""
    count = len(next(iter(columns.values())))
    side = {name: pa.array(values, SIDE_COLUMNS.field(name).type) for name, values in columns.items()}
    return pa.record_batch({"payload": pa.array([b"%d" % n for n in range(count)], pa.binary()), **side})


def sent(bootstrap: str, records: pa.RecordBatch) -> list[Message]:
    """What a reader gets of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    hand_over(producer, TARGET, outgoing(records, TARGET))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[Message] = []

    def all_came() -> bool:
        found.extend(message for message in consumer.consume(100, 0.1) if message.error() is None)
        return len(found) >= int(records.num_rows)

    wait_until(all_came, 60, "what was sent")
    consumer.close()
    return found


def test_a_records_own_time_is_kept_and_what_the_client_takes_for_another_word_is_a_millisecond_off(
    bootstrap: str,
) -> None:
    """To the client 0 is now, and to Kafka -1 is no time."""
    began_ms = SYSTEM_CLOCK.now_ms()
    times_us = [0, 999, -999, 1_000, -1_000, -1_999, -2_000, 1_700_000_000_123_456, None]
    found = [message.timestamp()[1] for message in sent(bootstrap, batch(timestamp=times_us))]
    assert found[:-1] == [1, 1, 1, 1, -2, -2, -2, 1_700_000_000_123]
    assert found[-1] >= began_ms


def test_headers_are_kept_byte_by_byte(bootstrap: str) -> None:
    headers = [{"key": "ü", "value": b"x\0y"}, {"key": "", "value": b""}, {"key": "ü", "value": None}]
    [message] = sent(bootstrap, batch(headers=[headers]))
    assert message.headers() == [("ü", b"x\0y"), ("", b""), ("ü", None)]


def test_a_headers_key_that_the_client_would_cut_is_refused() -> None:
    """In C it ends with its first NUL."""
    good = [{"key": "a", "value": b"\0"}]
    with pytest.raises(RecordRefused, match=r"the key of a header of a Kafka record has a NUL in it: 'a\\x00b'"):
        checked(batch(headers=[good, [*good, {"key": "a\0b", "value": b""}]]), TARGET)
    checked(batch(headers=[good, good]), TARGET)
