"""Messages of the client as columns of Arrow, many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from scribengin.connectors.contract import RECORD_SCHEMA

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""A record's headers: in order, a key may stand there more than once; no headers are an empty list. Null: they were not
read, as nobody wants them, or as the client cannot read them."""
UNREADABLE = (
    "its headers cannot be read: the name of one is not UTF-8; `headers: drop` of the source reads the topic without "
    "headers"
)
"""What is wrong with a record whose headers are null though they are wanted."""

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
_MS_MAX = (2**63 - 1) // _US_PER_MS


_Headers = list[tuple[str, bytes | None]]


def to_batch(messages: list[Message], topic: str, partition: int, *, with_headers: bool = True) -> pa.RecordBatch:
    """Messages of one partition, without errors among them, in SCHEMA; `with_headers` not: that column is null.

    To be called once: asked again for headers that it cannot read, the client hands out a half-made list of them.
    """
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
        _headers(messages) if with_headers else pa.nulls(count, HEADERS),
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
    """Their types and times. A topic has one type of them at a time, so that is the usual case. A time that the column
    cannot hold (nanoseconds, where milliseconds belong) is null, as it would be another one."""
    kinds, times = zip(*[m.timestamp() for m in messages], strict=True)
    count, only = len(kinds), _TIMESTAMP_TYPES.get(kinds[0])
    in_ms = np.array(times, np.int64)
    beyond = (in_ms > _MS_MAX) | (in_ms < -_MS_MAX)
    in_us = np.where(beyond, 0, in_ms) * _US_PER_MS
    kind = SCHEMA.field("timestamp").type
    if only is not None and kinds.count(kinds[0]) == count:
        return _repeated(only, count, pa.string()), pa.array(in_us, kind, mask=beyond if beyond.any() else None)
    names = [_TIMESTAMP_TYPES.get(one) for one in kinds]
    missing = beyond | np.array([name is None for name in names])
    return pa.array(names, pa.string()), pa.array(in_us, kind, mask=missing)


def _headers(messages: list[Message]) -> pa.Array:
    found, unread = _read_headers(messages)
    ends = np.zeros(len(found) + 1, np.int32)
    if any(found):
        np.cumsum([len(headers or ()) for headers in found], out=ends[1:])
    flat = [header for headers in found if headers for header in headers]
    pairs = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADERS.value_type),
    )
    mask = pa.array(np.isin(np.arange(len(found)), unread)) if unread else None
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS, mask=mask)


def _read_headers(messages: list[Message]) -> tuple[list[_Headers | None], list[int]]:
    """Those of each message, and the numbers of the messages that have some which the client cannot read.

    Then it raises, and returns a half-made list all the same. Python looks for that where a method is called through
    others (`map`). Where it is called by its name again and again, Python takes a shorter way, which does not look: the
    list was handed out, and the error came up anywhere.
    """
    found: list[_Headers | None] = []
    unread = []
    asked = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(asked)
        except (SystemError, UnicodeDecodeError) as error:  # `found` has the headers of all before it
            if not isinstance(error, UnicodeDecodeError) and not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            unread.append(len(found))
            found.append(None)
    return found, unread
