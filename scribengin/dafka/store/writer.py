"""The role of a store that takes what is published, appends it to logs, and acknowledges it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role
from scribengin.dafka.state import Append, DafkaPartition, HaltPartition
from scribengin.dafka.store.failures import LogFailures
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.wire import Message
from scribengin.errors import LogError
from scribengin.log import PAYLOAD, DlsnRange, LogWriter

_IDLE_S = 60.0
_TRIED_AGAIN_S = 2.0
"""A log that has failed is left alone for so long."""


@dataclass
class _OpenLog:
    """The writer of a partition's log, the sequence that it wants next, and when it last wrote. One that was `given_up`
    is not listened to any more: what it has written all the same is found when the log is opened again."""

    writer: LogWriter
    next: int
    used_s: float
    given_up: bool = False


class _Written(NamedTuple):
    """Records of a partition that were appended: durable, or failed. No future: they were there already."""

    partition: DafkaPartition
    first: int
    end: int
    log: _OpenLog
    future: Future[DlsnRange] | None


class StoreWriter(Role):
    """Takes what is published, appends it to logs, and acknowledges it. A partition whose log fails goes back to what
    is durable of it, and is taken again after a while: producers keep what was not acknowledged."""

    def __init__(self, logs: StoredPartitions, config: DafkaConfig) -> None:
        self.halted: list[HaltPartition] = []
        self.failures = LogFailures()
        self._logs = logs
        self._open_logs: dict[DafkaPartition, _OpenLog] = {}
        self._written: deque[_Written] = deque()
        state = logs.state
        super().__init__("store", state.writer, config, state.writer_prefixes(), hears=False, by_peer=False)
        self.start()

    def close(self) -> None:
        """Idempotent. Raises what the last log that cannot be closed raises, with all closed."""
        super().close()
        logs = list(self._open_logs.values())
        self._open_logs.clear()
        with ExitStack() as closing:
            for log in logs:
                closing.callback(log.writer.close)

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
                try:
                    log.writer.close()
                except LogError as error:
                    self._refuse(partition, error, now_s)
                else:
                    del self._open_logs[partition]

    def on_wake(self) -> None:
        """Acknowledge what is durable by now: the last of each partition."""
        durable: dict[DafkaPartition, _Written] = {}
        while self._written:
            written = self._written.popleft()
            if written.log.given_up:
                continue
            error = None if written.future is None else written.future.exception()
            if isinstance(error, LogError):
                self._refuse(written.partition, error, SYSTEM_CLOCK.monotonic_s())
                continue
            if error is not None:
                raise error
            before = durable.get(written.partition)
            durable[written.partition] = written if before is None else written._replace(first=before.first)
        for partition in durable:
            self.failures.worked(partition)
            self._logs.unreadable.worked(partition)
        with self._logs.lock:
            acks = [ack for one in durable.values() for ack in self._logs.state.durable(*one[:3])]
        self.send(acks)

    def _do(self, instructions: Iterable[object], now_s: float) -> None:
        done = list(instructions)
        for one in done:
            if isinstance(one, Append):
                try:
                    self._append(one, now_s)
                except LogError as error:
                    self._refuse(one.partition, error, now_s)
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
        written = _Written(partition, first, end, log, future)
        if future is None:
            self._wrote(written)
        else:
            future.add_done_callback(lambda _: self._wrote(written))

    def _refuse(self, partition: DafkaPartition, error: LogError, now_s: float) -> None:
        """The log of that partition has failed. Raises what is none of that log alone."""
        log = self._open_logs.pop(partition, None)
        if log is not None:
            log.given_up = True
            log.writer.abort()
        self.failures.failed(partition, error)
        with self._logs.lock:
            self._logs.state.refuse(partition, now_s + _TRIED_AGAIN_S)

    def _wrote(self, written: _Written) -> None:
        self._written.append(written)
        with self.lock:
            self.wake()
