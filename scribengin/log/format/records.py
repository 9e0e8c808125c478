"""From what callers hand in to the bodies of entries: whole batches, or records one by one. Pure; no I/O.

Everything a record can be refused for is found here, before anything of its batch is written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from shlex import quote

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.base.names import given_twice
from scribengin.base.records import PAYLOAD
from scribengin.base.text.counting import many
from scribengin.base.text.refusals import did_you_mean
from scribengin.errors import LogError, RecordTooLarge, TransactionIdOutOfOrder
from scribengin.log.config import LogConfig
from scribengin.log.format.columns import numbers, texts
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import BODY_SCHEMA, EncodedEntry, EntryType, encode

TXID_NONE = -999
"""The last transaction id of a log that has none yet, as DistributedLog's INVALID_TXID."""
TXID_MAX = 2**63 - 2
TYPE_MAX = 2**16 - 1
"""Boomscooter's message types have 16 bits."""
_FIXED_BYTES = 8 + 2 + 3 * 4
"""What a record takes in a body whatever it holds: transaction id, type, three offsets."""
_OVERHEAD_BYTES = _FIXED_BYTES + 1
"""The same, with its share of the null bits."""
PLACE_COLUMNS = ("segment", "entry", "slot", "sequence_id")
"""What a reader says beside each record: its DLSN and its sequence id."""
LOG_COLUMN = "log"
"""And a reader of several logs: which one it is of."""
_KNOWN_COLUMNS = frozenset((*BODY_SCHEMA.names, *PLACE_COLUMNS, LOG_COLUMN))


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it is written. `txid` is set."""

    txid: int
    channel: str | None
    key: bytes | None
    payload: bytes
    type: int = 0

    @property
    def size_bytes(self) -> int:
        """What it takes in an entry's body, about."""
        return len(self.payload) + len(self.key or b"") + len(self.channel or "") + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it was read. `sequence_id` counts the records of the log from 0."""

    dlsn: DLSN
    sequence_id: int
    txid: int
    payload: bytes
    key: bytes | None
    channel: str | None
    type: int = 0


def check_txid(log: str, txid: int, last: int) -> None:
    """Raises TransactionIdOutOfOrder unless `txid` may follow `last`."""
    if not (0 <= txid <= TXID_MAX and txid >= last):
        raise out_of_order(log, txid, last)


def assigned_txid(last: int, now_ms: int) -> int:
    """The transaction id of a record that comes without one. A log that was written before the largest number was
    refused may end with it."""
    return min(TXID_MAX, max(last, now_ms))


def out_of_order(log: str, txid: int, last: int) -> TransactionIdOutOfOrder:
    """The error of a transaction id that may not follow `last`."""
    if not -(2**63) <= txid <= TXID_MAX:
        return TransactionIdOutOfOrder(
            f"log '{log}': transaction id {txid}: ids are numbers of 64 bits, and the largest is 2^63-2; "
            "choose another, or leave it out to have one assigned"
        )
    return TransactionIdOutOfOrder(
        f"log '{log}': transaction id {txid} after {last}: ids never decrease and lie in [0, 2^63-2]; "
        "leave them out to have them assigned, or create the log with check_txids=false"
    )


def check_size(log: str, what: str, size: int, config: LogConfig) -> None:
    """Raises RecordTooLarge."""
    if size > config.record_bytes_max:
        raise too_large(log, what, size, config)


def too_large(log: str, what: str, size: int, config: LogConfig) -> RecordTooLarge:
    """The error of a payload or key that is larger than the log takes."""
    return RecordTooLarge(
        f"log '{log}': a {what} of {size} bytes, the log takes {config.record_bytes_max}; raise that for its next "
        f"writer: {_configure(log, 'record_bytes_max', size)}"
    )


def _configure(log: str, key: str, value: int) -> str:
    return (
        f"`scribengin log configure {quote(log)} --set {key}={value}` (with its --namespace, where that is not /logs)"
    )


def check_batch(log: str, batch: pa.RecordBatch) -> None:
    """Raises LogError for what is no batch of records, has no rows, or a column that no record has."""
    if (why := batch_refusal(batch)) is not None:
        raise LogError(f"log '{log}': {why}")


def batch_refusal(batch: pa.RecordBatch) -> str | None:
    """Why that is no batch of records, whatever its rows hold; None if it is one. What readers say beside the records
    is passed over: what was read is written as it is."""
    if not isinstance(batch, pa.RecordBatch):
        return (
            f"records come as a pyarrow.RecordBatch, and this is a {type(batch).__name__}: "
            "write each of `table.to_batches()`, or make one by `pyarrow.record_batch({'payload': [...]})`"
        )
    names = batch.schema.names
    if (unknown := next((name for name in names if name not in _KNOWN_COLUMNS), None)) is not None:
        if PAYLOAD not in names:
            return _without_payload(names)
        meant = did_you_mean(unknown, BODY_SCHEMA.names) or f" (there are: {', '.join(BODY_SCHEMA.names)})"
        return f"a record has no column '{unknown}'{meant}"
    if len(set(names)) < len(names):
        return f"two columns are called '{given_twice(names)}': drop or rename one"
    return None if batch.num_rows else "a batch without rows has no place in the log; leave it out"


def _without_payload(names: Sequence[str]) -> str:
    return f"a batch needs the column '{PAYLOAD}' (there are: {', '.join(names) or 'none'})"


def no_payload(log: str) -> LogError:
    """The error of a record without payload."""
    return LogError(f"log '{log}': every record needs a payload; an empty one is fine, null is not")


def frozen(value: bytes | bytearray | memoryview) -> bytes:
    """The bytes of what can hold bytes, as they are now. Anything else is returned as it is, for `check_record`."""
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def check_record(log: str, record: Record, config: LogConfig, *, last_txid: int) -> None:
    """Raises LogError (wrong types), RecordTooLarge, TransactionIdOutOfOrder: what would fail later, fails here."""
    key = b"" if record.key is None else record.key
    if not (isinstance(record.payload, bytes) and isinstance(key, bytes) and isinstance(record.txid, int)):
        raise LogError(f"log '{log}': payload and key are bytes, the transaction id is a number: {record!r:.200}")
    if record.channel is not None and not (isinstance(record.channel, str) and _is_text(record.channel)):
        raise LogError(f"log '{log}': the channel {record.channel!r:.200} is no text")
    if not (isinstance(record.type, int) and 0 <= record.type <= TYPE_MAX):
        raise LogError(f"log '{log}': the message type {record.type!r:.200} is no number in [0, {TYPE_MAX}]")
    check_size(log, PAYLOAD, len(record.payload), config)
    check_size(log, "key", len(key), config)
    check_size(log, "channel", len(record.channel or ""), config)
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
    """`batch` as BODY_SCHEMA. It needs `payload`; `txid`, `type`, `channel`, `key` may be missing or null, the rest is
    ignored.

    Raises LogError (no or null payload, wrong type), RecordTooLarge, TransactionIdOutOfOrder.
    """
    if PAYLOAD not in batch.schema.names:
        raise LogError(f"log '{log}': {_without_payload(batch.schema.names)}")
    payload = body_column(log, batch, PAYLOAD)
    if payload.null_count:
        raise no_payload(log)
    key = body_column(log, batch, "key")
    channel = body_column(log, batch, "channel")
    for name, column in ((PAYLOAD, payload), ("key", key), ("channel", channel)):
        check_size(log, name, _longest(column, config.record_bytes_max), config)
    txids = _txids(log, batch, config, last_txid, now_ms)
    columns = [txids, _types(log, batch), channel, key, payload]
    return pa.RecordBatch.from_arrays(columns, schema=BODY_SCHEMA)


def body_of_records(records: Sequence[Record]) -> pa.RecordBatch:
    """Records that were checked one by one, as BODY_SCHEMA."""
    columns = [
        numbers([record.txid for record in records], pa.int64(), "q"),
        numbers([record.type for record in records], pa.uint16(), "H"),
        texts([record.channel for record in records], pa.string()),
        texts([record.key for record in records], pa.binary()),
        texts([record.payload for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BODY_SCHEMA)


def control_entry(payload: bytes, txid: int) -> EncodedEntry:
    """An entry of type 2: one record that readers never see."""
    return _hidden_entry(payload, txid).as_type(EntryType.CONTROL)


def keep_alive_entry(txid: int, payload: bytes = b"keepalive") -> EncodedEntry:
    """An entry of type 4: the writer is there, and readers see nothing of it. `txid` is the log's last."""
    return _hidden_entry(payload, txid).as_type(EntryType.KEEP_ALIVE)


def _hidden_entry(payload: bytes, txid: int) -> EncodedEntry:
    return encode(body_of_records([Record(txid, None, None, payload)]))


def encoded_entries(body: pa.RecordBatch, config: LogConfig) -> list[EncodedEntry]:
    """Cut a body of at least one row into entries of about `entry_bytes_max`, and encode them."""
    return [encode(piece, codec=config.codec) for piece in pieces(body, config.entry_bytes_max)]


def check_atomic(log: str, body: pa.RecordBatch, config: LogConfig) -> None:
    """Raises RecordTooLarge if the rows of a body are more than `entry_bytes_max` together, and so would be cut."""
    if body.num_rows > 1 and body.nbytes > config.entry_bytes_max:
        raise RecordTooLarge(
            f"log '{log}': {many(body.num_rows, 'record')} of {body.nbytes} bytes together, the log takes "
            f"{config.entry_bytes_max} at once; write fewer of them, or raise that for its next writer: "
            + _configure(log, "entry_bytes_max", body.nbytes)
        )


def atomic_entry(log: str, body: pa.RecordBatch, config: LogConfig) -> EncodedEntry:
    """All rows of a body as one entry. Raises as `check_atomic`."""
    check_atomic(log, body, config)
    return encode(body, codec=config.codec)


def pieces(body: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """A body of at least one row, cut into parts of about `bytes_max`."""
    for piece, _size in sized_pieces(body, bytes_max):
        yield piece


def sized_pieces(body: pa.RecordBatch, bytes_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The same, each with its bytes: it costs to ask for those."""
    size = body.nbytes
    if size <= bytes_max:
        yield body, size
        return
    offsets = [_offsets(body.column(name)) for name in ("channel", "key", PAYLOAD)]

    def bytes_before(row: int) -> int:
        return row * _FIXED_BYTES + sum(column[row] for column in offsets)

    start = 0
    while start < body.num_rows:
        target = bytes_before(start) + bytes_max
        fit = bisect_right(range(start + 1, body.num_rows + 1), target, key=bytes_before)
        end = start + max(fit, 1)
        piece = body.slice(start, end - start)
        yield piece, piece.nbytes
        start = end


def _offsets(column: pa.Array) -> memoryview:
    buffer = column.buffers()[1]
    return memoryview(buffer).cast("i")[column.offset : column.offset + len(column) + 1]


def _longest(column: pa.Array, limit: int) -> int:
    data = column.buffers()[2]
    if data is None or data.size <= limit:  # no value is longer than all of them together
        return 0
    return int(pc.max(pc.binary_length(column)).as_py() or 0)


def body_column(log: str, batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column `name` as BODY_SCHEMA has it, nulls if it is missing. Raises LogError for a type that cannot be
    that."""
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


def _types(log: str, batch: pa.RecordBatch) -> pa.Array:
    if "type" not in batch.schema.names:
        return pa.repeat(pa.scalar(0, pa.uint16()), batch.num_rows)
    given = body_column(log, batch, "type")
    return pc.fill_null(given, 0) if given.null_count else given


def _txids(log: str, batch: pa.RecordBatch, config: LogConfig, last_txid: int, now_ms: Callable[[], int]) -> pa.Array:
    given = body_column(log, batch, "txid")
    if given.null_count == len(given):
        return pa.repeat(pa.scalar(assigned_txid(last_txid, now_ms()), pa.int64()), len(given))
    if given.null_count:
        # One without belongs to the record before it; those that come first, to the first that has one.
        given = pc.fill_null_backward(pc.fill_null_forward(given))
    if config.check_txids:
        check_txid(log, given[0].as_py(), last_txid)
        if len(given) > 1 and not pc.all(pc.less_equal(given[:-1], given[1:])).as_py():
            _raise_first_decrease(log, given)
        check_txid(log, given[-1].as_py(), last_txid)
    elif (largest := pc.max(given).as_py()) > TXID_MAX:
        raise out_of_order(log, largest, last_txid)
    return given


def _raise_first_decrease(log: str, txids: pa.Array) -> None:
    values = txids.to_pylist()
    for before, after in pairwise(values):
        check_txid(log, after, before)
