"""The writer of a log that a proxy writes: as LogWriter, for one client of many."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Literal, TypeVar, overload

import pyarrow as pa

from scribengin.base.closing import ClosedOrAborted
from scribengin.errors import EndOfStream, LogClosed, LogError, RecordTooLarge, ScribenginError
from scribengin.log import DLSN, BulkResult, DlsnRange, LogDescriptor
from scribengin.log.format.records import (
    TXID_NONE,
    Record,
    body_of_batch,
    check_atomic,
    check_batch,
    check_record,
    frozen,
    pieces,
)
from scribengin.log.write.results import Ack, BulkAck, PartialAck, split_refused
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.pending import BatchPart, SingleRecord, Unit, WriterShare
from scribengin.proxy.client.sending import LogSender, LogSenders
from scribengin.proxy.wire.requests import AskRequest
from scribengin.proxy.wire.told_errors import of_a_proxied_log

_T = TypeVar("_T")


class _Turn:
    """A lock. In a callback nobody waits for it: who has it may wait for room, and so for the callback's thread."""

    def __init__(self, sender: LogSender) -> None:
        self._sender = sender
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._sender.check_may_wait()
            self._lock.acquire()

    def __exit__(self, *_why: object) -> None:
        self._lock.release()


class ProxiedWriter(ClosedOrAborted):
    """Writes a log through proxies, beside other clients. Thread-safe. Made by `ProxiedNamespace.open_writer`.

    Its methods are those of LogWriter, with their errors. What only whoever owns the log can tell, the future raises:
    TransactionIdOutOfOrder against records of other clients, OverCapacity, EndOfStream, LogNotFound (also where another
    log was made in place of the one that it was opened for). Staged rounds need the log itself.

    A callback of one of its futures must not write to, flush or close any writer that the client has of this log: all
    of them share the thread that it runs on. A call that would wait for that raises LogError. Hand the work to a thread
    of your own, as through a queue.
    """

    def __init__(self, senders: LogSenders, delivery: ProxyDelivery, log: LogDescriptor, segment: int = 1) -> None:
        """`segment` is one that the log has by now."""
        self._senders = senders
        self._delivery = delivery
        self._log = log.name
        self._config = log.config
        self._last_txid = TXID_NONE
        self._share = WriterShare(log.config.durable_writes)
        self._sender = senders.join(log, segment)
        self._calling = _Turn(self._sender)
        """Held while records are checked and queued: the order of calls is the log's."""
        self._left = False

    @property
    def failed(self) -> bool:
        """Whether a failure has ended the writer. What a call refuses from then on certainly was not written."""
        return self._share.failure is not None

    @property
    def record_bytes_max(self) -> int:
        """The largest payload that the log takes."""
        return self._config.record_bytes_max

    @property
    def pending_bytes_max(self) -> int:
        """A call blocks while so much that was submitted is not written yet."""
        return self._config.pending_bytes_max

    def write(
        self,
        payload: bytes | bytearray | memoryview,
        *,
        txid: int | None = None,
        key: bytes | bytearray | memoryview | None = None,
        channel: str | None = None,
        type: int = 0,  # noqa: A002  the column's name
    ) -> Future[DLSN]:
        """As LogWriter.write: the future resolves when the record is durable, on the writer's thread. Where no proxy
        takes it for `patience_s` of the client, it raises what is in the way, and the writer has failed."""
        with self._calling:
            self._check_open()
            given = max(self._last_txid, 0) if txid is None else txid
            record = Record(given, channel, None if key is None else frozen(key), frozen(payload), type)
            try:
                check_record(self._log, record, self._config, last_txid=self._last_txid)
            except RecordTooLarge as error:
                raise of_a_proxied_log(error, self._log) from None
            single = SingleRecord(self._share, record, txid is not None)
            if not self._config.durable_writes:
                single.future.set_result(DLSN.INVALID)
            self._submit(single)
            if txid is not None:
                self._last_txid = max(self._last_txid, txid)
        return single.future

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[False] = False) -> Future[DlsnRange]: ...

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[True]) -> Future[BulkResult]: ...

    def write_bulk(self, batch: pa.RecordBatch, *, partial: bool = False) -> Future[DlsnRange] | Future[BulkResult]:
        """As LogWriter.write_bulk. With `partial`, a row that only the owner of the log refuses fails the batch."""
        with self._calling:
            self._check_batch(batch)
            if not partial:
                return self._submit_batch(batch, BulkAck())
            taken, refused = split_refused(self._log, batch, self._config, last_txid=self._last_txid)
            ack = PartialAck(batch.num_rows, tuple(replace(row, error=self._told(row.error)) for row in refused))
            if taken.num_rows:
                return self._submit_batch(taken, ack)
            ack.nothing_taken()
            return ack.future

    def write_atomic(self, batch: pa.RecordBatch) -> Future[DlsnRange]:
        """As LogWriter.write_atomic: readers see all rows or none."""
        with self._calling:
            self._check_batch(batch)
            return self._submit_batch(batch, BulkAck(), atomic=True)

    def flush(self) -> DLSN:
        """Wait until all that was written before is durable. The DLSN of the last record that this writer wrote,
        INVALID if there is none yet. Raises the failure of a writer that has failed."""
        with self._sender.lock:
            self._sender.wait_until_done(self._share)
            self._raise_failure()
            return self._share.last_dlsn

    def mark_end_of_stream(self) -> None:
        """Flush, and seal the log: nothing can be written after it, by anybody. Raises as `flush`, and what the proxy
        is refused with."""
        self._check_open()
        self.flush()
        seal = AskRequest("seal", self._log, {"directory": self._sender.directory})
        self._delivery.ask(seal, done_if=lambda error: isinstance(error, EndOfStream))
        self.close()

    def close(self) -> None:
        """Flush. The log stays the proxy's, for its other clients. Idempotent.

        Raises the failure of the writer, unless a call has raised it before.
        """
        if self._share.closed:
            return
        try:
            if not (self.failed and self._share.failure_raised):
                self.flush()
        finally:
            self.abort()

    def abort(self) -> None:
        """End without flushing: what is pending fails with LogClosed, though some of it may be written. Idempotent."""
        self._sender.drop(self._share)
        with self._sender.lock:
            left = self._left
            self._left = True
        if not left:
            self._senders.leave(self._sender)

    def _submit_batch(self, batch: pa.RecordBatch, ack: Ack[_T], *, atomic: bool = False) -> Future[_T]:
        at = batch.schema.get_field_index("txid")
        txids = at >= 0 and batch.column(at).null_count < batch.num_rows
        now_ms = self._delivery.clock.now_ms
        try:
            body = body_of_batch(self._log, batch, self._config, last_txid=self._last_txid, now_ms=now_ms)
            if atomic:
                check_atomic(self._log, body, self._config)
        except RecordTooLarge as error:
            raise of_a_proxied_log(error, self._log) from None
        if not self._config.durable_writes:
            ack.queued(batch.num_rows)
        size_max = body.nbytes if atomic else self._delivery.config.request_bytes_max
        parts = list(pieces(body, size_max))
        for part in parts:
            unit = BatchPart(self._share, part, txids, ack, part is parts[-1], atomic, part.nbytes)
            try:
                self._submit(unit)
            except ScribenginError as error:
                if part is parts[0]:
                    raise
                ack.fail(error)  # some of the batch is on its way, and its future says what becomes of the rest
                break
        if txids:
            self._last_txid = max(self._last_txid, body.column(0)[-1].as_py())
        return ack.future

    def _told(self, error: LogError) -> LogError:
        return of_a_proxied_log(error, self._log) if isinstance(error, RecordTooLarge) else error

    def _submit(self, unit: Unit) -> None:
        """Queue it, once there is room."""
        with self._sender.lock:
            self._sender.wait_for_room(self._share, self._config.pending_bytes_max)
            self._check_open()
            self._sender.submit(unit)

    def _raise_failure(self) -> None:
        if self._share.failure is not None:
            self._share.failure_raised = True
            raise self._share.failure

    def _check_open(self) -> None:
        self._raise_failure()
        if self._share.closed:
            raise LogClosed(f"log '{self._log}': the writer is closed; open a new one")

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        self._check_open()
        check_batch(self._log, batch)
