"""Messages of the client as columns of Arrow, many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from scribengin.connectors.contract import RECORD_SCHEMA

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""A record's headers: in order, a key may stand there more than once; no headers are an empty list."""

SCHEMA = pa.schema(
    [
        *RECORD_SCHEMA,
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestamp_type", pa.string()),
        pa.field("headers", HEADERS),
    ]
)
"""What the transformation sees. `payload` is null for a tombstone, `txid` and `channel` always: offsets are no
transaction ids, because those of several partitions do not grow together."""

_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}
_US_PER_MS = 1000


def to_batch(messages: list[Message], topic: str, partition: int) -> pa.RecordBatch:
    """Messages of one partition, without errors among them, in SCHEMA."""
    count = len(messages)
    kinds, times = _timestamps(messages)
    columns = [
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.string()),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        _repeated(topic, count, pa.string()),
        _repeated(partition, count, pa.int32()),
        pa.array(_offsets(messages)),
        times,
        kinds,
        _headers([m.headers() for m in messages]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _offsets(messages: list[Message]) -> Any:
    first, count = messages[0].offset(), len(messages)
    if messages[-1].offset() - first == count - 1:  # no gaps, as usual
        return np.arange(first, first + count, dtype=np.int64)
    return np.array([m.offset() for m in messages], np.int64)


def _timestamps(messages: list[Message]) -> tuple[pa.Array, pa.Array]:
    """Their types and times. A topic has one type of them at a time, so that is the usual case."""
    kinds, times = zip(*[m.timestamp() for m in messages], strict=True)
    count, only = len(kinds), _TIMESTAMP_TYPES.get(kinds[0])
    in_us = np.array(times, np.int64) * _US_PER_MS
    kind = SCHEMA.field("timestamp").type
    if only is not None and kinds.count(kinds[0]) == count:
        return _repeated(only, count, pa.string()), pa.array(in_us, kind)
    names = [_TIMESTAMP_TYPES.get(one) for one in kinds]
    return pa.array(names, pa.string()), pa.array(in_us, kind, mask=np.array([name is None for name in names]))


def _headers(found: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    ends = np.zeros(len(found) + 1, np.int32)
    if any(found):
        np.cumsum([len(headers or ()) for headers in found], out=ends[1:])
    flat = [header for headers in found if headers for header in headers]
    pairs = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS)
