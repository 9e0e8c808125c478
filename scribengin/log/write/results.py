"""What becomes of a batch: its future, and, where each record counts by itself, the fate of every row.

Which rows a log does not take, and why, is found without I/O: for writers that want the others written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.records import PAYLOAD
from scribengin.errors import LogError
from scribengin.log.config import LogConfig
from scribengin.log.format.dlsn import DLSN, DlsnRange
from scribengin.log.format.records import TXID_MAX, body_column, no_payload, out_of_order, too_large

_T = TypeVar("_T")
DLSN_SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("segment", "entry", "slot")])
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


class SlotRange(NamedTuple):
    """Records that stand in consecutive slots of one entry, from `first` on."""

    first: DLSN
    records: int

    @property
    def last(self) -> DLSN:
        """Of the last of them."""
        return (
            self.first if self.first == DLSN.INVALID else self.first._replace(slot=self.first.slot + self.records - 1)
        )


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the log does not take, and why."""

    row: int
    error: LogError


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of each of `rows` rows: refused, written, or neither.

    `refused` is in order of rows. Those that were not refused stand, in order, in `written`. If `failure` is set, the
    writer ended before all of them were acknowledged: those that `written` leaves out may or may not be in the log. A
    log with `durable_writes` off gives no positions: they are DLSN.INVALID.
    """

    rows: int
    refused: tuple[RefusedRow, ...]
    written: tuple[SlotRange, ...]
    failure: BaseException | None = None

    @property
    def records_written(self) -> int:
        """How many rows were written."""
        return sum(run.records for run in self.written)

    def dlsns(self) -> pa.RecordBatch:
        """The position of every row, as DLSN_SCHEMA; null where it was not written."""
        taken = np.flatnonzero(self._taken())[: self.records_written]
        missing = np.ones(self.rows, bool)
        missing[taken] = False
        columns = np.zeros((3, self.rows), np.int64)
        if taken.size:
            columns[:, taken] = np.concatenate([_positions(run) for run in self.written], axis=1)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, pa.int64(), mask=missing) for column in columns], schema=DLSN_SCHEMA
        )

    def error(self, row: int) -> BaseException | None:
        """Why the row was not written, or not acknowledged; None if it was."""
        at = bisect_left(self.refused, row, key=lambda refused: refused.row)
        if at < len(self.refused) and self.refused[at].row == row:
            return self.refused[at].error
        taken_before = int(self._taken()[:row].sum())
        return self.failure if taken_before >= self.records_written else None

    def _taken(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        taken = np.ones(self.rows, bool)
        taken[[refused.row for refused in self.refused]] = False
        return taken


def _positions(run: SlotRange) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    first = run.first
    if first == DLSN.INVALID:
        return np.tile(np.array([first], np.int64).T, run.records)
    slots = np.arange(first.slot, first.slot + run.records)
    return np.stack([np.full(run.records, first.segment), np.full(run.records, first.entry), slots])


class Ack(ABC, Generic[_T]):
    """The future of a batch, which may be written in several groups. What is said first of its end, counts: a writer
    may be aborted by one thread while another one is queueing the rest of the batch."""

    def __init__(self) -> None:
        self.future: Future[_T] = Future()
        self.future.set_running_or_notify_cancel()  # what is on its way to the disk cannot be called back
        self._runs: list[SlotRange] = []

    def written(self, runs: Sequence[SlotRange], *, last: bool) -> None:
        """A part was written; with `last`, it was the last part."""
        self._runs.extend(runs)
        if last:
            with suppress(InvalidStateError):
                self.future.set_result(self._result(self._runs))

    def queued(self, records: int) -> None:
        """All of it is queued, and nobody waits until it is durable."""
        self.future.set_result(self._result([SlotRange(DLSN.INVALID, records)]))

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """The rest will not be written, or nobody knows whether it was."""

    @abstractmethod
    def _result(self, runs: Sequence[SlotRange]) -> _T: ...


class BulkAck(Ack[DlsnRange]):
    """Says where the batch stands, or raises."""

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def _result(self, runs: Sequence[SlotRange]) -> DlsnRange:
        return DlsnRange(runs[0].first, runs[-1].last)


class PartialAck(Ack[BulkResult]):
    """Says what became of every row, and never raises."""

    def __init__(self, rows: int, refused: tuple[RefusedRow, ...]) -> None:
        super().__init__()
        self._rows = rows
        self._refused = refused

    def nothing_taken(self) -> None:
        """Every row was refused."""
        self.future.set_result(self._result([]))

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_result(replace(self._result(self._runs), failure=error))

    def _result(self, runs: Sequence[SlotRange]) -> BulkResult:
        return BulkResult(self._rows, self._refused, tuple(runs))


def split_refused(
    log: str, batch: pa.RecordBatch, config: LogConfig, *, last_txid: int
) -> tuple[pa.RecordBatch, tuple[RefusedRow, ...]]:
    """The rows of `batch` that the log takes, and those it does not: without a payload, too large, or with a
    transaction id that is less than that of a row before it which is taken.

    Raises LogError for a column of a wrong type: then no row says what it should.
    """
    refused = _unfit(log, batch, config)
    txids = body_column(log, batch, "txid")
    refused |= _out_of_order(log, txids, last_txid, refused) if config.check_txids else _too_high(log, txids, last_txid)
    rows = tuple(RefusedRow(row, refused[row]) for row in sorted(refused))
    taken = np.ones(batch.num_rows, bool)
    taken[list(refused)] = False
    return (batch.filter(pa.array(taken)) if rows else batch), rows


def refused_alone(log: str, batch: pa.RecordBatch, config: LogConfig, *, last_txid: int) -> tuple[RefusedRow, ...]:
    """The rows of `batch` that the log does not take whatever stands beside them. Raises as `split_refused`."""
    refused = _unfit(log, batch, config)
    body_column(log, batch, "type")
    column = body_column(log, batch, "txid")
    if config.check_txids and column.null_count < len(column):
        txids = _numbers(column, max(last_txid, 0))
        wrong = np.flatnonzero((txids < max(last_txid, 0)) | (txids > TXID_MAX))
        refused |= {int(row): out_of_order(log, int(txids[row]), last_txid) for row in wrong}
    elif not config.check_txids:
        refused |= _too_high(log, column, last_txid)
    return tuple(RefusedRow(row, refused[row]) for row in sorted(refused))


def _unfit(log: str, batch: pa.RecordBatch, config: LogConfig) -> dict[int, LogError]:
    """The rows without a payload, or with something that is too large."""
    refused: dict[int, LogError] = {}
    for name in (PAYLOAD, "key", "channel"):
        column = body_column(log, batch, name)
        if name != PAYLOAD and column.null_count == len(column):
            continue  # most logs have no keys, or no channels
        sizes = _numbers(pc.binary_length(column), -1)
        if name == PAYLOAD:
            refused |= {int(row): no_payload(log) for row in np.flatnonzero(sizes < 0)}
        large = np.flatnonzero(sizes > config.record_bytes_max)
        refused |= {int(row): too_large(log, name, int(sizes[row]), config) for row in large}
    return refused


def _out_of_order(log: str, column: pa.Array, last_txid: int, refused: dict[int, LogError]) -> dict[int, LogError]:
    """A row that is refused does not move the last transaction id: the rows behind it are measured without it."""
    given = pc.is_valid(column).to_numpy(zero_copy_only=False)
    given[list(refused)] = False
    txids = _numbers(column, -1)
    possible = given & (txids >= 0) & (txids <= TXID_MAX)
    reached = np.maximum.accumulate(np.concatenate(([last_txid], np.where(possible, txids, last_txid))))[:-1]
    wrong = np.flatnonzero(given & ~(possible & (txids >= reached)))
    return {int(row): out_of_order(log, int(txids[row]), int(reached[row])) for row in wrong}


def _too_high(log: str, column: pa.Array, last_txid: int) -> dict[int, LogError]:
    """What no log takes, whether it checks transaction ids or not."""
    txids = _numbers(column, 0)
    return {int(row): out_of_order(log, int(txids[row]), last_txid) for row in np.flatnonzero(txids > TXID_MAX)}


def _numbers(column: pa.Array, missing: int) -> Numbers:
    numbers: Numbers = pc.fill_null(column, missing).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
