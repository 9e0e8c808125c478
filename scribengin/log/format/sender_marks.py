"""Marks: entries that say who sent the records of the entries behind them, and under which numbers.

A mark is an entry of type 4, whose one record readers never see. Its payload, little-endian: `senders1`, how many rows
of the table, how many of its own group, then the rows, of 48 bytes each. A row says that `records` records, from the
number on, stand in consecutive slots of one entry.

A row of the table names that entry by segment and entry id. A row of the group says how many entries behind the mark it
stands, in the same segment: it is void if the segment ends before that entry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from scribengin.base.records import PAYLOAD
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.format.records import keep_alive_entry

SENDER_BYTES = 16
_MAGIC = b"senders1"
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<16sqqqii")


class SentRun(NamedTuple):
    """Records of one sender with consecutive numbers, from `number` on, in consecutive slots of one entry."""

    sender: bytes
    number: int
    first: DLSN
    records: int

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return self.number + self.records - 1

    def from_number(self, number: int) -> SentRun:
        """The part of it from that number on, which is one of its own."""
        ahead = number - self.number
        return self._replace(
            number=number, first=self.first._replace(slot=self.first.slot + ahead), records=self.records - ahead
        )


class GroupRow(NamedTuple):
    """The same, where the entry is the `ahead`th behind the mark, from 0."""

    sender: bytes
    number: int
    ahead: int
    slot: int
    records: int

    def at(self, segment: int, mark: int) -> SentRun:
        """Where it stands, behind the entry `mark` of a segment."""
        return SentRun(self.sender, self.number, DLSN(segment, mark + 1 + self.ahead, self.slot), self.records)


class SenderMark(NamedTuple):
    """`table` is empty unless the segment begins with this mark."""

    table: tuple[SentRun, ...]
    group: tuple[GroupRow, ...]


def mark_entry(table: Sequence[SentRun], group: Sequence[GroupRow], txid: int) -> EncodedEntry:
    """The mark of a group. `txid` is the log's last."""
    payload = bytearray(_HEAD.pack(_MAGIC, len(table), len(group)))
    for run in table:
        payload += _ROW.pack(run.sender, run.number, run.first.segment, run.first.entry, run.first.slot, run.records)
    for row in group:
        payload += _ROW.pack(row.sender, row.number, 0, row.ahead, row.slot, row.records)
    return keep_alive_entry(txid, bytes(payload))


def read_mark(body: pa.RecordBatch) -> SenderMark | None:
    """What an entry of type 4 says as a mark; None: it is none."""
    payload: bytes = body.column(PAYLOAD)[0].as_py()
    if not payload.startswith(_MAGIC) or len(payload) < _HEAD.size:
        return None
    _magic, table_rows, group_rows = _HEAD.unpack_from(payload)
    if len(payload) != _HEAD.size + (table_rows + group_rows) * _ROW.size:
        return None
    rows = list(_ROW.iter_unpack(payload[_HEAD.size :]))
    table = tuple(SentRun(who, number, DLSN(s, e, slot), n) for who, number, s, e, slot, n in rows[:table_rows])
    group = tuple(GroupRow(who, number, e, slot, n) for who, number, _s, e, slot, n in rows[table_rows:])
    return SenderMark(table, group)
