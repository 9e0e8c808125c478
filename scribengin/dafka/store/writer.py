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
from scribengin.dafka.store.failures import PASSING, TRIED_AGAIN_S, LogFailure, LogFailures, next_try_s
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.times import keys_of
from scribengin.dafka.wire import Message
from scribengin.errors import InconsistentLog
from scribengin.log import PAYLOAD, DlsnRange, LogWriter

_IDLE_S = 60.0


@dataclass
class _OpenLog:
    """The writer of a partition's log, the sequence that it wants next, when it last wrote, and the last time that it
    has written down. One that was `given_up` is not listened to any more: what it has written all the same is found
    when the log is opened again."""

    writer: LogWriter
    next: int
    used_s: float
    given_up: bool = False
    stamped_ms: int = -1


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
        self._giving_back: dict[DafkaPartition, LogWriter] = {}
        """Writers that were given up, whose locks could not be given back yet."""
        self._give_back_s = 0.0
        self._written: deque[_Written] = deque()
        state = logs.state
        super().__init__("store", state.writer, config, state.writer_prefixes(), hears=False, by_peer=False)
        self.start()

    def close(self) -> None:
        """Idempotent. Raises what the last log that cannot be closed raises, with all closed."""
        super().close()
        logs, given_up = list(self._open_logs.values()), list(self._giving_back.values())
        self._open_logs.clear()
        self._giving_back.clear()
        with ExitStack() as closing:
            for log in logs:
                closing.callback(log.writer.close)
            for writer in given_up:
                closing.callback(writer.abort)

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Records and heads."""
        with self._logs.lock:
            done = self._logs.state.messages(messages, now_s)
        self._do(done, now_s)

    def on_tick(self, now_s: float) -> None:
        """Fetch again what did not come, look again at logs that could not be read, and let go of those that nothing
        comes for."""
        self._logs.look_again(now_s)
        with self._logs.lock:
            done = self._logs.state.tick(now_s)
        self._do(done, now_s)
        for partition, log in list(self._open_logs.items()):
            if now_s - log.used_s > _IDLE_S:
                try:
                    log.writer.close()
                except PASSING as error:
                    self._refuse(partition, error, now_s)
                else:
                    del self._open_logs[partition]
        self._give_back(now_s)

    def _give_back(self, now_s: float) -> None:
        """Try now and then to give the locks back of logs that were given up: nothing may ever come for them again."""
        if not self._giving_back or now_s < self._give_back_s:
            return
        begun_s = SYSTEM_CLOCK.monotonic_s()
        for partition, given_up in list(self._giving_back.items()):
            try:
                given_up.abort()
            except PASSING:  # nor does the registry answer about the others
                break
            del self._giving_back[partition]
            self.failures.worked(partition)
        self._give_back_s = next_try_s(now_s, SYSTEM_CLOCK.monotonic_s() - begun_s)

    def on_wake(self) -> None:
        """Acknowledge what is durable by now: the last of each partition. What has failed is refused after that: it
        goes back to behind what was acknowledged."""
        durable: dict[DafkaPartition, _Written] = {}
        failed: dict[DafkaPartition, LogFailure] = {}
        while self._written:
            written = self._written.popleft()
            if written.log.given_up or written.partition in failed:
                continue
            error = None if written.future is None else written.future.exception()
            if isinstance(error, PASSING):
                failed[written.partition] = error
                continue
            if error is not None:
                raise error
            before = durable.get(written.partition)
            durable[written.partition] = written if before is None else written._replace(first=before.first)
        for partition in durable:
            self.failures.worked(partition)
        with self._logs.lock:
            acks = [ack for one in durable.values() for ack in self._logs.state.durable(*one[:3])]
        self.send(acks)
        for partition, error in failed.items():
            self._refuse(partition, error, SYSTEM_CLOCK.monotonic_s())

    def _do(self, instructions: Iterable[object], now_s: float) -> None:
        done = list(instructions)
        for one in done:
            if isinstance(one, Append):
                try:
                    self._append(one, now_s)
                except PASSING as error:
                    self._refuse(one.partition, error, now_s)
            elif isinstance(one, HaltPartition):
                self.halted.append(one)
        self.send(done)

    def _append(self, append: Append, now_s: float) -> None:
        partition, first, contents = append
        log = self._open_logs.get(partition)
        if log is None:
            if (given_up := self._giving_back.get(partition)) is not None:
                given_up.abort()
                del self._giving_back[partition]
            log = self._open_logs[partition] = _OpenLog(*self._logs.open_writer(partition), now_s)
        log.used_s = now_s
        end = first + len(contents)
        if 0 < log.next < first:
            raise InconsistentLog(
                f"log '{self._logs.name(partition)}' ends before record {log.next}, and {first - 1} was acknowledged"
            )
        known = min(max(0, log.next - first), len(contents))
        future: Future[DlsnRange] | None = None
        if known < len(contents):
            future = log.writer.write_bulk(_rows(first + known, contents[known:], log))
            log.next = end
        written = _Written(partition, first, end, log, future)
        if future is None:
            self._wrote(written)
        else:
            future.add_done_callback(lambda _: self._wrote(written))

    def _refuse(self, partition: DafkaPartition, error: LogFailure, now_s: float) -> None:
        """The log of that partition has failed. Raises what is none of that log alone."""
        self.failures.failed(partition, error)
        with self._logs.lock:
            self._logs.state.refuse(partition, now_s + TRIED_AGAIN_S)
        log = self._open_logs.pop(partition, None)
        if log is not None:
            log.given_up = True
            try:
                log.writer.abort()
            except PASSING:  # its lock is held for as long, and the session lives on
                self._giving_back[partition] = log.writer

    def _wrote(self, written: _Written) -> None:
        self._written.append(written)
        with self.lock:
            self.wake()


def _rows(first: int, contents: list[bytes], log: _OpenLog) -> pa.RecordBatch:
    """Records as they are appended at once, with the time, unless that is the one of before."""
    now_ms = SYSTEM_CLOCK.now_ms()
    is_later = now_ms > log.stamped_ms
    log.stamped_ms = max(now_ms, log.stamped_ms)
    txids = pa.array(np.arange(first, first + len(contents), dtype=np.int64))
    columns = [txids, keys_of(len(contents), now_ms if is_later else None), pa.array(contents, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["txid", "key", PAYLOAD])
