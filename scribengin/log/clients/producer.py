"""A producer in the style of Kafka's, over logs: topic `t` is the logs `t/0`, `t/1`, and so on.

`send` leaves a record in its partition's batch, and returns. One thread hands a batch to the partition's log when it is
full, when it has lingered long enough, or when somebody flushes; there it is one entry, all of it or nothing.

**When a log's writer fails**, the futures of what was handed to it fail, and nobody knows whether those records are in
the log (they are not sent again, unlike with Kafka's retries). The next batch opens the log again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedOrAborted
from scribengin.base.threads import background, started
from scribengin.errors import InconsistentLog, LogClosed, LogError, LogNotFound, ScribenginError
from scribengin.log import DLSN, PAYLOAD, DlsnRange, LogConfig, LogNamespace
from scribengin.log.clients.partitioners import Partitioner, hash_partitioner, partition_logs, split_rows
from scribengin.log.clients.stream import LogStream, Outstanding, for_each
from scribengin.log.format.records import check_size

_RECORD_OVERHEAD_BYTES = 24
"""What a record takes in an entry beside its value and key, at most."""
_ENTRY_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written."""

    topic: str
    partition: int
    dlsn: DLSN


OnDelivery = Callable[[BaseException | None, RecordMetadata | None], object]
"""Told of the failure, or of where the record was written. On a thread of the log's or the producer's: it must not
raise, block, or call the producer."""


class _Topic:
    """The partitions of a topic, as they were when it was first used."""

    def __init__(self, name: str, configs: list[LogConfig]) -> None:
        self.configs = configs
        self.logs = partition_logs(name, len(configs))
        self.next_partition = 0


class _Batch:
    """Records that will be one entry. Guarded by the producer's lock until it is taken."""

    def __init__(self, topic: str, partition: int, log: str, bytes_max: int, due_s: float) -> None:
        self.topic = topic
        self.partition = partition
        self.log = log
        self.bytes_max = bytes_max
        self.due_s = due_s
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._futures: list[Future[RecordMetadata]] = []
        self.size_bytes = 0
        self.dropped = False
        """Whether the producer ended before it was sent."""

    def takes(self, size: int) -> bool:
        return not self._values or self.size_bytes + size <= self.bytes_max

    def add(self, key: bytes | None, value: bytes, size: int) -> Future[RecordMetadata]:
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()  # as a log's own futures: it cannot be called back
        self._keys.append(key)
        self._values.append(value)
        self._futures.append(future)
        self.size_bytes += size
        return future

    def write(self, stream: LogStream) -> Future[DlsnRange]:
        """Raises as `LogWriter.write_atomic`. A single record may be larger than an entry."""
        columns = {"key": pa.array(self._keys, pa.binary()), PAYLOAD: pa.array(self._values, pa.binary())}
        return stream.writer.write_atomic(pa.record_batch(columns))

    def written(self, first: DLSN) -> None:
        for slot, future in enumerate(self._futures):
            dlsn = first if first == DLSN.INVALID else first._replace(slot=first.slot + slot)
            future.set_result(RecordMetadata(self.topic, self.partition, dlsn))

    def fail(self, error: BaseException) -> None:
        for future in self._futures:
            future.set_exception(error)


class LogProducer(ClosedOrAborted):
    """Sends records to topics, as the only writer of their logs; a log is opened at the first record for it.
    Thread-safe."""

    def __init__(
        self,
        namespace: LogNamespace,
        *,
        partitioner: Partitioner = hash_partitioner,
        linger_ms: float = 5.0,
        batch_bytes: int = 128 * 1024,
        buffer_bytes_max: int = 32 * 1024 * 1024,
        timeout_s: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """A batch is sent after `linger_ms` or at `batch_bytes`. With `buffer_bytes_max` under way, `send` waits.
        `timeout_s` is how long the lock of a log is waited for."""
        self._namespace = namespace
        self._partitioner = partitioner
        self._clock = clock
        self._timeout_s = timeout_s
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._buffer_bytes_max = buffer_bytes_max
        self._outstanding = Outstanding()
        self._delivering = threading.local()
        """Whether this thread is in an `on_delivery`."""
        self._changed = threading.Condition()
        """Guards everything below."""
        self._topics: dict[str, _Topic] = {}
        self._streams: dict[str, LogStream] = {}
        self._open: dict[str, _Batch] = {}
        """The batch of each log that still takes records."""
        self._ready: deque[_Batch] = deque()
        self._sending: _Batch | None = None
        self._buffered_bytes = 0
        self._failure: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions, as they were when the producer first used it. Raises LogNotFound (it
        has none), InconsistentLog (one in between is missing)."""
        return list(range(len(self._topic(topic).logs)))

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Send one record: to `partition`, or to the one of its key, or without either to the next in turn.

        Raises LogNotFound (no such topic or partition), RecordTooLarge, LogError (no bytes), LogClosed. The future
        raises what opening or writing the log raised.
        """
        chosen = self._topic(topic)
        number = self._partition(chosen, topic, key, partition)
        log, config = chosen.logs[number], chosen.configs[number]
        if not isinstance(value, bytes) or not isinstance(key, bytes | None):
            raise LogError(f"topic '{topic}': value and key are bytes: {value!r:.100}, {key!r:.100}")
        check_size(log, PAYLOAD, len(value), config)
        check_size(log, "key", len(key or b""), config)
        future = self._buffer(topic, number, log, config, key, value)
        if on_delivery is not None:
            future.add_done_callback(lambda done: self._deliver(done, on_delivery))
        return future

    def flush(self) -> None:
        """Send what lingers, and wait until all that was sent before is acknowledged or has failed. Raises the first
        failure since the last call that raised one, LogClosed if it was aborted meanwhile, and LogError in
        `on_delivery`, which would wait for itself."""
        self._check_not_delivering()
        with self._changed:
            self._check_running()
            self._ready.extend(self._open.values())
            self._open.clear()
            waiting = [*self._ready, *([] if self._sending is None else [self._sending])]
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(self._is_unsent(batch) for batch in waiting))
            writers = [stream.writer for stream in self._streams.values()]
            ended = [self._check_running] if any(batch.dropped for batch in waiting) else []
        flushes = [writer.flush for writer in writers if not writer.failed]
        for_each([*flushes, self._outstanding.wait, *ended])  # the end of the producer is said, not that of its writers

    def close(self) -> None:
        """Flush, and give all logs back. Idempotent. Raises as `flush`."""
        self._check_not_delivering()
        if not self._closed:
            for_each([self.flush, lambda: self._stop(lambda stream: stream.close)])

    def abort(self) -> None:
        """Give all logs back without sending what lingers: its futures raise LogClosed. Idempotent."""
        self._stop(lambda stream: stream.abort)

    def _topic(self, name: str) -> _Topic:
        with self._changed:
            if name not in self._topics:
                self._topics[name] = _Topic(name, self._configs(name))
            return self._topics[name]

    def _configs(self, topic: str) -> list[LogConfig]:
        suffixes = [log.removeprefix(f"{topic}/") for log in self._namespace.names(f"{topic}/")]
        numbers = sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())
        if not numbers:
            raise LogNotFound(f"there is no topic '{topic}': create the logs of its partitions, {topic}/0 and so on")
        if numbers != list(range(len(numbers))):
            raise InconsistentLog(f"topic '{topic}' has the partitions {numbers}: create those that are missing")
        return [self._namespace.info(log).log.config for log in partition_logs(topic, len(numbers))]

    def _partition(self, topic: _Topic, name: str, key: bytes | None, partition: int | None) -> int:
        count = len(topic.logs)
        if partition is not None:
            if not 0 <= partition < count:
                raise LogNotFound(f"topic '{name}' has no partition {partition}: it has 0 to {count - 1}")
            return partition
        with self._changed:
            turn = topic.next_partition
            chosen, topic.next_partition = split_rows(pa.array([key], pa.binary()), count, self._partitioner, turn)
        return int(chosen[0])

    def _buffer(
        self, topic: str, partition: int, log: str, config: LogConfig, key: bytes | None, value: bytes
    ) -> Future[RecordMetadata]:
        size = len(value) + len(key or b"") + _RECORD_OVERHEAD_BYTES
        with self._changed:
            self._changed.wait_for(lambda: self._buffered_bytes < self._buffer_bytes_max or not self._running)
            self._check_running()
            self._start()
            batch = self._open.get(log)
            if batch is None or not batch.takes(size):
                if batch is not None:
                    self._ready.append(batch)
                limit = min(self._batch_bytes, config.entry_bytes_max - _ENTRY_OVERHEAD_BYTES)
                due_s = self._clock.monotonic_s() + self._linger_s
                batch = self._open[log] = _Batch(topic, partition, log, limit, due_s)
                self._changed.notify_all()
            future = batch.add(key, value, size)
            self._buffered_bytes += size
            if batch.size_bytes >= batch.bytes_max:
                self._ready.append(self._open.pop(log))
                self._changed.notify_all()
        return future

    def _start(self) -> None:
        """Before anything is queued: raises what the system does that has no thread."""
        if self._thread is None:
            self._thread = started(background("log-producer", self._run))

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                self._send(batch)
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: recorded, later calls raise it
            self._fail(error)

    def _take(self) -> _Batch | None:
        """The next batch, once one is due; None when the producer ends."""
        with self._changed:
            self._sending = None
            self._changed.notify_all()
            while not self._closed:
                now_s = self._clock.monotonic_s()
                for log in [log for log, batch in self._open.items() if batch.due_s <= now_s]:
                    self._ready.append(self._open.pop(log))
                if self._ready:
                    self._sending = self._ready.popleft()
                    return self._sending
                due_s = min((batch.due_s for batch in self._open.values()), default=None)
                self._changed.wait(None if due_s is None else due_s - now_s)
            return None

    def _send(self, batch: _Batch) -> None:
        """Hand a batch to its log. Its records are counted as under way until it is answered."""
        answered: Future[None] = self._outstanding.promise()
        try:
            answer = batch.write(self._stream(batch.log))
        except ScribenginError as error:
            self._failed(batch, answered, error)
            return
        except BaseException as error:
            self._failed(batch, answered, error)
            raise
        answer.add_done_callback(lambda done: self._answered(batch, answered, done))

    def _answered(self, batch: _Batch, answered: Future[None], answer: Future[DlsnRange]) -> None:
        error = answer.exception()
        if error is not None:
            self._failed(batch, answered, error)
            return
        batch.written(answer.result().first)
        answered.set_result(None)
        self._make_room(batch)

    def _failed(self, batch: _Batch, answered: Future[None], error: BaseException) -> None:
        batch.fail(error)
        answered.set_exception(error)
        self._make_room(batch)

    def _make_room(self, batch: _Batch) -> None:
        with self._changed:
            self._buffered_bytes -= batch.size_bytes
            self._changed.notify_all()

    def _stream(self, log: str) -> LogStream:
        """The log, open; opened again if its writer has failed. Only the sending thread opens. Raises as
        `LogNamespace.open_writer`."""
        stream = self._streams.get(log)
        if stream is None:
            stream = LogStream(self._namespace, log, timeout_s=self._timeout_s)
            with self._changed:
                self._streams[log] = stream
        else:
            stream.reopen(timeout_s=self._timeout_s)
        return stream

    def _is_unsent(self, batch: _Batch) -> bool:
        return self._running and (batch is self._sending or batch in self._ready)

    @property
    def _running(self) -> bool:
        return not self._closed and self._failure is None

    def _check_running(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise LogClosed("the producer is closed; make a new one")

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._sending = None  # what it was sending has been answered
            left = self._take_all()
            self._changed.notify_all()
        for batch in left:
            batch.fail(error)

    def _stop(self, end: Callable[[LogStream], Callable[[], None]]) -> None:
        """End the thread, then every stream whose writer has not failed as `end` says."""
        with self._changed:
            self._closed = True
            left = self._take_all()
            self._changed.notify_all()
        for batch in left:
            batch.fail(LogClosed("the producer was closed before this record was sent; make a new one"))
        if self._thread is not None:
            self._thread.join()
        for_each(stream.abort if stream.writer.failed else end(stream) for stream in self._streams.values())

    def _take_all(self) -> list[_Batch]:
        left = [*self._ready, *self._open.values()]
        for batch in left:
            batch.dropped = True
        self._ready.clear()
        self._open.clear()
        return left

    def _deliver(self, done: Future[RecordMetadata], on_delivery: OnDelivery) -> None:
        error = done.exception()
        self._delivering.here = True
        try:
            on_delivery(error, None if error is not None else done.result())
        finally:
            self._delivering.here = False

    def _check_not_delivering(self) -> None:
        """What is told of a record is told by a thread that others of the producer wait for."""
        if getattr(self._delivering, "here", False):
            raise LogError("a producer is not flushed or closed in `on_delivery`: do it in another thread")
