"""The writer of a log: callers encode, one thread writes.

`write` and `write_bulk` leave encoded entries in a queue; the writer's thread takes everything that waits there as one
group (at most 256 entries), writes it with one call, makes it durable with one fsync, looks for the fence, shows it to
readers, and only then resolves the futures. While it waits for the disk, the next group gathers.

The mistake to avoid: using a writer after a failure. What was pending may or may not be in the log; only a new writer,
which recovers the segment, knows. So the first failure is final, and every later call raises it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, TypeVar, overload

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.closing import ClosedOrAborted
from scribengin.base.threads import BackgroundWork
from scribengin.errors import LogBusy, LogClosed, LogError, ScribenginError
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN, DlsnRange
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.format.records import (
    Record,
    assigned_txid,
    atomic_entry,
    body_of_batch,
    check_atomic,
    check_batch,
    check_record,
    encoded_entries,
    frozen,
)
from scribengin.log.format.staged import StagedRange
from scribengin.log.metadata.segments import LogMetadata, WriterEpoch
from scribengin.log.metadata.writer_lock import HeldLock
from scribengin.log.write.commit_thread import CommitThread
from scribengin.log.write.group_commit import GroupCommit
from scribengin.log.write.limits import WriteLimiter, WriteLimits
from scribengin.log.write.results import (
    Ack,
    BulkAck,
    BulkResult,
    PartialAck,
    RefusedRow,
    SlotRange,
    refused_alone,
    split_refused,
)
from scribengin.log.write.segment_chain import SegmentChain
from scribengin.log.write.senders import Senders

_T = TypeVar("_T")


class LogWriter(ClosedOrAborted):
    """Writes one log, as its only writer. Thread-safe. Made by `LogNamespace.open_writer`.

    A callback of one of its futures runs on the writer's thread, so it must not write to this writer, nor to one with
    the same commit thread. While `pending_bytes_max` is pending, the call would wait for the thread that it runs on,
    for ever. Hand the work to a thread of your own, as through a queue.
    """

    def __init__(
        self,
        metadata: LogMetadata,
        owner: WriterEpoch,
        chain: SegmentChain,
        config: LogConfig,
        *,
        stages: bool,
        clock: Clock,
        limiter: WriteLimiter | None = None,
        maintenance: BackgroundWork | None = None,
        senders: Senders | None = None,
        commit_thread: CommitThread | None = None,
    ) -> None:
        """`limiter` is shared with other writers. `senders` are those that `write_numbered` knows. `maintenance` is
        told whenever a segment was completed, other than by the writer's end. Without a `commit_thread` it has a thread
        of its own."""
        self._maintenance = maintenance
        self._metadata = metadata
        self._owner = owner
        self._chain = chain
        self._config = config
        self._clock = clock
        self._log = metadata.log
        self._stages = stages
        self._senders = senders
        self._groups = GroupCommit(
            chain,
            config,
            self._log,
            clock=clock,
            limits=WriteLimits(*_limiters(self._log, config, limiter)),
            on_completed=None if maintenance is None else maintenance.kick,
            senders=senders,
            commit_thread=commit_thread,
        )
        self._calling = threading.RLock()
        """Held by callers, one at a time: the order of transaction ids is the order of the queue."""
        self._last_txid = chain.last_txid
        self._closed = self._released = False
        self._lock = HeldLock(metadata, owner, self._groups.end)
        try:
            self._lock.keep()
        except BaseException:
            self._groups.stop()  # it may be sending keep-alives, and whoever made the writer gives the lock back
            chain.abandon()
            raise

    @property
    def directory(self) -> str:
        """Of its log: one that is made later, under the same name, has another."""
        return self._owner.directory

    @property
    def epoch(self) -> int:
        """Of this writer; a later one's is greater."""
        return self._owner.epoch

    @property
    def failed(self) -> bool:
        """Whether a failure has ended the writer. What a call refuses from then on certainly was not written."""
        return self._groups.failed

    @property
    def roll_failure(self) -> ScribenginError | None:
        """Why a segment that is due to be completed is written on; None if none is. It is tried again."""
        return self._chain.roll_failure

    @property
    def maintenance_failure(self) -> Exception | None:
        """Why segments that are due to be removed are still there; None if nothing failed. It is tried again."""
        return None if self._maintenance is None else self._maintenance.failure

    def write(
        self,
        payload: bytes | bytearray | memoryview,
        *,
        txid: int | None = None,
        key: bytes | bytearray | memoryview | None = None,
        channel: str | None = None,
        type: int = 0,  # noqa: A002  the column's name
    ) -> Future[DLSN]:
        """Append one record. The future resolves when it is durable, on the writer's thread: what it calls
        must not call the writer, which would wait for itself.

        What `payload` and `key` hold is taken now: the caller may change them as soon as this returns.
        Without `txid` the record gets the time in ms, or the last transaction id if that is greater. `type` is a number
        in [0, 65535] that means something to whoever reads it. Blocks while too much is pending. Raises RecordTooLarge,
        TransactionIdOutOfOrder, OverCapacity, LogError (a round is staged), LogClosed, and the failure of a writer that
        has failed; the future raises LogWriteFailed, Fenced.

        If the log is configured with `durable_writes` off the future has resolved already, with DLSN.INVALID.
        """
        with self._calling:
            self._check_appending()
            txid = assigned_txid(self._last_txid, self._clock.now_ms()) if txid is None else txid
            record = Record(txid, channel, None if key is None else frozen(key), frozen(payload), type)
            check_record(self._log, record, self._config, last_txid=self._last_txid)
            future = self._groups.submit_record(record)
            self._last_txid = max(txid, self._last_txid)
        return future

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[False] = False) -> Future[DlsnRange]: ...

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[True]) -> Future[BulkResult]: ...

    def write_bulk(self, batch: pa.RecordBatch, *, partial: bool = False) -> Future[DlsnRange] | Future[BulkResult]:
        """Append the rows of `batch` (at least one): `payload`, and if they are there `txid`, `type`, `key`, `channel`.

        Encodes in the caller's thread. Rows without `txid` get one as `write` gives it. Raises as `write`, before
        anything of the batch is written, and LogError for rows that are no records, or a column that no record has.
        What a reader says beside the records (`read_batch`) may stay, and is not written.

        With `partial` each row counts by itself: the future never raises, and says what became of every row. Rows
        without payload, that are too large, or whose transaction id is out of order are left out, and the others are
        written. A batch that is no such thing at all (a column of a wrong type) raises as ever, and so does
        OverCapacity.
        """
        with self._calling:
            self._check_batch(batch)
            if not partial:
                return self._submit(self._encoded(batch), BulkAck())
            taken, refused = split_refused(self._log, batch, self._config, last_txid=self._last_txid)
            ack = PartialAck(batch.num_rows, refused)
            if taken.num_rows:
                return self._submit(self._encoded(taken), ack)
            ack.nothing_taken()
            return ack.future

    def write_atomic(self, batch: pa.RecordBatch) -> Future[DlsnRange]:
        """Append the rows of `batch` as one entry: readers see all of them or none, and so does recovery.

        Raises as `write_bulk`, and RecordTooLarge for rows that are more than `entry_bytes_max` together.
        """
        with self._calling:
            self._check_batch(batch)
            return self._submit([atomic_entry(self._log, self._body(batch), self._config)], BulkAck())

    def write_numbered(
        self,
        batch: pa.RecordBatch,
        *,
        sender: bytes,
        number: int,
        answered: int = 0,
        since: int = 0,
        atomic: bool = False,
        turn_s: float | None = None,
    ) -> Future[tuple[SlotRange, ...]]:
        """Append the rows of `batch` unless they are there already: record `number` of `sender`, and those behind it.
        With `atomic` readers see all rows or none, as with `write_atomic`. With `turn_s` it waits at most so long for
        other calls, and not for room: it raises LogBusy instead.

        A sender is 16 bytes that nobody else has, and numbers its records from 1 on without a gap. It sends again what
        it got no answer to, in order and under the same numbers, to whoever writes the log by then, and is told where
        it stands. `answered` is the number up to which it has its answers: it never asks for these again. What was sent
        before names the segment `since` which it may be in the log (0: it was not). The future raises as that of
        `write`, and SenderUnknown. Raises as `write_bulk`, SenderUnknown, and LogError if the writer
        was not opened with `senders`; then nothing of the batch was written, and its numbers are free.
        """
        if self._senders is None:
            raise LogError(f"log '{self._log}': only a writer that was opened with senders=True takes numbers")
        with self._turn(turn_s):
            self._check_batch(batch)
            known = self._senders.admit(sender, number, batch.num_rows, answered, since)
            if known < batch.num_rows:
                body = self._body(batch.slice(known))
                if atomic:
                    check_atomic(self._log, body, self._config)
                self._groups.submit_shared(sender, number + known, body, waits=turn_s is None)
                self._last_txid = max(self._last_txid, body.column(0)[-1].as_py())
            return self._senders.sent(sender, number, batch.num_rows)

    def flush(self) -> DLSN:
        """Wait until all that was written before is durable. The DLSN of the last record that this writer wrote,
        INVALID if there is none yet.

        Raises the failure of a writer that has failed.
        """
        return self._groups.flush()

    @property
    def record_bytes_max(self) -> int:
        """The largest payload that the log takes."""
        return self._config.record_bytes_max

    @property
    def pending_bytes_max(self) -> int:
        """A call blocks while so much that was submitted is not written yet."""
        return self._config.pending_bytes_max

    def refused(self, batch: pa.RecordBatch) -> tuple[RefusedRow, ...]:
        """The rows of `batch` that `stage` would refuse whatever stands beside them, and why. Writes nothing.

        Raises LogError for a column of a wrong type.
        """
        with self._calling:
            return refused_alone(self._log, batch, self._config, last_txid=self._last_txid)

    def stage(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch` so that nobody sees them until their round is committed. Needs a `commit_log`.

        Raises as `write_bulk`, before anything of the batch is staged, then LogWriteFailed, Fenced.
        """
        if not self._stages:
            raise LogError(f"log '{self._log}': only a writer that was opened with a commit_log can stage")
        with self._calling:
            self._check_open()
            if not batch.num_rows:
                return
            entries = self._encoded(batch)
            with self._exclusively() as chain:
                chain.stage(entries)
            self._last_txid = max(self._last_txid, entries[-1].last_txid)

    def prepare(self) -> StagedRange | None:
        """Make all that is staged durable, still invisible. None: nothing is staged. Raises LogWriteFailed, Fenced."""
        with self._calling, self._exclusively() as chain:
            return chain.prepare()

    def commit_staged(self, staged: StagedRange) -> None:
        """Show readers what `prepare` returned. Idempotent. Raises LogWriteFailed, Fenced, InconsistentLog."""
        with self._calling, self._exclusively() as chain:
            chain.commit_staged(staged)

    def rollback_staged(self) -> None:
        """Drop what is staged, if anything is. Raises Fenced, and what the registry raises."""
        with self._calling, self._exclusively() as chain:
            chain.rollback_staged()
            self._last_txid = chain.last_txid

    def recover(self, committed: StagedRange | None) -> None:
        """Commit what is named, roll back the rest. Raises as `commit_staged`.

        What is named may belong to a log of this name that was deleted since: then there is nothing to commit.
        """
        with self._calling:
            if committed is not None and committed.directory == self._owner.directory:
                self.commit_staged(committed)
            self.rollback_staged()

    def mark_end_of_stream(self) -> None:
        """Flush, and seal the log: nothing can be written after it, by anybody. Raises as `flush`, Fenced."""
        with self._calling:
            self._check_appending()
            with self._groups.exclusively(last=True) as chain:
                chain.seal()
        self.close()

    def close(self) -> None:
        """Flush, complete the segment, give the lock back. A staged round stays, for `recover` to judge. Idempotent.

        Raises the failure of the writer, unless a call has raised it before.
        """
        with self._calling:
            if self._closed:
                self._shut()
                return
            try:
                if self._groups.unseen_failure is not None:
                    self._groups.raise_failure()
                if not self._groups.failed:
                    self._lock.relinquish()
                    with self._groups.exclusively(last=True) as chain:
                        self._finish(chain)
            finally:
                self._shut()

    def abort(self) -> None:
        """Give the lock back without flushing: what is pending fails with LogClosed. Idempotent."""
        self._groups.stop()
        with self._calling:
            self._shut()

    def _finish(self, chain: SegmentChain) -> None:
        if not chain.staging:
            chain.complete(release=True)

    def _shut(self) -> None:
        """Idempotent. If the lock could not be given back that is tried further behind, and by the next call."""
        if self._released:
            return
        self._closed = True
        try:
            self._groups.stop()
            self._chain.abandon()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        try:
            self._lock.give_back()
            self._released = True
        finally:
            if self._maintenance is not None:
                self._maintenance.close()  # last: it may take its time, and the next writer need not wait for it

    def _submit(self, entries: list[EncodedEntry], ack: Ack[_T]) -> Future[_T]:
        self._groups.submit_bulk(entries, ack)
        self._last_txid = max(self._last_txid, entries[-1].last_txid)
        return ack.future

    def _encoded(self, batch: pa.RecordBatch) -> list[EncodedEntry]:
        return encoded_entries(self._body(batch), self._config)

    def _body(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        now_ms = self._clock.now_ms
        return body_of_batch(self._log, batch, self._config, last_txid=self._last_txid, now_ms=now_ms)

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        self._check_appending()
        check_batch(self._log, batch)

    @contextmanager
    def _turn(self, limit_s: float | None) -> Iterator[None]:
        """Holds off other callers, as `_calling` does. Raises LogBusy if it is not its turn within the limit."""
        if not self._calling.acquire(timeout=-1 if limit_s is None else limit_s):
            raise LogBusy(f"log '{self._log}': other calls are before this one; write again later")
        try:
            yield
        finally:
            self._calling.release()

    def _exclusively(self) -> AbstractContextManager[SegmentChain]:
        self._check_open()
        return self._groups.exclusively()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"log '{self._log}': the writer is closed; open a new one")

    def _check_appending(self) -> None:
        self._check_open()
        if self._chain.staging:
            raise LogError(
                f"log '{self._log}': a round is staged; prepare and commit it, or roll it back, before you append"
            )


def _limiters(log: str, config: LogConfig, shared: WriteLimiter | None) -> Iterator[WriteLimiter]:
    if config.outstanding_writes_max is not None:
        yield WriteLimiter(
            config.outstanding_writes_max, dark_mode=config.outstanding_dark_mode, what=f"the writer of log '{log}'"
        )
    if shared is not None:
        yield shared
