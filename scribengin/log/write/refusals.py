"""Which rows of a batch a log does not take, and why: for writers that want the others written. Pure; no I/O."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.errors import LogError
from scribengin.log.config import LogConfig
from scribengin.log.format.entry import PAYLOAD
from scribengin.log.format.records import TXID_MAX, body_column, no_payload, out_of_order, too_large
from scribengin.log.write.results import RefusedRow

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


def split_refused(
    log: str, batch: pa.RecordBatch, config: LogConfig, *, last_txid: int
) -> tuple[pa.RecordBatch, tuple[RefusedRow, ...]]:
    """The rows of `batch` that the log takes, and those it does not: without a payload, too large, or with a
    transaction id that is less than that of a row before it which is taken.

    Raises LogError for a column of a wrong type: then no row says what it should.
    """
    refused = _unfit(log, batch, config)
    if config.check_txids:
        refused |= _out_of_order(log, body_column(log, batch, "txid"), last_txid, refused)
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
    return tuple(RefusedRow(row, refused[row]) for row in sorted(refused))


def _unfit(log: str, batch: pa.RecordBatch, config: LogConfig) -> dict[int, LogError]:
    """The rows without a payload, or with something that is too large."""
    refused: dict[int, LogError] = {}
    for name in (PAYLOAD, "key", "channel"):
        sizes = _numbers(pc.binary_length(body_column(log, batch, name)), -1)
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


def _numbers(column: pa.Array, missing: int) -> Numbers:
    numbers: Numbers = pc.fill_null(column, missing).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
