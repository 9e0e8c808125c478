"""The writer of a log that a proxy writes: as LogWriter, for one client of many.

Records gather while a request is under way, and go together with the next one. The writer's thread sends a request
again, under the same numbers, until a proxy has answered for good: a proxy's death, or a log that goes from one to
another, is not seen here.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from concurrent.futures import Future
from typing import Literal, TypeVar, overload

import pyarrow as pa

from scribengin.base.closing import ClosedOrAborted
from scribengin.base.threads import background
from scribengin.errors import EndOfStream, LogClosed, LogError
from scribengin.log import DLSN, BulkResult, DlsnRange, LogConfig
from scribengin.log.format.records import TXID_NONE, Record, atomic_entry, body_of_batch, check_record, frozen, pieces
from scribengin.log.write.results import Ack, BulkAck, PartialAck, SlotRange, split_refused
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.pending import FUTURE_BYTES, BatchPart, SingleRecord, Unit, body_of, places_of
from scribengin.proxy.state.resend import Lost, NotSent, SenderState, Sent
from scribengin.proxy.wire.requests import AskRequest

_T = TypeVar("_T")


def new_sender() -> bytes:
    """16 bytes that no other sender has."""
    return uuid.uuid4().bytes


class ProxiedWriter(ClosedOrAborted):
    """Writes a log through proxies, beside other clients. Thread-safe. Made by `ProxiedNamespace.open_writer`.

    Its methods are those of LogWriter, with their errors. What only whoever owns the log can tell, the future raises:
    TransactionIdOutOfOrder against records of other clients, OverCapacity, EndOfStream, LogNotFound. Staged rounds need
    the log itself.
    """

    def __init__(self, delivery: ProxyDelivery, log: str, config: LogConfig) -> None:
        self._delivery = delivery
        self._log = log
        self._config = config
        self._state = SenderState(new_sender, delivery.config.patience_s)
        self._last_txid = TXID_NONE
        self._changed = threading.Condition()
        """Guards all below."""
        self._queue: deque[Unit] = deque()
        self._sending: list[Unit] = []
        self._one_by_one = 0
        """So many units were refused together: each is sent by itself."""
        self._pending_bytes = 0
        self._last_dlsn = DLSN.INVALID
        self._failure: BaseException | None = None
        self._failure_raised = self._closed = False
        self._aborted = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def failed(self) -> bool:
        """Whether a failure has ended the writer. What a call refuses from then on certainly was not written."""
        return self._failure is not None

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
        """As LogWriter.write: the future resolves when the record is durable, on the writer's thread."""
        given = self._last_txid if txid is None else txid
        record = Record(max(given, 0), channel, None if key is None else frozen(key), frozen(payload), type)
        with self._changed:
            self._check_open()
            if txid is not None:
                record = Record(txid, record.channel, record.key, record.payload, type)
            check_record(self._log, record, self._config, last_txid=self._last_txid)
            single = SingleRecord(record, txid is not None)
            if not self._config.durable_writes:
                single.future.set_result(DLSN.INVALID)
            self._submit(single, record.size_bytes + FUTURE_BYTES)
            self._last_txid = max(self._last_txid, record.txid) if txid is not None else self._last_txid
        return single.future

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[False] = False) -> Future[DlsnRange]: ...

    @overload
    def write_bulk(self, batch: pa.RecordBatch, *, partial: Literal[True]) -> Future[BulkResult]: ...

    def write_bulk(self, batch: pa.RecordBatch, *, partial: bool = False) -> Future[DlsnRange] | Future[BulkResult]:
        """As LogWriter.write_bulk. With `partial`, a row that only the owner of the log refuses fails the batch."""
        with self._changed:
            self._check_batch(batch)
            if not partial:
                return self._submit_batch(batch, BulkAck())
            taken, refused = split_refused(self._log, batch, self._config, last_txid=self._last_txid)
            ack = PartialAck(batch.num_rows, refused)
            if taken.num_rows:
                return self._submit_batch(taken, ack)
            ack.nothing_taken()
            return ack.future

    def write_atomic(self, batch: pa.RecordBatch) -> Future[DlsnRange]:
        """As LogWriter.write_atomic: readers see all rows or none."""
        with self._changed:
            self._check_batch(batch)
            return self._submit_batch(batch, BulkAck(), atomic=True)

    def flush(self) -> DLSN:
        """Wait until all that was written before is durable. The DLSN of the last record that this writer wrote,
        INVALID if there is none yet. Raises the failure of a writer that has failed."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._queue or self._sending) or self._failure is not None)
            self._raise_failure()
            return self._last_dlsn

    def mark_end_of_stream(self) -> None:
        """Flush, and seal the log: nothing can be written after it, by anybody. Raises as `flush`, and what the proxy
        is refused with."""
        with self._changed:
            self._check_open()
        self.flush()
        self._delivery.ask(AskRequest("seal", self._log), done_if=EndOfStream)
        self.close()

    def close(self) -> None:
        """Flush. The log stays the proxy's, for its other clients. Idempotent.

        Raises the failure of the writer, unless a call has raised it before.
        """
        with self._changed:
            if self._closed:
                return
        try:
            if not (self.failed and self._failure_raised):
                self.flush()
        finally:
            self._shut(join=True)

    def abort(self) -> None:
        """End without flushing: what is pending fails with LogClosed, though some of it may be written. Idempotent."""
        self._shut(join=False)

    def _shut(self, *, join: bool) -> None:
        with self._changed:
            self._closed = True
            dropped = [*self._sending, *self._queue]
            self._queue.clear()
            self._aborted.set()
            self._changed.notify_all()
            thread = self._thread
        for unit in dropped:
            unit.fail(LogClosed(f"log '{self._log}': the writer was closed before this was written; open a new one"))
        if join and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _submit_batch(self, batch: pa.RecordBatch, ack: Ack[_T], *, atomic: bool = False) -> Future[_T]:
        at = batch.schema.get_field_index("txid")
        txids = at >= 0 and batch.column(at).null_count < batch.num_rows
        now_ms = self._delivery.clock.now_ms
        body = body_of_batch(self._log, batch, self._config, last_txid=self._last_txid, now_ms=now_ms)
        if atomic:
            atomic_entry(self._log, body, self._config)  # raises for one that is too large
        if not self._config.durable_writes:
            ack.queued(batch.num_rows)
        size_max = body.nbytes if atomic else self._delivery.config.request_bytes_max
        parts = list(pieces(body, size_max))
        for part in parts:
            size = part.nbytes
            self._submit(BatchPart(part, txids, ack, part is parts[-1], atomic, size), size)
        if txids:
            self._last_txid = max(self._last_txid, body.column(0)[-1].as_py())
        return ack.future

    def _submit(self, unit: Unit, held_bytes: int) -> None:
        """Queue it, once there is room. The caller holds the condition."""
        self._changed.wait_for(
            lambda: self._pending_bytes < self._config.pending_bytes_max or self.failed or self._closed
        )
        self._check_open()
        self._queue.append(unit)
        self._pending_bytes += held_bytes
        if self._thread is None:
            self._thread = background(f"proxied-writer {self._log}", self._run)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while units := self._take():
            found = self._delivery.send(
                self._state, self._log, body_of(units), txids=units[0].txids, pause=self._aborted.wait
            )
            match found:
                case Sent(runs):
                    self._written(units, runs)
                case NotSent(error) if len(units) > 1:
                    self._split(units)
                case NotSent(error):
                    self._refused(units[0], error)
                case Lost(error):
                    self._fail(error)

    def _take(self) -> list[Unit]:
        """What goes together with the next request; nothing when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed or self.failed)
            size = 0
            while self._queue and not self._closed:
                unit = self._queue[0]
                size += unit.size_bytes
                first = self._sending[0] if self._sending else None
                if first is not None and not self._goes_with(first, unit, size):
                    break
                self._sending.append(self._queue.popleft())
            if self._one_by_one:
                self._one_by_one -= 1
            return list(self._sending)

    def _goes_with(self, first: Unit, unit: Unit, size: int) -> bool:
        if first.alone or unit.alone or self._one_by_one or first.txids != unit.txids:
            return False
        return size <= self._delivery.config.request_bytes_max

    def _written(self, units: list[Unit], runs: tuple[SlotRange, ...]) -> None:
        for unit, places in places_of(units, runs):
            unit.written(places)
        self._done(units, runs[-1].last)

    def _split(self, units: list[Unit]) -> None:
        """They were refused together: one of them may be what was refused."""
        with self._changed:
            self._sending = []
            self._queue.extendleft(reversed(units))
            self._one_by_one = len(units)

    def _refused(self, unit: Unit, error: BaseException) -> None:
        """It is not in the log, and neither is what follows of its batch."""
        rest: list[Unit] = []
        with self._changed:
            if isinstance(unit, BatchPart):
                rest = [one for one in self._queue if isinstance(one, BatchPart) and one.ack is unit.ack]
                self._queue = deque(one for one in self._queue if one not in rest)
        unit.fail(error)
        if self._config.durable_writes:
            self._done([unit, *rest], None)
        else:
            self._fail(error)  # nobody else would hear of it

    def _done(self, units: list[Unit], last: DLSN | None) -> None:
        with self._changed:
            self._sending = []
            self._pending_bytes -= sum(_held_bytes(unit) for unit in units)
            self._last_dlsn = last or self._last_dlsn
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            dropped = [*self._sending, *self._queue]
            self._queue.clear()
            self._sending = []
            self._changed.notify_all()
        for unit in dropped:
            unit.fail(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._failure_raised = True
            raise self._failure

    def _check_open(self) -> None:
        self._raise_failure()
        if self._closed:
            raise LogClosed(f"log '{self._log}': the writer is closed; open a new one")

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        self._check_open()
        if not batch.num_rows:
            raise LogError(f"log '{self._log}': a batch without rows has no place in the log; leave it out")


def _held_bytes(unit: Unit) -> int:
    return unit.size_bytes + (FUTURE_BYTES if isinstance(unit, SingleRecord) else 0)
