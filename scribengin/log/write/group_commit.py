"""Group commit: a queue of entries, and the thread that writes all that waits there with one call and one fsync.

Beside it stand its parts: what waits in the queue until its group is written, and when it is sent (pure: told the
time).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.threads import FUTURE_BYTES, LightFuture, background
from scribengin.errors import LogBusy, LogClosed, OverCapacity
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import GROUP_ENTRIES_MAX, EncodedEntry, encode
from scribengin.log.format.records import Record, body_of_records, keep_alive_entry, sized_pieces
from scribengin.log.format.sender_marks import GroupRow
from scribengin.log.write.commit_thread import BegunTurn, CommitThread
from scribengin.log.write.limits import WriteLimits
from scribengin.log.write.results import Ack, SlotRange
from scribengin.log.write.segment_chain import BegunAppend, Mark, SegmentChain
from scribengin.log.write.senders import PendingShared, Senders

_GROUP_BYTES_MAX = 16 * 1024 * 1024
"""A larger group would write no faster, and its first record would wait longer. A single batch may be larger."""


class GroupCommit:
    """The queue and its thread. Callers submit under a lock of their own: the order of submission is the log's."""

    def __init__(
        self,
        chain: SegmentChain,
        config: LogConfig,
        log: str,
        *,
        clock: Clock,
        limits: WriteLimits,
        on_completed: Callable[[], None] | None = None,
        senders: Senders | None = None,
        commit_thread: CommitThread | None = None,
    ) -> None:
        """With a `commit_thread`, groups are written on that, and none is started."""
        self._chain = chain
        self._config = config
        self._log = log
        self._clock = clock
        self._limits = limits
        self._metrics = chain.metrics
        self._on_completed = on_completed
        self._senders = senders
        self._group_entries_max = GROUP_ENTRIES_MAX - (senders is not None)  # one is the mark
        self._policy = TransmitPolicy.of(config)
        self._keep_alive_s = config.keep_alive_ms / 1000
        self._changed = threading.Condition()
        """Guards everything below."""
        self._queue: deque[Pending] = deque()
        self._pending_bytes = self._waiting_bytes = 0
        """Memory of all that is not written yet; bytes of bodies in the queue."""
        self._submitted = self._taken = self._finished = self._wanted = 0
        """Items, counted from the first. Up to `_wanted` somebody waits for them."""
        self._waiting_since_s = self._active_s = clock.monotonic_s()
        """When the first of the queue came, when the writer last wrote."""
        self._last_dlsn = DLSN.INVALID
        self._failure: BaseException | None = None
        self._failure_raised = self._stopping = self._held = False
        self._commit_thread = commit_thread
        self._writing: threading.Thread | None = None
        """The thread of the commit thread's that is writing a group of this log."""
        self._begun: BegunGroup | None = None
        """That group, while it is to be made durable and that thread is at other logs."""
        self._thread: threading.Thread | None = None
        if self._keep_alive_s:
            with self._changed:
                self._wake()

    @property
    def unseen_failure(self) -> BaseException | None:
        """What ended the writer, if no call has raised it yet."""
        return None if self._failure_raised else self._failure

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def submit_record(self, record: Record) -> Future[DLSN]:
        """Queue one record. Blocks while too much is pending. Raises OverCapacity, and what ended the writer."""
        size = record.size_bytes
        self._admit(1)
        try:
            with self._changed:
                self._wait_for_room()
                last = self._queue[-1] if self._queue else None
                if isinstance(last, PendingRecords) and last.body_bytes + size <= self._config.entry_bytes_max:
                    item = last
                else:
                    item = PendingRecords(durable=self._config.durable_writes)
                future, held_bytes = item.add(record, size)
                if item is not last:
                    self._enqueue(item)
                self._add_bytes(size, held_bytes)
        except BaseException:
            self._limits.release(1)
            raise
        return future

    def submit_bulk(self, entries: Sequence[EncodedEntry], ack: Ack[Any]) -> None:
        """Queue the entries of one batch. Blocks while too much is pending.

        Raises OverCapacity, and what ended the writer, if nothing of the batch was queued; otherwise the future does.
        """
        records = left = sum(entry.records for entry in entries)
        self._admit(records)
        if not self._config.durable_writes:
            ack.queued(records)
        for start in range(0, len(entries), self._group_entries_max):
            end = start + self._group_entries_max
            item = PendingBulk(entries[start:end], ack, last=end >= len(entries))
            try:
                with self._changed:
                    self._wait_for_room()
                    self._enqueue(item)
                    left -= item.records
                    self._add_bytes(item.body_bytes, item.size_bytes)
            except BaseException as error:
                self._limits.release(left)
                if not start or not isinstance(error, Exception):
                    raise
                ack.fail(error)  # what came before may be written: no caller may take this for "not written"
                return

    def submit_shared(self, sender: bytes, number: int, body: pa.RecordBatch, *, waits: bool = True) -> None:
        """Queue records of a sender, numbered from `number` on. Blocks while too much is pending, if it `waits`.

        Raises OverCapacity, LogBusy (too much is pending), and what ended the writer, if nothing of them was queued.
        """
        assert self._senders is not None, "the writer takes numbers"
        self._admit(body.num_rows)
        try:
            with self._changed:
                if not waits and self._full():
                    told = f"{self._pending_bytes} bytes wait to be written; write again later"
                    raise LogBusy(f"log '{self._log}': {told}")
                self._wait_for_room()
                self._queue_shared(self._senders, sender, number, body)
        except BaseException:
            self._limits.release(body.num_rows)
            raise

    def _queue_shared(self, senders: Senders, sender: bytes, number: int, body: pa.RecordBatch) -> None:
        for piece, size in sized_pieces(body, self._config.entry_bytes_max):
            last = self._queue[-1] if self._queue else None
            if isinstance(last, PendingShared) and last.body_bytes + size <= self._config.entry_bytes_max:
                item = last
            else:
                item = PendingShared(senders)
            item.add(sender, number, piece, size)
            if item is not last:
                self._enqueue(item)
            self._add_bytes(size, size)
            number += piece.num_rows

    def flush(self) -> DLSN:
        """Wait until all that was submitted before is durable. Raises what ended the writer."""
        with self._changed:
            self._flush()
            return self._last_dlsn

    @contextmanager
    def exclusively(self, *, last: bool = False) -> Iterator[SegmentChain]:
        """The chain, with nothing pending. The caller keeps others from submitting. An exception ends the writer.

        With `last` nothing is written afterwards, by the thread neither: no keep-alive follows a seal.
        """
        with self._changed:
            self._held = True  # before the wait: the thread must find nothing to do when it ends
        try:
            self.flush()
            try:
                yield self._chain
            except BaseException as error:
                self._fail(error, [])
                self._failure_raised = True
                raise
        finally:
            with self._changed:
                self._held = last
                self._active_s = self._clock.monotonic_s()
                self._wake()
        self._tell_completed()

    def end(self, error: BaseException) -> None:
        """Let the writer fail with `error`, unless it has failed already: it has lost the log. From any thread."""
        self._fail(error, [])

    def raise_failure(self) -> None:
        """Raise what ended the writer, if anything did."""
        if self._failure is not None:
            self._failure_raised = True
            raise self._failure

    def stop(self) -> None:
        """End the thread after the group it is writing. What is still queued fails with LogClosed."""
        with self._changed:
            self._stopping = True
            dropped = list(self._queue)
            self._queue.clear()
            if self._begun is not None and self._writing is threading.current_thread():
                dropped = [*self._begun.group, *dropped]  # called back by another log: that thread cannot wait for it
                self._begun = self._writing = None
            self._changed.notify_all()
        self._drop(dropped, self._closed())
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._writing is not threading.current_thread():
            with self._changed:
                self._changed.wait_for(lambda: self._writing is None)

    @property
    def quick(self) -> bool:
        """As `TakesTurns.quick`."""
        return self._chain.quick

    def turn(self) -> float | BegunGroup | None:
        """On the commit thread: write the group that is due now, if one is. As `TakesTurns.turn`."""
        with self._changed:
            if self._stopping or self._failure is not None:
                return None
            wait_s = self._wait_s()
            if wait_s != 0:
                return wait_s
            group = self._group()
            self._writing = threading.current_thread()
        begun = self._begin_commit(group)
        if begun is not None:
            with self._changed:
                self._begun = begun
            return begun
        return self._turn_ended()

    def end_turn(self, begun: BegunGroup, fdatasync: Callable[[int], object] | None) -> float | None:
        """On the same thread. As `BegunTurn.end`."""
        with self._changed:
            if self._begun is not begun:
                return None  # it was stopped by what another log's group called back, on this thread
            self._begun = None
        written = self._end_commit(begun, fdatasync)
        wait_s = self._turn_ended()
        # By itself it looks once more, at once: who was answered writes its next meanwhile, and need wake up nobody.
        return 0.0 if written and fdatasync is None else wait_s

    def _turn_ended(self) -> float | None:
        """When the next turn is due. Who wakes the log from here on is heard by the commit thread."""
        with self._changed:
            self._writing = None
            self._changed.notify_all()
            return None if self._stopping or self._failure is not None else self._wait_s()

    def _admit(self, records: int) -> None:
        """Count records as unacknowledged. Raises OverCapacity."""
        if not self._limits:
            return
        try:
            within = self._limits.acquire(records)
        except OverCapacity:
            self._metrics.over_capacity(records)
            raise
        if not within:
            self._metrics.over_capacity(records)

    def _flush(self) -> None:
        wanted = self._wanted = self._submitted
        self._wake()
        self._changed.wait_for(lambda: self._finished >= wanted or self._failure is not None or self._stopping)
        self.raise_failure()
        if self._finished < wanted:
            raise self._closed()

    def _wait_for_room(self) -> None:
        """Returns once there is room. Raises why there never will be. The caller holds the condition."""
        while self._full():
            self._changed.wait()
        self.raise_failure()
        if self._stopping:
            raise self._closed()

    def _full(self) -> bool:
        """Whether there is no room yet. The caller holds the condition."""
        return self._pending_bytes >= self._config.pending_bytes_max and self._failure is None and not self._stopping

    def _closed(self) -> LogClosed:
        return LogClosed(f"log '{self._log}': the writer was closed before this was written; open a new one")

    def _enqueue(self, item: Pending) -> None:
        """Raises what is in the way of a thread that writes it; then it is not queued. The caller holds the condition,
        which the thread waits for before it looks."""
        self._begin()
        if self._policy.delays and not self._queue:
            self._waiting_since_s = self._clock.monotonic_s()
        self._queue.append(item)
        self._submitted += 1
        self._changed.notify_all()

    def _add_bytes(self, body_bytes: int, held_bytes: int) -> None:
        self._waiting_bytes += body_bytes
        self._pending_bytes += held_bytes
        if self._policy.delays and self._wait_s() == 0:
            self._wake()

    def _wake(self) -> None:
        """Something may be due, or due earlier than it was."""
        if self._queue or self._keep_alive_s or self._commit_thread is not None:
            self._begin()
        self._changed.notify_all()

    def _begin(self) -> None:
        """Let a thread see to what is due. Raises RuntimeError if the machine has none left, LogClosed."""
        if self._commit_thread is None and self._thread is None:
            thread = background(f"log-writer {self._log}", self._run)
            thread.start()
            self._thread = thread
        elif self._commit_thread is not None and not self._stopping:
            self._commit_thread.wake(self)

    def _run(self) -> None:
        while (group := self._take()) and self._commit(group):
            pass

    def _commit(self, group: list[Pending]) -> bool:
        """Write a group; False if that has ended the writer."""
        begun = self._begin_commit(group)
        return begun is not None and self._end_commit(begun, None)

    def _begin_commit(self, group: list[Pending]) -> BegunGroup | None:
        """Write a group, which is not durable then; None if that has ended the writer."""
        try:
            begun_s = self._clock.monotonic_s()
            parts = [item.entries(self._config.codec) for item in group]
            entries = [entry for part in parts for entry in part]
            appended = self._chain.begin_append(entries, self._mark(group, parts))
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: recorded, later calls raise it
            self._fail(error, group)
            return None
        return BegunGroup(self, group, parts, appended, begun_s)

    def _end_commit(self, begun: BegunGroup, fdatasync: Callable[[int], object] | None) -> bool:
        """Make it durable and say so; False if that has ended the writer."""
        try:
            self._resolve(begun, self._chain.end_append(begun.appended, fdatasync))
            self._tell_completed()
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: recorded, later calls raise it
            self._fail(error, begun.group)
            return False
        return True

    def _take(self) -> list[Pending]:
        """What is to be written now, up to a group's size; nothing when the thread is to end."""
        with self._changed:
            while not self._stopping and (wait_s := self._wait_s()) != 0:
                self._changed.wait(wait_s)
            return [] if self._stopping else self._group()

    def _group(self) -> list[Pending]:
        """What waits, up to a group's size; a keep-alive if nothing does."""
        if not self._queue:
            self._enqueue(PendingKeepAlive(self._chain.last_txid))
        group: list[Pending] = []
        entries = size_bytes = 0
        while self._queue and entries + self._queue[0].entries_count <= self._group_entries_max:
            if group and size_bytes + self._queue[0].size_bytes > _GROUP_BYTES_MAX:
                break
            item = self._queue.popleft()
            entries += item.entries_count
            size_bytes += item.size_bytes
            self._waiting_bytes -= item.body_bytes
            group.append(item)
        self._taken += len(group)
        return group

    def _wait_s(self) -> float | None:
        """Seconds until something is to be written: 0 now, None until something changes."""
        if not self._queue:
            if not self._keep_alive_s or self._held or self._failure is not None or self._chain.staging:
                return None
            return max(0.0, self._active_s + self._keep_alive_s - self._clock.monotonic_s())
        if self._taken < self._wanted:
            return 0.0
        waited_s = self._clock.monotonic_s() - self._waiting_since_s if self._policy.delays else 0.0
        return self._policy.wait_s(waiting_bytes=self._waiting_bytes, held_bytes=self._pending_bytes, waited_s=waited_s)

    def _resolve(self, begun: BegunGroup, places: Sequence[DLSN]) -> None:
        """It is durable, and stands there."""
        group, parts = begun.group, begun.parts
        at = 0
        last: DLSN | None = None
        for item, part in zip(group, parts, strict=True):
            last = item.resolve(places[at : at + len(part)]) or last
            at += len(part)
        records = sum(item.records for item in group)
        self._limits.release(records)
        now_s = self._clock.monotonic_s()
        self._metrics.appended(
            records=records,
            body_bytes=sum(entry.body_bytes for part in parts for entry in part),
            took_s=now_s - begun.begun_s,
        )
        with self._changed:
            self._finished += len(group)
            self._pending_bytes -= sum(item.size_bytes for item in group)
            self._last_dlsn = last or self._last_dlsn
            self._active_s = now_s
            self._changed.notify_all()

    def _mark(self, group: Sequence[Pending], parts: Sequence[Sequence[EncodedEntry]]) -> Mark | None:
        """Makes what says who sent what of the group, for it to begin with."""
        senders = self._senders
        if senders is None:
            return None
        rows: list[GroupRow] = []
        ahead = 0
        for item, part in zip(group, parts, strict=True):
            if isinstance(item, PendingShared):
                rows += [row._replace(ahead=ahead) for row in item.rows]
            ahead += len(part)
        return lambda begins: senders.mark(rows, self._chain.last_txid, begins=begins)

    def _tell_completed(self) -> None:
        if self._chain.take_completed() and self._on_completed is not None:
            self._on_completed()

    def _fail(self, error: BaseException, group: list[Pending]) -> None:
        with self._changed:
            first = self._failure is None
            self._failure = self._failure or error
            group = group + list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        if first:
            self._metrics.writer_failed()
        self._drop(group, error)
        if self._senders is not None:
            self._senders.fail(error)

    def _drop(self, items: list[Pending], error: BaseException) -> None:
        for item in items:
            self._limits.release(item.records)
            item.fail(error)


@dataclass(frozen=True, slots=True, eq=False)
class BegunGroup(BegunTurn):
    """A group that is written and not durable yet."""

    commit: GroupCommit
    group: list[Pending]
    parts: list[Sequence[EncodedEntry]]
    """The entries of each."""
    appended: BegunAppend
    begun_s: float

    @property
    def file(self) -> int | None:
        return self.appended.appender.file_to_sync()

    def end(self, fdatasync: Callable[[int], object] | None) -> float | None:
        return self.commit.end_turn(self, fdatasync)


class PendingRecords:
    """Records that were written one by one and wait to become one entry. `durable`: their futures wait, too."""

    entries_count = 1

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._records: list[Record] = []
        self._futures: list[Future[DLSN]] = []
        self.body_bytes = self.size_bytes = 0

    @property
    def records(self) -> int:
        return len(self._records)

    def add(self, record: Record, body_bytes: int) -> tuple[Future[DLSN], int]:
        """Take a record of that size. Its future, and how many bytes of memory it holds until it is written."""
        future: Future[DLSN] = LightFuture()
        if self._durable:
            self._futures.append(future)
        else:
            future.set_result(DLSN.INVALID)
        self._records.append(record)
        self.body_bytes += body_bytes
        self.size_bytes += body_bytes + FUTURE_BYTES
        return future, body_bytes + FUTURE_BYTES

    def entries(self, codec: str) -> Sequence[EncodedEntry]:
        return [encode(body_of_records(self._records), codec=codec)]

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        segment, entry, _slot = firsts[0]
        for slot, future in enumerate(self._futures):
            future.set_result(DLSN(segment, entry, slot))
        return DLSN(segment, entry, len(self._records) - 1)

    def fail(self, error: BaseException) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class PendingBulk:
    """Entries of one batch that fit into a group. `last`: the batch ends with them."""

    def __init__(self, entries: Sequence[EncodedEntry], ack: Ack[Any], *, last: bool) -> None:
        self._entries = entries
        self._ack = ack
        self._last = last
        self.entries_count = len(entries)
        self.records = sum(entry.records for entry in entries)
        self.body_bytes = self.size_bytes = sum(entry.body_bytes for entry in entries)

    def entries(self, _codec: str) -> Sequence[EncodedEntry]:
        return self._entries

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        runs = [SlotRange(first, entry.records) for first, entry in zip(firsts, self._entries, strict=True)]
        self._ack.written(runs, last=self._last)
        return runs[-1].last

    def fail(self, error: BaseException) -> None:
        self._ack.fail(error)


class PendingKeepAlive:
    """An entry that says that the writer is there. Nobody waits for it."""

    entries_count = 1
    records = body_bytes = size_bytes = 0

    def __init__(self, last_txid: int) -> None:
        self._last_txid = last_txid

    def entries(self, _codec: str) -> Sequence[EncodedEntry]:
        return [keep_alive_entry(self._last_txid)]

    def resolve(self, _firsts: Sequence[DLSN]) -> None:
        return

    def fail(self, error: BaseException) -> None:
        return


Pending = PendingRecords | PendingBulk | PendingShared | PendingKeepAlive


@dataclass(frozen=True, slots=True)
class TransmitPolicy:
    """At once, at `bytes_min`, or when the first of what waits is `interval_s` old (0: that one does not count)."""

    bytes_min: int
    interval_s: float
    pending_bytes_max: int

    @classmethod
    def of(cls, config: LogConfig) -> TransmitPolicy:
        return cls(config.transmit_bytes, config.transmit_interval_ms / 1000, config.pending_bytes_max)

    @property
    def delays(self) -> bool:
        """Whether anything ever waits longer than for the disk."""
        return bool(self.bytes_min or self.interval_s)

    def wait_s(self, *, waiting_bytes: int, held_bytes: int, waited_s: float) -> float | None:
        """How long what waits has to wait still: 0 if it is to be sent now, None if time alone changes nothing.

        `held_bytes` is what it takes in memory: what makes callers wait for room is sent.
        """
        if not self.delays or held_bytes >= self.pending_bytes_max:
            return 0.0
        if self.bytes_min and waiting_bytes >= self.bytes_min:
            return 0.0
        return max(0.0, self.interval_s - waited_s) if self.interval_s else None
