"""From what callers hand in to the bodies of entries: whole batches, or records one by one. Pure; no I/O.

Everything a record can be refused for is found here, before anything of its batch is written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.errors import LogError, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log.config import LogConfig
from scribengin.log.dlsn import DLSN
from scribengin.log.entry import BODY_SCHEMA, PAYLOAD, EncodedEntry, EntryType, encode

TXID_NONE = -999
"""The last transaction id of a log that has none yet, as DistributedLog's INVALID_TXID."""
TXID_MAX = 2**63 - 2


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it is written. `txid` is set."""

    txid: int
    channel: str | None
    key: bytes | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it was read. `sequence_id` counts the records of the log from 0."""

    dlsn: DLSN
    sequence_id: int
    txid: int
    payload: bytes
    key: bytes | None
    channel: str | None


def check_txid(log: str, txid: int, last: int) -> None:
    """Raises TransactionIdOutOfOrder unless `txid` may follow `last`."""
    if not (0 <= txid <= TXID_MAX and txid >= last):
        raise TransactionIdOutOfOrder(
            f"log '{log}': transaction id {txid} after {last}: ids never decrease and lie in [0, 2^63-2]; "
            "leave them out to have them assigned, or create the log with check_txids=false"
        )


def check_size(log: str, what: str, size: int, config: LogConfig) -> None:
    """Raises RecordTooLarge."""
    if size > config.record_bytes_max:
        raise RecordTooLarge(
            f"log '{log}': a {what} of {size} bytes, the log takes {config.record_bytes_max}; "
            "create it with a larger record_bytes_max"
        )


def check_record(log: str, record: Record, config: LogConfig, *, last_txid: int) -> None:
    """Raises LogError (wrong types), RecordTooLarge, TransactionIdOutOfOrder: what would fail later, fails here."""
    key = b"" if record.key is None else record.key
    if not (isinstance(record.payload, bytes) and isinstance(key, bytes) and isinstance(record.txid, int)):
        raise LogError(f"log '{log}': payload and key are bytes, the transaction id is a number: {record!r:.200}")
    if record.channel is not None and not (isinstance(record.channel, str) and _is_text(record.channel)):
        raise LogError(f"log '{log}': the channel {record.channel!r:.200} is no text")
    check_size(log, PAYLOAD, len(record.payload), config)
    check_size(log, "key", len(key), config)
    if config.check_txids or not -(2**63) <= record.txid <= TXID_MAX:
        check_txid(log, record.txid, last_txid)


def _is_text(channel: str) -> bool:
    try:
        channel.encode()
    except UnicodeEncodeError:
        return False
    return True


def body_of_batch(
    log: str, batch: pa.RecordBatch, config: LogConfig, *, last_txid: int, now_ms: Callable[[], int]
) -> pa.RecordBatch:
    """`batch` as BODY_SCHEMA. It needs `payload`; `txid`, `channel`, `key` may be missing or null, the rest is
    ignored.

    Raises LogError (no or null payload, wrong type), RecordTooLarge, TransactionIdOutOfOrder.
    """
    payload = _column(log, batch, PAYLOAD)
    if payload.null_count or PAYLOAD not in batch.schema.names:
        raise LogError(f"log '{log}': every record needs a payload; an empty one is fine, null is not")
    key = _column(log, batch, "key")
    for name, column in ((PAYLOAD, payload), ("key", key)):
        check_size(log, name, _longest(column, config.record_bytes_max), config)
    txids = _txids(log, batch, config, last_txid, now_ms)
    kinds = pa.repeat(pa.scalar(0, pa.uint8()), batch.num_rows)
    columns = [txids, kinds, _column(log, batch, "channel"), key, payload]
    return pa.RecordBatch.from_arrays(columns, schema=BODY_SCHEMA)


def body_of_records(records: Sequence[Record]) -> pa.RecordBatch:
    """Records that were checked one by one, as BODY_SCHEMA."""
    columns = [
        pa.array([record.txid for record in records], pa.int64()),
        pa.repeat(pa.scalar(0, pa.uint8()), len(records)),
        pa.array([record.channel for record in records], pa.string()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.payload for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BODY_SCHEMA)


def control_entry(payload: bytes, txid: int) -> EncodedEntry:
    """An entry of type 2: one record that readers never see."""
    body = body_of_records([Record(txid=txid, channel=None, key=None, payload=payload)])
    return encode(body).as_type(EntryType.CONTROL)


def encoded_entries(body: pa.RecordBatch, config: LogConfig) -> list[EncodedEntry]:
    """Cut a body of at least one row into entries of about `entry_bytes_max`, and encode them."""
    return [encode(piece, codec=config.codec) for piece in _pieces(body, config.entry_bytes_max)]


def _pieces(body: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if body.nbytes <= bytes_max:
        yield body
        return
    fixed = 8 + 1 + 3 * 4  # txid, type, three offsets
    offsets = [_offsets(body.column(name)) for name in ("channel", "key", PAYLOAD)]

    def bytes_before(row: int) -> int:
        return row * fixed + sum(column[row] for column in offsets)

    start = 0
    while start < body.num_rows:
        target = bytes_before(start) + bytes_max
        fit = bisect_right(range(start + 1, body.num_rows + 1), target, key=bytes_before)
        end = start + max(fit, 1)
        yield body.slice(start, end - start)
        start = end


def _offsets(column: pa.Array) -> memoryview:
    buffer = column.buffers()[1]
    return memoryview(buffer).cast("i")[column.offset : column.offset + len(column) + 1]


def _longest(column: pa.Array, limit: int) -> int:
    data = column.buffers()[2]
    if data is None or data.size <= limit:  # no value is longer than all of them together
        return 0
    return int(pc.max(pc.binary_length(column)).as_py() or 0)


def _column(log: str, batch: pa.RecordBatch, name: str) -> pa.Array:
    wanted = BODY_SCHEMA.field(name).type
    at = batch.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(batch.num_rows, wanted)
    column = batch.column(at)
    if column.type == wanted:
        return column
    try:
        return column.cast(wanted)
    except pa.ArrowException as error:
        why = str(error).splitlines()[0]
        raise LogError(f"log '{log}': column '{name}' is {column.type} and not {wanted}: {why}") from None


def _txids(log: str, batch: pa.RecordBatch, config: LogConfig, last_txid: int, now_ms: Callable[[], int]) -> pa.Array:
    given = _column(log, batch, "txid")
    if given.null_count == len(given):
        return pa.repeat(pa.scalar(max(last_txid, now_ms()), pa.int64()), len(given))
    if given.null_count:
        # One without belongs to the record before it; those that come first, to the first that has one.
        given = pc.fill_null_backward(pc.fill_null_forward(given))
    if config.check_txids:
        check_txid(log, given[0].as_py(), last_txid)
        if len(given) > 1 and not pc.all(pc.less_equal(given[:-1], given[1:])).as_py():
            _raise_first_decrease(log, given)
        check_txid(log, given[-1].as_py(), last_txid)
    return given


def _raise_first_decrease(log: str, txids: pa.Array) -> None:
    values = txids.to_pylist()
    for before, after in pairwise(values):
        check_txid(log, after, before)
