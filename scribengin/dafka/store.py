"""A store over the log store: a partition is a log, and a record is acknowledged once it is durable there.

The log of a partition is `<prefix>/<topic>/<producer>`, and a record's transaction id is its sequence. So the logs say
themselves how far a store has come: it keeps nothing else. What was written and not acknowledged when a store died is
found when it starts again, and acknowledged when it comes again.

It is two roles, as the C store: the writer takes and acknowledges, the reader answers. They share what is stored.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.closing import ClosedAtExit
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role, new_address
from scribengin.dafka.state import Append, DafkaPartition, HaltPartition, ReadStored, Send, StoredRange, StoreState
from scribengin.dafka.wire import (
    DirectBatch,
    DirectRecord,
    Message,
    Subscription,
    Truncated,
    pack_place,
    packed_groups,
    record_prefix,
)
from scribengin.errors import EndOfStream, PositionTruncated
from scribengin.log import PAYLOAD, DlsnRange, LogConfig, LogNamespace, LogReader, LogWriter, TransactionId

_ANSWERS_MAX = 1000
_RECORDS_AT_ONCE = 2000
_ASKS_ON_S = 2.0
_IDLE_S = 60.0
_LOCK_WAIT_S = 60.0
"""Longer than sessions of the registry last after their process was killed."""


class _Written(NamedTuple):
    """Records of a partition that were appended: durable, or failed. No future: they were there already."""

    partition: DafkaPartition
    first: int
    end: int
    future: Future[DlsnRange] | None


class StoredPartitions:
    """The logs of a store, and what it decides by. `lock` is held by whichever role uses `state`."""

    def __init__(
        self, namespace: LogNamespace, prefix: str, log_config: LogConfig | None, *, take_over: bool, batches: bool
    ) -> None:
        self.namespace = namespace
        self.lock = threading.Lock()
        self._prefix = prefix
        self._log_config = log_config
        self._take_over = take_over
        self.state = StoreState(new_address(), new_address(), self._found(), batches=batches)

    def name(self, partition: DafkaPartition) -> str:
        """The log of a partition."""
        return f"{self._prefix}/{quote(partition.subject, safe='')}/{quote(partition.address, safe='')}"

    def open_writer(self, partition: DafkaPartition) -> tuple[LogWriter, int]:
        """The writer of a partition's log, which is made if it is not there, and the sequence that comes next in it:
        what a store wrote that died before it was told so, is recovered, and comes a second time."""
        name = self.name(partition)
        if not self.namespace.exists(name):
            self.namespace.create(name, self._log_config)
        writer = self.namespace.open_writer(name, timeout_s=_LOCK_WAIT_S, steal=self._take_over)
        last = self.namespace.last_record(name)
        return writer, 0 if last is None else last.txid + 1

    def open_reader(self, partition: DafkaPartition, sequence: int) -> LogReader:
        """A reader of a partition's log, from that sequence on."""
        return self.namespace.open_reader(self.name(partition), TransactionId(sequence))

    def _found(self) -> dict[DafkaPartition, StoredRange]:
        found = {}
        for name in self.namespace.names(f"{self._prefix}/"):
            subject, address = name.removeprefix(f"{self._prefix}/").split("/")
            last = self.namespace.last_record(name)
            if last is not None:
                with self.namespace.open_reader(name) as reader:
                    first = reader.read(1)[0].txid
                found[DafkaPartition(unquote(subject), unquote(address))] = StoredRange(first, last.txid + 1)
        return found


class DafkaStore(ClosedAtExit):
    """Stores all topics from when it is made until `close`. The namespace stays open: it is the caller's.

    Two stores have namespaces of their own, or prefixes. Logs that it makes are as `log_config` says. A store that was
    killed holds its logs until its session with the registry ends, and another waits for that; with `take_over` it
    does not, and fences whoever has them. Raises what the log store raises.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        config: DafkaConfig | None = None,
        *,
        prefix: str = "dafka",
        log_config: LogConfig | None = None,
        take_over: bool = False,
    ) -> None:
        config = config or DafkaConfig()
        self._logs = StoredPartitions(namespace, prefix, log_config, take_over=take_over, batches=config.batches)
        self._writer = StoreWriter(self._logs, config)
        self._reader = StoreReader(self._logs, config)

    @property
    def address(self) -> str:
        """The address that it acknowledges from."""
        return self._writer.address

    @property
    def stored(self) -> dict[DafkaPartition, StoredRange]:
        """What is durable of each partition."""
        with self._logs.lock:
            return dict(self._logs.state.stored)

    @property
    def halted(self) -> list[HaltPartition]:
        """Partitions that it cannot go on with: what comes next, nobody keeps any more."""
        return list(self._writer.halted)

    def check(self) -> None:
        """Raises DafkaClosed if the store has ended, with why."""
        self._writer.check_open()
        self._reader.check_open()

    def close(self) -> None:
        """Leave the network, and end the logs' writers. Idempotent."""
        self._reader.close()
        self._writer.close()


@dataclass
class _OpenLog:
    """The writer of a partition's log, the sequence that it wants next, and when it last wrote."""

    writer: LogWriter
    next: int
    used_s: float


class StoreWriter(Role):
    """Takes what is published, appends it to logs, and acknowledges it."""

    def __init__(self, logs: StoredPartitions, config: DafkaConfig) -> None:
        self.halted: list[HaltPartition] = []
        self._logs = logs
        self._open_logs: dict[DafkaPartition, _OpenLog] = {}
        self._written: deque[_Written] = deque()
        state = logs.state
        super().__init__("store", state.writer, config, state.writer_prefixes(), hears=False, by_peer=False)
        self.start()

    def close(self) -> None:
        """Idempotent."""
        super().close()
        for log in self._open_logs.values():
            log.writer.close()
        self._open_logs.clear()

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Records and heads."""
        with self._logs.lock:
            done = self._logs.state.messages(messages, now_s)
        self._do(done, now_s)

    def on_tick(self, now_s: float) -> None:
        """Fetch again what did not come, and let go of logs that nothing comes for."""
        with self._logs.lock:
            done = self._logs.state.tick(now_s)
        self._do(done, now_s)
        for partition, log in list(self._open_logs.items()):
            if now_s - log.used_s > _IDLE_S:
                del self._open_logs[partition]
                log.writer.close()

    def on_wake(self) -> None:
        """Acknowledge what is durable by now: the last of each partition."""
        durable: dict[DafkaPartition, _Written] = {}
        while self._written:
            written = self._written.popleft()
            if written.future is not None:
                written.future.result()
            before = durable.get(written.partition)
            durable[written.partition] = written if before is None else written._replace(first=before.first)
        with self._logs.lock:
            acks = [ack for one in durable.values() for ack in self._logs.state.durable(*one[:3])]
        self.send(acks)

    def _do(self, instructions: Iterable[object], now_s: float) -> None:
        done = list(instructions)
        for one in done:
            if isinstance(one, Append):
                self._append(one, now_s)
            elif isinstance(one, HaltPartition):
                self.halted.append(one)
        self.send(done)

    def _append(self, append: Append, now_s: float) -> None:
        partition, first, contents = append
        log = self._open_logs.get(partition)
        if log is None:
            log = self._open_logs[partition] = _OpenLog(*self._logs.open_writer(partition), now_s)
        log.used_s = now_s
        end = first + len(contents)
        known = min(max(0, log.next - first), len(contents))
        future: Future[DlsnRange] | None = None
        if known < len(contents):
            txids = pa.array(np.arange(first + known, end, dtype=np.int64))
            batch = pa.RecordBatch.from_arrays([txids, pa.array(contents[known:], pa.binary())], ["txid", PAYLOAD])
            future = log.writer.write_bulk(batch)
            log.next = end
        written = _Written(partition, first, end, future)
        if future is None:
            self._wrote(written)
        else:
            future.add_done_callback(lambda _: self._wrote(written))

    def _wrote(self, written: _Written) -> None:
        self._written.append(written)
        with self.lock:
            self.wake()


_Asked = tuple[str, DafkaPartition]
"""Who asks, and for what."""


@dataclass
class _Answering:
    """What a requester still is to get: sequences from `next` up to `end`, from where `reader` stands. It was read from
    last at `used_s`."""

    next: int
    end: int
    reader: LogReader
    used_s: float = 0.0


class FoundStored(NamedTuple):
    """Records that a requester has asked for: sequences from `first` on, as the log has them."""

    to: str
    partition: DafkaPartition
    first: int
    batch: pa.RecordBatch


class StoredAnswers:
    """What requesters still are to get of what is stored, each with a reader of its own.

    Who asks again is answered from there; who asks for what follows, behind the rest, and from the same reader. So
    readers that have read all wait for a while. They give way to those with work: `answers_max` counts both.
    """

    def __init__(self, logs: StoredPartitions, *, answers_max: int = _ANSWERS_MAX) -> None:
        self._logs = logs
        self._answers_max = answers_max
        self._due: dict[_Asked, _Answering] = {}
        self._waiting: dict[_Asked, _Answering] = {}
        """Those that have read all, in the order in which they have."""

    @property
    def readers(self) -> int:
        """How many readers are open."""
        return len(self._due) + len(self._waiting)

    @property
    def has_due(self) -> bool:
        """Whether anybody is still to get some."""
        return bool(self._due)

    def begin(self, asked: ReadStored) -> None:
        """Somebody has asked. If there are too many, he has to ask again. Raises what the log store raises."""
        key = (asked.to, asked.partition)
        end = asked.sequence + asked.records
        answer = self._due.get(key) or self._waiting.pop(key, None)
        if answer is not None:
            self._due[key] = answer
            if answer.end == asked.sequence:
                answer.end = end
                return
            self._end(self._due, key)
        if self.readers >= self._answers_max and self._waiting:
            self._end(self._waiting, next(iter(self._waiting)))
        if self.readers < self._answers_max:
            self._due[key] = _Answering(asked.sequence, end, self._logs.open_reader(asked.partition, asked.sequence))

    def read(self, now_s: float) -> Iterator[FoundStored | Truncated]:
        """A few records for each who is to get some, or what he is to be told instead. Raises what the log store
        raises."""
        for key, answer in list(self._due.items()):
            batch = _batch(answer)
            if batch is None:
                self._end(self._due, key)
                continue
            to, partition = key
            first, last = (batch.column("txid")[n].as_py() for n in (0, -1))
            if first > answer.next:  # truncated meanwhile
                self._end(self._due, key)
                yield Truncated(to, partition.address, partition.subject, first)
                continue
            answer.next = last + 1
            answer.used_s = now_s
            if answer.next >= answer.end:
                self._waiting[key] = self._due.pop(key)
            yield FoundStored(to, partition, first, batch)

    def tick(self, now_s: float) -> None:
        """Let go of readers that nobody asks on."""
        for key, answer in list(self._waiting.items()):
            if now_s - answer.used_s <= _ASKS_ON_S:
                break
            self._end(self._waiting, key)

    def close(self) -> None:
        """Let go of all readers."""
        for answers in (self._due, self._waiting):
            for key in list(answers):
                self._end(answers, key)

    @staticmethod
    def _end(answers: dict[_Asked, _Answering], key: _Asked) -> None:
        answers.pop(key).reader.close()


def _batch(answer: _Answering) -> pa.RecordBatch | None:
    """What comes next in the log. None: nothing, or the reader stands where the log was truncated, or has ended. Who
    asked, asks again in a while, and a new reader finds what is left."""
    try:
        batch = answer.reader.read_batch(min(_RECORDS_AT_ONCE, answer.end - answer.next), place=False)
    except (PositionTruncated, EndOfStream):
        return None
    return batch if batch is not None and batch.num_rows else None


class StoreReader(Role):
    """Answers who asks for records and heads."""

    def __init__(self, logs: StoredPartitions, config: DafkaConfig) -> None:
        self._logs = logs
        self._answers = StoredAnswers(logs)
        state = logs.state
        super().__init__("store", state.reader, config, state.reader_prefixes(), hears=True, by_peer=False)
        self.start()

    def close(self) -> None:
        """Idempotent."""
        super().close()
        self._answers.close()

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Questions."""
        with self._logs.lock:
            done = [one for message in messages for one in self._logs.state.asked(message)]
        self.send(done)
        for one in done:
            if isinstance(one, ReadStored):
                self._answers.begin(one)
        self._wake_if_asked()

    def on_subscription(self, heard: Subscription) -> None:
        """A consumer that is connected now."""
        with self._logs.lock:
            done = self._logs.state.subscription(heard)
        self.send(done)

    def on_wake(self) -> None:
        """A few records for each that waits for some."""
        for one in self._answers.read(SYSTEM_CLOCK.monotonic_s()):
            if isinstance(one, FoundStored):
                self._publish(*one)
            else:
                with self._logs.lock:
                    self._logs.state.truncated(DafkaPartition(one.subject, one.address), one.sequence)
                self.send([Send(one)])
        self._wake_if_asked()

    def on_tick(self, now_s: float) -> None:
        """Let go of readers that nobody asks on."""
        self._answers.tick(now_s)

    def _wake_if_asked(self) -> None:
        if self._answers.has_due:
            with self.lock:
                self.wake()

    def _publish(self, to: str, partition: DafkaPartition, first: int, batch: pa.RecordBatch) -> None:
        subject, address = partition
        txids = batch.column("txid")
        if self._logs.state.answers_in_batches(to) and txids[-1].as_py() - first + 1 == batch.num_rows:
            self._publish_batches(to, partition, first, batch.column(PAYLOAD))
        else:
            prefix = record_prefix(DirectRecord, to, address, subject)
            self.publish_records(prefix, txids.to_pylist(), batch.column(PAYLOAD).to_pylist())

    def _publish_batches(self, to: str, partition: DafkaPartition, first: int, contents: pa.Array) -> None:
        """Out of what was read, without an object for each record. One that fills a frame goes as to everybody."""
        subject, address = partition
        one, many = (record_prefix(kind, to, address, subject) for kind in (DirectRecord, DirectBatch))
        sequence = first
        for records, packed in packed_groups(contents):
            if records == 1:
                self.publish_records(one, [sequence], [contents[sequence - first].as_py()])
            else:
                self.publish_frames([many + pack_place(sequence, records), packed])
            sequence += records
