"""Messages of Kafka as columns: times that a column cannot hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.kafka.source.columns import to_batch

LARGEST_MS = (2**63 - 1) // 1000
NANOSECONDS = 1_795_759_841_212_000_000
"""A time of 2026, in nanoseconds, where milliseconds belong."""
MANY = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE)


def columns(*stamped: tuple[int, int]) -> list[dict[str, Any]]:
    """What becomes of the times of messages. Times as microseconds: Python's own end with the year 9999."""
    messages = [Message(topic="t", partition=0, offset=n, timestamp=each) for n, each in enumerate(stamped)]
    batch = to_batch(messages, "t", 0)
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    times, kinds = batch.column("timestamp").cast(pa.int64()), batch.column("timestamp_type")
    return [{"us": us, "type": kind} for us, kind in zip(times.to_pylist(), kinds.to_pylist(), strict=True)]


def test_a_time_that_the_column_cannot_hold_is_none_and_no_other_one() -> None:
    at = int(datetime(2026, 11, 27, tzinfo=UTC).timestamp() * 1000)
    create = TIMESTAMP_CREATE_TIME
    assert columns((create, at), (create, NANOSECONDS), (create, -NANOSECONDS), (create, -(2**63)), (create, at)) == [
        {"us": at * 1000, "type": "create"},
        {"us": None, "type": "create"},
        {"us": None, "type": "create"},
        {"us": None, "type": "create"},
        {"us": at * 1000, "type": "create"},
    ]


@given(st.lists(st.tuples(st.sampled_from(MANY), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_every_time_is_kept_as_it_is_or_is_none(stamped: list[tuple[int, int]]) -> None:
    for (kind, ms), found in zip(stamped, columns(*stamped), strict=True):
        there = kind != TIMESTAMP_NOT_AVAILABLE and -LARGEST_MS <= ms <= LARGEST_MS
        assert found["us"] == (ms * 1000 if there else None)
