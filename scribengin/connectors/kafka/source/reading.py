"""Reading planned ranges of partitions, in whatever process: Spark's workers, or the driver.

A process keeps the consumers that it has made, each at the place where it stopped: the next range of that partition
needs no seek, and its first records were fetched meanwhile. They belong to no group. A range [start, end) is over when
the consumer is known to have passed `end`, not when the record `end - 1` was seen: compaction and the marks of
transactions leave gaps, and what a transaction aborted is passed over by the client.
"""

from __future__ import annotations

import atexit
import os
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import background, pause, started
from scribengin.connectors.kafka.client.client import Troubles, engine_error, made
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, connection_key, settings
from scribengin.connectors.kafka.source.columns import UNREADABLE, to_batch
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.errors import RangeGone, SystemUnreachable

BATCH_RECORDS = 2000
"""Messages that become Arrow at once: few enough to stay in the processor's cache, which makes half the speed."""
BATCH_BYTES = 8 * 1024 * 1024
"""Or so many bytes of values and keys, with the message that goes beyond them: of large ones 2,000 would fill a worker,
and a column of Arrow holds 2 GiB."""
READ_TIMEOUT_S = 20.0
"""A range in which nothing moves for so long cannot be read just now."""
KEPT_MAX = 8
"""Idle consumers of one connection that a process keeps."""
RESTS_AFTER_S = 1.0
"""A consumer that nobody has used for so long is put to rest. Until then it fetches ahead, or asks its broker 20 times
a second for what may come: its wait is short, as the end of a range is waited for by it."""
_POLL_S = 0.5
_FULL_MS = 10
"""When a client that has fetched enough looks whether it still has. Its own 1,000 ms are longer than a range takes to
be read: with them, readers waited for two thirds of the time."""
_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


@dataclass(frozen=True, slots=True)
class Reading:
    """How the partitions of a source are read."""

    connection: KafkaConnectionConfig
    isolation: Literal["read_committed", "read_uncommitted"]
    tombstones: Literal["keep", "drop"]
    headers: Literal["keep", "drop"] = "keep"
    fetch_kb: int = 2048
    """How much is asked for at once; four times that is fetched ahead."""

    @classmethod
    def of(cls, config: KafkaSourceConfig) -> Reading:
        """As the source's configuration says."""
        return cls(config, config.isolation, config.tombstones, config.headers)

    def settings(self) -> dict[str, object]:
        """What a consumer is made with."""
        return settings(
            self.connection,
            "scribengin-read",
            group_id="scribengin-read",  # the client wants one; it is never joined, and nothing is committed to it
            isolation_level=self.isolation,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            check_crcs=True,
            queued_max_messages_kbytes=4 * self.fetch_kb,
            fetch_message_max_bytes=self.fetch_kb * 1024,
            fetch_wait_max_ms=50,
            fetch_error_backoff_ms=20,
            fetch_queue_backoff_ms=_FULL_MS,
        )


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """The records of one partition in the offsets [start, end). `records` and `size_bytes` are estimates."""

    reading: Reading
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    records: int
    size_bytes: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic}/{self.partition}"

    def read(self) -> Iterator[pa.RecordBatch]:
        """Raises RangeGone when retention was faster, SystemUnreachable, ConfigInvalid, DataflowError."""
        with _TAPS.take(self) as tap:
            keep = self.reading.tombstones == "keep"
            for messages in tap.read(self.end):
                wanted = messages if keep else [m for m in messages if m.value() is not None]
                if wanted:
                    yield self._batch(wanted)

    def unreadable(self, rows: pa.RecordBatch | pa.Table) -> dict[int, str]:
        """Those whose headers the client cannot read. None, where they are not wanted."""
        headers = rows.column("headers")
        if self.reading.headers == "drop" or not headers.null_count:
            return {}
        return {row: UNREADABLE for row, is_null in enumerate(headers.is_null().to_pylist()) if is_null}

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """Topic, partition and offset. Records say themselves where they stand."""
        return [f"topic {self.topic}, partition {self.partition}, offset {at}" for at in rows.column("offset")]

    def sample(self, records_max: int) -> int | None:
        """The mean of what the first records take in Arrow, or None when there are none. Raises as `read`."""
        end = min(self.end, self.start + records_max)
        few = replace(self.reading, fetch_kb=_SAMPLE_FETCH_KB)
        with _TAPS.take(replace(self, end=end, reading=few)) as tap:
            batches = map(self._batch, tap.read(end))  # one at a time: they may be large
            sizes = [(batch.num_rows, batch.nbytes) for batch in batches]
            tap.rest()
        records = sum(rows for rows, _ in sizes)
        return sum(size for _, size in sizes) // records if records else None

    def _batch(self, messages: list[Message]) -> pa.RecordBatch:
        return to_batch(messages, self.topic, self.partition, with_headers=self.reading.headers == "keep")


_SAMPLE_FETCH_KB = 64


class PartitionConsumer:
    """A consumer at one place of one partition. Used by one thread at a time."""

    def __init__(self, split: KafkaSplit) -> None:
        self._troubles = Troubles()
        self._bootstrap = split.reading.connection.bootstrap
        self._consumer = self._made(split)
        self._held: list[Message] = []
        """Messages that came and lie behind what was asked for."""
        self._passed = 0
        """Everything before this offset was handed out, is held, or is no record."""
        self._name = ""
        self._place: tuple[str, int] = ("", -1)
        self._start = 0
        self._reached: dict[tuple[str, int], int] = {}
        """By partition, where its range began, or ended, that was read last."""
        self.at = -1
        """Where the next range has to begin to need no seek."""
        self.of: tuple[str, str, int] | None = None
        self.idle_since_s = 0.0

    def seek(self, split: KafkaSplit) -> None:
        """Stand at the beginning of the split."""
        self._place = (split.topic, split.partition)
        if split.start < self._reached.get(
            self._place, 0
        ):  # its errors from further on could be taken for news of here
            self._consumer.close()
            self._consumer = self._made(split)
            self._reached = {}
        self.of = _identity(split)
        self._name = split.name
        self.at = self._passed = self._start = self._reached[self._place] = split.start
        self._held = []
        self._consumer.assign([TopicPartition(split.topic, split.partition, split.start)])

    def read(self, end: int) -> Iterator[list[Message]]:
        """The messages from here to `end`, as they come. Raises as `KafkaSplit.read`."""
        messages: list[Message] = []
        room = BATCH_BYTES
        while self._before(end):
            if not self._held:
                self._fetch(end)
            taken, size = self._held_before(end, room)
            self._held = self._held[len(taken) :]
            messages += taken
            room -= size
            if len(messages) >= BATCH_RECORDS or room <= 0:
                yield messages
                messages, room = [], BATCH_BYTES
        self.at = self._reached[self._place] = end
        if messages:
            yield messages

    def rest(self) -> None:
        """Ask for nothing until the next `seek`. Not by `pause`: what is resumed is fetched up to a second later, what
        is assigned anew at once."""
        if self.at >= 0:
            with suppress(KafkaException):  # it is told to who reads next
                self._consumer.unassign()
            self._held = []
            self.at = -1

    def close(self) -> None:
        """The consumer goes."""
        self._consumer.close()

    def _made(self, split: KafkaSplit) -> Consumer:
        return made(Consumer, split.reading.settings(), self._troubles)

    def _held_before(self, end: int, room: int) -> tuple[list[Message], int]:
        """Those held before `end`, and their size; or the first of them, with the one that fills `room`."""
        held = self._held[: bisect_left(self._held, end, key=Message.offset)]
        if (size := _size(held)) < room:
            return held, size
        sizes = list(accumulate(_size([message]) for message in held))
        last = bisect_left(sizes, room)
        return held[: last + 1], sizes[last]

    def _before(self, end: int) -> bool:
        return bool((self._held[0].offset() if self._held else self._passed) < end)

    def _fetch(self, end: int) -> None:
        """Wait until something comes, and hold it. Raises when nothing does for READ_TIMEOUT_S."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + READ_TIMEOUT_S
        while (first := self._consumer.poll(_POLL_S)) is None:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise self._nothing_came(end)
        # What is beyond the range is left in the client's queue, where it counts against the size of that.
        more = min(BATCH_RECORDS, end - self._passed) - 1
        messages = [first, *(self._consumer.consume(more, 0) if more > 0 else ())]
        if self._are_records(messages):
            self._troubles.take()
            self._held = messages
            self._passed = messages[-1].offset() + 1
            return
        for message in messages:
            self._take(message)

    def _are_records(self, messages: Sequence[Message]) -> bool:
        """Whether nothing has to be looked at one by one: they are records of the partition that is read."""
        if [message for message in messages if message.error() is not None]:
            return False
        topic, partition = self._place
        return {*map(Message.topic, messages)} == {topic} and {*map(Message.partition, messages)} == {partition}

    def _take(self, message: Message) -> None:
        error = message.error()
        if not self._is_here(message):
            return  # of what was read before: it came while nobody read, and is not taken back with the assignment
        if error is None:
            self._held.append(message)
            self._passed = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._passed = max(self._passed, message.offset())
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # of a group that the client wants to have, and which is never used
        elif error.code() in _LOST:
            raise RangeGone(f"{self._name}: the records from offset {self._passed} on are gone since they were planned")
        elif not isinstance(known := engine_error(error, self._bootstrap, f"reading {self._name}"), SystemUnreachable):
            raise known

    def _is_here(self, message: Message) -> bool:
        """Whether it is about the partition that is read, from where that began; or about its topic, or the client."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None:
            return topic in (None, self._place[0])
        return (topic, partition) == self._place and (offset is None or offset >= self._start)

    def _nothing_came(self, end: int) -> Exception:
        trouble = self._troubles.take()
        doing = f"reading {self._name} at offset {self._passed}"
        if trouble is not None:
            return engine_error(trouble, self._bootstrap, doing)
        return SystemUnreachable(
            f"Kafka at {self._bootstrap}, {doing}: nothing came for {READ_TIMEOUT_S:g} s, though offset {end - 1} was "
            "there; it is tried again: see whether the brokers run"
        )


def _size(messages: Sequence[Message]) -> int:
    """The bytes of their values and keys."""
    return sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))


_Connection = tuple[str, str, int]
"""What two splits must have in common to be read by the same consumer."""


class Taps:
    """The consumers of this process. Thread-safe. A process that was forked off begins anew: it must not touch them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[_Connection, list[PartitionConsumer]] = {}
        self._inherited: list[PartitionConsumer] = []
        self._resting: threading.Thread | None = None
        self.rests = True
        """Whether idle ones are put to rest, by a thread of its own."""
        os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def take(self, split: KafkaSplit) -> Iterator[PartitionConsumer]:
        """A consumer that stands at the beginning of the split, while the block lasts. After an error it is closed."""
        tap = self._idle_at(split)
        try:
            if tap.of != _identity(split) or tap.at != split.start:
                tap.seek(split)
            yield tap
        except BaseException:
            tap.close()
            raise
        self._give_back(tap, split)

    def close(self) -> None:
        """Close what is idle, before the interpreter goes: a client that is destroyed after it may crash."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for tap in (tap for taps in idle.values() for tap in taps):
            tap.close()

    def _idle_at(self, split: KafkaSplit) -> PartitionConsumer:
        """The one that stands there; else one of that partition, or, when there are many, the one idle for longest."""
        with self._lock:
            idle = self._idle.setdefault(_connection(split), [])
            fits = [t for t in idle if t.of == _identity(split)]
            best = next((t for t in fits if t.at == split.start), None)
            if best is None and (fits or len(idle) >= KEPT_MAX):
                best = (fits or idle)[0]
            if best is not None:
                idle.remove(best)
                return best
        return PartitionConsumer(split)

    def _give_back(self, tap: PartitionConsumer, split: KafkaSplit) -> None:
        tap.idle_since_s = SYSTEM_CLOCK.monotonic_s()
        with self._lock:
            idle = self._idle.setdefault(_connection(split), [])
            idle.append(tap)
            surplus = idle.pop(0) if len(idle) > KEPT_MAX else None
            if tap.at >= 0 and self._resting is None and self.rests:
                with suppress(RuntimeError):  # the machine has no thread left: the next one tries again
                    self._resting = started(background("kafka-rest", self._rest_idle))
        if surplus is not None:
            surplus.close()

    def _rest_idle(self) -> None:
        """The thread. It ends when nobody is awake any more."""
        while self._are_awake():
            pause(RESTS_AFTER_S)

    def _are_awake(self) -> bool:
        """Some that are idle, once those are at rest that have been for long."""
        long_ago_s = SYSTEM_CLOCK.monotonic_s() - RESTS_AFTER_S
        with self._lock:
            idle = [tap for taps in self._idle.values() for tap in taps]
            for tap in (tap for tap in idle if tap.idle_since_s <= long_ago_s):
                tap.rest()
            awake = any(tap.at >= 0 for tap in idle)
            if not awake:
                self._resting = None
            return awake

    def _forked(self) -> None:
        self._inherited += [tap for idle in self._idle.values() for tap in idle]  # to drop them would destroy them
        self._lock = threading.Lock()
        self._idle = {}
        self._resting = None


def _identity(split: KafkaSplit) -> tuple[str, str, int]:
    return split.topic, split.topic_id, split.partition


def _connection(split: KafkaSplit) -> _Connection:
    return connection_key(split.reading.connection), split.reading.isolation, split.reading.fetch_kb


_TAPS = Taps()
atexit.register(_TAPS.close)


def close_idle() -> None:
    """Close the consumers that nobody reads with, when a cluster of their address is another one from now on."""
    _TAPS.close()


@contextmanager
def never_at_rest() -> Iterator[None]:
    """No thread puts idle consumers to rest while the block lasts: for simulations."""
    rested, _TAPS.rests = _TAPS.rests, False
    try:
        yield
    finally:
        _TAPS.rests = rested
