"""Group commit: a queue of entries, and the thread that writes all that waits there with one call and one fsync."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from scribengin.errors import LogClosed
from scribengin.log.chain import SegmentChain
from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN, DlsnRange
from scribengin.log.entry import GROUP_ENTRIES_MAX, EncodedEntry, encode
from scribengin.log.records import Record, body_of_records

_RECORD_OVERHEAD_BYTES = 21
"""What a record takes in a body beside its payload, key and channel."""
_FUTURE_BYTES = 1536
"""What a record that was written by itself takes in memory while it waits: its future, mostly."""
_GROUP_BYTES_MAX = 16 * 1024 * 1024
"""A larger group would write no faster, and its first record would wait longer. A single batch may be larger."""


class PendingRecords:
    """Records that were written one by one and wait to become one entry."""

    entries_count = 1

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._futures: list[Future[DLSN]] = []
        self.body_bytes = self.size_bytes = 0

    def add(self, record: Record, future: Future[DLSN]) -> int:
        """Take a record, and return how many bytes of memory it holds until it is written."""
        size = len(record.payload) + len(record.key or b"") + len(record.channel or "") + _RECORD_OVERHEAD_BYTES
        self._records.append(record)
        self._futures.append(future)
        self.body_bytes += size
        self.size_bytes += size + _FUTURE_BYTES
        return size + _FUTURE_BYTES

    def entries(self, codec: str) -> Sequence[EncodedEntry]:
        return [encode(body_of_records(self._records), codec=codec)]

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        segment, entry, _slot = firsts[0]
        for slot, future in enumerate(self._futures):
            future.set_result(DLSN(segment, entry, slot))
        return DLSN(segment, entry, len(self._futures) - 1)

    def fail(self, error: BaseException) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class PendingBulk:
    """Entries of one batch that fit into a group. `last`: the batch ends with them."""

    def __init__(self, entries: Sequence[EncodedEntry], ack: BulkAck, *, last: bool) -> None:
        self._entries = entries
        self._ack = ack
        self._last = last
        self.entries_count = len(entries)
        self.size_bytes = sum(entry.body_bytes for entry in entries)

    def entries(self, _codec: str) -> Sequence[EncodedEntry]:
        return self._entries

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        segment, entry, _slot = firsts[-1]
        last = DLSN(segment, entry, self._entries[-1].records - 1)
        self._ack.written(firsts[0], last if self._last else None)
        return last

    def fail(self, error: BaseException) -> None:
        self._ack.fail(error)


class BulkAck:
    """The future of a batch, which may be written in several groups."""

    def __init__(self) -> None:
        self.future: Future[DlsnRange] = Future()
        self.future.set_running_or_notify_cancel()  # what is on its way to the disk cannot be called back
        self._first: DLSN | None = None

    def written(self, first: DLSN, last: DLSN | None) -> None:
        """A part was written; with `last`, it was the last part."""
        self._first = self._first or first
        if last is not None:
            self.future.set_result(DlsnRange(self._first, last))

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


Pending = PendingRecords | PendingBulk


class GroupCommit:
    """The queue and its thread. Callers submit under a lock of their own: the order of submission is the log's."""

    def __init__(self, chain: SegmentChain, config: LogConfig, log: str) -> None:
        self._chain, self._config, self._log = chain, config, log
        self._changed = threading.Condition()
        """Guards everything below."""
        self._queue: deque[Pending] = deque()
        self._pending_bytes = 0
        self._submitted = self._finished = 0
        self._last_dlsn = DLSN.INVALID
        self._failure: BaseException | None = None
        self._failure_raised = False
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def unseen_failure(self) -> BaseException | None:
        """What ended the writer, if no call has raised it yet."""
        return None if self._failure_raised else self._failure

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def submit_record(self, record: Record) -> Future[DLSN]:
        """Queue one record. Blocks while too much is pending. Raises what ended the writer."""
        future: Future[DLSN] = Future()
        future.set_running_or_notify_cancel()  # what is on its way to the disk cannot be called back
        with self._changed:
            self._wait_for_room()
            last = self._queue[-1] if self._queue else None
            if not isinstance(last, PendingRecords) or last.body_bytes >= self._config.entry_bytes_max:
                last = PendingRecords()
                self._enqueue(last)
            self._pending_bytes += last.add(record, future)
        return future

    def submit_bulk(self, entries: Sequence[EncodedEntry]) -> Future[DlsnRange]:
        """Queue the entries of one batch. Blocks while too much is pending. Raises what ended the writer."""
        ack = BulkAck()
        for start in range(0, len(entries), GROUP_ENTRIES_MAX):
            part = entries[start : start + GROUP_ENTRIES_MAX]
            with self._changed:
                self._wait_for_room()
                item = PendingBulk(part, ack, last=start + len(part) == len(entries))
                self._enqueue(item)
                self._pending_bytes += item.size_bytes
        return ack.future

    def flush(self) -> DLSN:
        """Wait until all that was submitted before is durable. Raises what ended the writer."""
        with self._changed:
            wanted = self._submitted
            self._changed.wait_for(lambda: self._finished >= wanted or self._failure is not None or self._stopping)
            self.raise_failure()
            if self._finished < wanted:
                raise self._closed()
            return self._last_dlsn

    @contextmanager
    def exclusively(self) -> Iterator[SegmentChain]:
        """The chain, with nothing pending. The caller keeps others from submitting. An exception ends the writer."""
        self.flush()
        try:
            yield self._chain
        except BaseException as error:
            self._fail(error, [])
            self._failure_raised = True
            raise

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
            self._changed.notify_all()
        for item in dropped:
            item.fail(self._closed())
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _wait_for_room(self) -> None:
        limit = self._config.pending_bytes_max
        self._changed.wait_for(lambda: self._pending_bytes < limit or self._failure is not None or self._stopping)
        self.raise_failure()
        if self._stopping:
            raise self._closed()

    def _closed(self) -> LogClosed:
        return LogClosed(f"log '{self._log}': the writer was closed before this was written; open a new one")

    def _enqueue(self, item: Pending) -> None:
        self._queue.append(item)
        self._submitted += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"log-writer {self._log}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while group := self._take():
            try:
                self._write(group)
            except BaseException as error:  # noqa: BLE001  a thread's outermost loop: recorded, later calls raise it
                self._fail(error, group)
                return

    def _take(self) -> list[Pending]:
        """Everything that waits, up to a group's size; nothing when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            group: list[Pending] = []
            entries = size_bytes = 0
            while self._queue and entries + self._queue[0].entries_count <= GROUP_ENTRIES_MAX:
                if group and size_bytes + self._queue[0].size_bytes > _GROUP_BYTES_MAX:
                    break
                item = self._queue.popleft()
                entries += item.entries_count
                size_bytes += item.size_bytes
                group.append(item)
            return group

    def _write(self, group: list[Pending]) -> None:
        parts = [item.entries(self._config.codec) for item in group]
        places = self._chain.append([entry for part in parts for entry in part])
        at = 0
        last = DLSN.INVALID
        for item, part in zip(group, parts, strict=True):
            last = item.resolve(places[at : at + len(part)])
            at += len(part)
        with self._changed:
            self._finished += len(group)
            self._pending_bytes -= sum(item.size_bytes for item in group)
            self._last_dlsn = last
            self._changed.notify_all()

    def _fail(self, error: BaseException, group: list[Pending]) -> None:
        with self._changed:
            self._failure = self._failure or error
            group = group + list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for item in group:
            item.fail(error)
