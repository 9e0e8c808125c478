"""When records came to a store: the first record of what it appends at once has the time as its key.

Records of a log carry no time of their own, and the transaction ids of a partition's log are its sequences. So the key
of the first record of each append is the time of that, and all others have none: a log grows by next to nothing. Who
asks which record was the first at a time gets the first of an append at that time or later. It is found by bisection,
within what segments say of when they were completed.

What was stored before keys were times, or its first records without the one that had the time, counts as of that time
or later: who asks begins too early rather than too late. That holds as long as clocks do not go back.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.wire import KnownOfTime
from scribengin.errors import EndOfStream
from scribengin.log import FIRST, LogReader, Start, Time, TransactionId

_TIME_BYTES = 8
_SCANNED_MAX = 200_000
"""So far the next time is looked for: nobody appends so many records at once."""
_TIME_MAX = 1 << 62
_AT_ONCE = 65_536


class _Stamp(NamedTuple):
    """The record that has a time, and the time. No time: none was found as far as was looked."""

    sequence: int
    at_ms: int | None


class StoredTime(NamedTuple):
    """What a store knows of a time: as in TimeFound."""

    known: KnownOfTime
    sequence: int


def keys_of(records: int, at_ms: int | None) -> pa.Array:
    """The keys of so many records, at least one, that are appended at once."""
    if at_ms is None:
        return pa.nulls(records, pa.binary())
    first = pa.array([at_ms.to_bytes(_TIME_BYTES, "big")], pa.binary())
    return pa.concat_arrays([first, pa.nulls(records - 1, pa.binary())])


def find_time(logs: StoredPartitions, name: str, end: int, at_ms: int) -> StoredTime:
    """Which record of the log was the first at that time or later, of those before `end`. Raises what the log store
    raises."""
    first = _first_of(logs, name, FIRST)
    if first is None:
        return StoredTime(KnownOfTime.BEGINS, end)
    begin = _first_of(logs, name, Time(min(at_ms, _TIME_MAX)))
    if begin is None or begin >= end:
        return StoredTime(KnownOfTime.WHERE, end)
    stamp = _next_stamp(logs, name, begin)
    if stamp is None or stamp.at_ms is None or stamp.at_ms >= at_ms:
        is_all_before_older = begin > first or first == 0
        return StoredTime(KnownOfTime.WHERE if is_all_before_older else KnownOfTime.BEGINS, begin)
    return StoredTime(KnownOfTime.WHERE, _bisected(logs, name, stamp.sequence, end, at_ms))


def _bisected(logs: StoredPartitions, name: str, older: int, end: int, at_ms: int) -> int:
    """The first record of an append at that time or later, behind one that is older; `end` if there is none."""
    found, high = end, end
    while older + 1 < high:
        middle = (older + high) // 2
        stamp = _next_stamp(logs, name, middle)
        if stamp is not None and stamp.at_ms is not None and stamp.at_ms < at_ms:
            older = stamp.sequence
            continue
        high = middle
        if stamp is not None and stamp.sequence < end:
            found = stamp.sequence
    return found


def _first_of(logs: StoredPartitions, name: str, start: Start) -> int | None:
    """The sequence of the first record from there on. None: there is none."""
    with logs.namespace.open_reader(name, start) as reader:
        batch = _batch(reader, 1)
        return None if batch is None else int(batch.column("txid")[0].as_py())


def _next_stamp(logs: StoredPartitions, name: str, sequence: int) -> _Stamp | None:
    """The first record from that sequence on that has a time. None: none has, up to the end of the log."""
    scanned = 0
    with logs.namespace.open_reader(name, TransactionId(sequence)) as reader:
        while (batch := _batch(reader, _AT_ONCE)) is not None:
            at = pc.index(batch.column("key").is_valid(), True).as_py()
            if at >= 0:
                key = batch.column("key")[at].as_py()
                time_ms = int.from_bytes(key, "big") if len(key) == _TIME_BYTES else None
                return _Stamp(batch.column("txid")[at].as_py(), time_ms)
            scanned += batch.num_rows
            if scanned >= _SCANNED_MAX:
                return _Stamp(sequence, None)
    return None


def _batch(reader: LogReader, records_max: int) -> pa.RecordBatch | None:
    try:
        batch = reader.read_batch(records_max, place=False)
    except EndOfStream:
        return None
    return batch if batch is not None and batch.num_rows else None
