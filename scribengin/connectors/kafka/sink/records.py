"""From Arrow batches to what a producer takes: checked and measured as columns, handed over record by record.

The loop is the client's: `produce` takes one record (0.9 us each; `produce_batch` takes longer to fill and knows no
headers). Everything that can be refused is refused before the first one is handed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import PAYLOAD
from scribengin.errors import DataflowError, RecordRefused, RecordTooLarge, SystemUnreachable

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SIDE_COLUMNS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("partition", pa.int32()),
    ]
)
"""What a Kafka record may carry beside its value."""
RECORD_OVERHEAD_BYTES = 200
"""Of a batch with one record: 61 of the batch, some 20 of lengths and time, and what a header's lengths take."""
_BY_KEY = -1  # the client's own word: where its partitioner puts the key
_SHOWN_MAX = 100
_BUFFER_WAIT_S = 0.5
_BUFFER_WAITS_MAX = 120
_LOOK_S = 8.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where records go: a topic of `partitions`, and in it those without a key or partition to `partition`. The bounds
    of their times are those of TopicFacts."""

    topic: str
    partitions: int
    partition: int
    bytes_max: int
    by_key: bool
    tombstones: bool
    behind_max_ms: int | None = None
    ahead_max_ms: int | None = None

    @property
    def payload_bytes_max(self) -> int:
        """The largest value that it takes, without a key or headers."""
        return max(self.bytes_max - RECORD_OVERHEAD_BYTES, 0)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One batch, ready to be handed over. None: that column is not there."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    partitions: Sequence[int] | None
    times_ms: Sequence[int] | None
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a batch that a Kafka record is made of, in their types. None: that column is not there."""

    payload: pa.Array
    key: pa.Array | None
    partition: pa.Array | None
    times: pa.Array | None
    headers: pa.Array | None


def checked(batch: pa.RecordBatch, target: Target) -> Columns:
    """The columns of a batch. Raises DataflowError for columns that cannot be these, and for a record that the topic
    cannot take RecordRefused, RecordTooLarge."""
    payload = _column(batch, PAYLOAD, pa.binary())
    if payload is None:
        raise DataflowError(f"topic {target.topic}: the output has no column '{PAYLOAD}'")
    if payload.null_count and not target.tombstones:
        raise RecordRefused(f"topic {target.topic}: a record without a payload; `tombstones: true` allows them")
    key = _column(batch, "key", SIDE_COLUMNS.field("key").type)
    headers = _column(batch, "headers", HEADERS)
    _refuse_large(target, payload, key, headers)
    partition = _column(batch, "partition", pa.int32())
    if partition is not None:
        _refuse_partition(target, partition)
    times = _column(batch, "timestamp", pa.timestamp("ms", tz="UTC"))
    if times is not None:
        _refuse_time(target, times)
    return Columns(payload, key, partition, times, headers)


def outgoing(batch: pa.RecordBatch, target: Target) -> Outgoing:
    """Check and convert a batch. Raises as `checked`."""
    columns = checked(batch, target)
    times, headers = columns.times, columns.headers
    return Outgoing(
        columns.payload.to_pylist(),
        None if columns.key is None else columns.key.to_pylist(),
        _partitions(target, columns.key, columns.partition),
        None if times is None else _sendable(times).to_pylist(),
        None if headers is None else [_pairs(row) for row in headers.to_pylist()],
    )


def hand_over(producer: Producer, target: Target, batch: Outgoing) -> None:
    """Give the records to the producer, waiting where its buffer is full. Raises KafkaException, SystemUnreachable."""
    produce, topic = producer.produce, target.topic
    partitions = repeat(target.partition) if batch.partitions is None else batch.partitions
    keys = repeat(None) if batch.keys is None else batch.keys
    if batch.times_ms is None and batch.headers is None:
        for value, key, partition in zip(batch.values, keys, partitions, strict=False):
            try:
                produce(topic, value, key, partition)
            except (BufferError, KafkaException) as error:
                _hand_over_again(producer, topic, {"value": value, "key": key, "partition": partition}, error)
        return
    times = repeat(0) if batch.times_ms is None else batch.times_ms
    headers = repeat(None) if batch.headers is None else batch.headers
    for value, key, partition, time_ms, row in zip(batch.values, keys, partitions, times, headers, strict=False):
        record: dict[str, Any] = {"value": value, "key": key, "partition": partition, "timestamp": time_ms}
        if row:
            record["headers"] = row
        try:
            produce(topic, **record)
        except (BufferError, KafkaException) as error:
            _hand_over_again(producer, topic, record, error)


def _hand_over_again(producer: Producer, topic: str, record: dict[str, Any], error: Exception) -> None:
    if isinstance(error, KafkaException):
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise error
        producer.list_topics(topic, timeout=_LOOK_S)  # it was added after the client had looked
    try:
        producer.produce(topic, **record)
    except BufferError:
        _wait_for_room(producer, topic, record)


def _wait_for_room(producer: Producer, topic: str, record: dict[str, Any]) -> None:
    for _waited in range(_BUFFER_WAITS_MAX):
        producer.poll(_BUFFER_WAIT_S)
        try:
            producer.produce(topic, **record)
        except BufferError:
            continue
        return
    raise SystemUnreachable(
        f"topic {topic}: the producer's buffer stays full, the brokers do not take its records; it is tried again: see "
        "whether the brokers run"
    )


def _column(batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if column.type == wanted:
        return column
    try:
        return column.cast(wanted, safe=name != "timestamp")  # microseconds are cut off, Kafka has none
    except pa.ArrowInvalid as error:
        raise RecordRefused(f"column '{name}' of a Kafka sink is {wanted}, and a value is no such: {error}") from None
    except pa.ArrowException as error:
        raise DataflowError(
            f"column '{name}' of a Kafka sink is {wanted}, and {column.type} is no such: {error}"
        ) from None


def _partitions(target: Target, key: pa.Array | None, given: pa.Array | None) -> list[int] | None:
    """None: all go to the stream's own partition."""
    default = pa.scalar(target.partition, pa.int32())
    if key is not None and target.by_key:
        keyed: Any = pc.if_else(pc.is_valid(key), pa.scalar(_BY_KEY, pa.int32()), default)
    elif given is None:
        return None
    else:
        keyed = default
    found = keyed if given is None else pc.coalesce(given, keyed)
    partitions: list[int] = found.to_pylist()
    return partitions


def _refuse_partition(target: Target, given: pa.Array) -> None:
    bounds = pc.min_max(given).as_py()  # of nothing but nulls: None
    wrong = [bound for bound in bounds.values() if bound is not None and not 0 <= bound < target.partitions]
    if wrong:
        raise RecordRefused(
            f"topic {target.topic}: a record's `partition` is {wrong[0]}, and there are {target.partitions}, from 0 on"
        )


def _refuse_time(target: Target, times: pa.Array) -> None:
    """The broker would refuse the whole transaction for one of them."""
    earliest_ms, latest_ms = (bound.as_py() for bound in pc.min_max(times.cast(pa.int64())).values())
    if earliest_ms is None:
        return
    now_ms = SYSTEM_CLOCK.now_ms()
    behind_max_ms, ahead_max_ms = target.behind_max_ms, target.ahead_max_ms
    if behind_max_ms is not None and earliest_ms < now_ms - behind_max_ms:
        raise _untimely(target, earliest_ms, "before", behind_max_ms)
    if ahead_max_ms is not None and latest_ms > now_ms + ahead_max_ms:
        raise _untimely(target, latest_ms, "after", ahead_max_ms)


def _untimely(target: Target, time_ms: int, way: str, max_ms: int) -> RecordRefused:
    return RecordRefused(
        f"topic {target.topic}: a record's `timestamp` is {time_ms} ms since 1970, and the topic takes none more than "
        f"{max_ms} ms {way} its own clock (message.timestamp.{way}.max.ms)"
    )


def _sendable(times: pa.Array) -> pa.Array:
    """Milliseconds as the client takes them: 0 is now to it, and -1 is no time to Kafka. Who means these two gets the
    next one, and who has no time gets now."""
    own = times.cast(pa.int64())
    for word, next_one in ((0, 1), (-1, -2)):
        own = pc.if_else(pc.equal(own, word), pa.scalar(next_one, pa.int64()), own)
    return pc.fill_null(own, 0)


def _refuse_large(target: Target, payload: pa.Array, key: pa.Array | None, headers: pa.Array | None) -> None:
    sizes = pc.fill_null(pc.binary_length(payload).cast(pa.int64()), 0)
    if key is not None:
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(key).cast(pa.int64()), 0))
    largest = pc.max(sizes).as_py() or 0
    if headers is not None:
        largest = max(
            (size + _headers_bytes(row) for size, row in zip(sizes.to_pylist(), headers.to_pylist(), strict=True)),
            default=0,
        )
    if largest + RECORD_OVERHEAD_BYTES > target.bytes_max:
        raise RecordTooLarge(
            f"topic {target.topic}: a record of {largest} bytes, and max.message.bytes of the topic is "
            f"{target.bytes_max}, of which a batch takes {RECORD_OVERHEAD_BYTES} itself; raise it, or write less"
        )


def _headers_bytes(row: list[dict[str, Any]] | None) -> int:
    if any(one is None or one["key"] is None for one in row or ()):
        raise RecordRefused("a header of a Kafka record has no key")
    cut = next((one["key"] for one in row or () if "\0" in one["key"]), None)
    if cut is not None:  # the client's own string ends there
        raise RecordRefused(f"the key of a header of a Kafka record has a NUL in it: {cut[:_SHOWN_MAX]!r}")
    return sum(len(one["key"] or "") * 4 + len(one["value"] or b"") + 10 for one in row or ())


def _pairs(row: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    if row is None:
        return None
    return [(one["key"], one["value"]) for one in row]
