"""What a reader hands out: slices of entries' bodies, with the records' places, filtered by channel."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import BODY_SCHEMA
from scribengin.log.format.records import PLACE_COLUMNS, LogRecord

READ_SCHEMA = pa.schema([*BODY_SCHEMA, *(pa.field(name, pa.int64()) for name in PLACE_COLUMNS)])
"""What `read_batch` returns: a record, its DLSN and its sequence id. Without places it is BODY_SCHEMA."""

_FEW = 32
_COUNTED = 65_536
# `pa.array` imports pandas the first time, which costs each process 0.3 s, and most never need it.
_COUNTING = pa.Array.from_buffers(pa.int64(), _COUNTED, [None, pa.py_buffer(array("q", range(_COUNTED)))])
_CHANNEL = BODY_SCHEMA.get_field_index("channel")


def with_place(batch: pa.RecordBatch, segment: int, entry: int, slot: int, sequence: int) -> pa.RecordBatch:
    """A slice of a body as READ_SCHEMA; its first record stands there."""
    rows = batch.num_rows
    columns = [*batch.columns, _same(segment, rows), _same(entry, rows), _count(slot, rows), _count(sequence, rows)]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def in_channels(batch: pa.RecordBatch, prefixes: Sequence[str]) -> pa.BooleanArray:
    """Which records' channels begin with one of the prefixes. Those without a channel are none of them."""
    channel = batch.column(_CHANNEL)
    mask = pc.starts_with(channel, prefixes[0])
    for prefix in prefixes[1:]:
        mask = pc.or_(mask, pc.starts_with(channel, prefix))
    return pc.fill_null(mask, False)


def records_of(batch: pa.RecordBatch) -> list[LogRecord]:
    """The rows of a batch of READ_SCHEMA, as objects."""
    columns = batch.to_pydict()
    rows = zip(*(columns[name] for name in READ_SCHEMA.names), strict=True)
    return [
        LogRecord(DLSN(segment, entry, slot), sequence, txid, payload, key, channel, kind)
        for txid, kind, channel, key, payload, segment, entry, slot, sequence in rows
    ]


def _same(value: int, rows: int) -> pa.Array:
    if rows == 1:
        return _count(value, 1)
    if rows <= _FEW:
        return pa.array([value] * rows, pa.int64())
    return pa.repeat(pa.scalar(value, pa.int64()), rows)


def _count(start: int, rows: int) -> pa.Array:
    """start, start + 1, ... without a Python object for each, unless they are few: then that is faster."""
    if start + rows <= _COUNTED:
        return _COUNTING.slice(start, rows)
    if _FEW < rows <= _COUNTED:
        return pc.add(_COUNTING.slice(0, rows), start)
    return pa.array(range(start, start + rows), pa.int64())
