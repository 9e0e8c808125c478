"""What a reader hands out: slices of entries' bodies, with the records' places, filtered by channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import BODY_SCHEMA
from scribengin.log.format.records import PLACE_COLUMNS, LogRecord

READ_SCHEMA = pa.schema([*BODY_SCHEMA, *(pa.field(name, pa.int64()) for name in PLACE_COLUMNS)])
"""What `read_batch` returns: a record, its DLSN and its sequence id. Without places it is BODY_SCHEMA."""

_COUNTED = 65_536
_CHANNEL = BODY_SCHEMA.get_field_index("channel")


def with_place(batch: pa.RecordBatch, segment: int, entry: int, slot: int, sequence: int) -> pa.RecordBatch:
    """A slice of a body as READ_SCHEMA; its first record stands there."""
    rows = batch.num_rows
    columns = [*batch.columns, _same(segment, rows), _same(entry, rows), _count(slot, rows), _count(sequence, rows)]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def in_channels(batch: pa.RecordBatch, prefixes: Sequence[str]) -> pa.BooleanArray:
    """Which records' channels begin with one of the prefixes. Null for those without a channel: a filter drops them."""
    channel = batch.column(_CHANNEL)
    mask = pc.starts_with(channel, prefixes[0])
    for prefix in prefixes[1:]:
        mask = pc.or_(mask, pc.starts_with(channel, prefix))
    return mask


def first_true(mask: pa.BooleanArray) -> int:
    """The first row that is true; -1: none is."""
    row: int = pc.index(mask, _TRUE).as_py()
    return row


def records_of(batch: pa.RecordBatch) -> list[LogRecord]:
    """The rows of a batch of READ_SCHEMA, as objects."""
    columns = batch.to_pydict()
    rows = zip(*(columns[name] for name in READ_SCHEMA.names), strict=True)
    return [
        LogRecord(DLSN(segment, entry, slot), sequence, txid, payload, key, channel, kind)
        for txid, kind, channel, key, payload, segment, entry, slot, sequence in rows
    ]


def _int64s(rows: int, fill: Callable[[npt.NDArray[np.int64]], object]) -> pa.Array:
    """So many, which `fill` sets: in memory of Arrow's, which it keeps for the next ones.

    Arrow's functions that take Python's objects import pandas when they are first called. That takes 0.3 s: a reader
    that follows a log would be so late at some record in the middle of it."""
    buffer = pa.allocate_buffer(rows * pa.int64().byte_width)
    fill(np.frombuffer(buffer, np.int64))
    return pa.Array.from_buffers(pa.int64(), rows, [None, buffer])


_COUNTING = _int64s(_COUNTED, lambda places: np.copyto(places, np.arange(_COUNTED)))
_TRUE = pc.is_valid(_COUNTING.slice(0, 1))[0]


def _same(value: int, rows: int) -> pa.Array:
    return _count(value, 1) if rows == 1 else _int64s(rows, lambda places: places.fill(value))


def _count(start: int, rows: int) -> pa.Array:
    """start, start + 1, ... without a Python object for each."""
    if start + rows <= _COUNTED:
        return _COUNTING.slice(start, rows)
    return _int64s(rows, lambda places: np.copyto(places, np.arange(start, start + rows)))
