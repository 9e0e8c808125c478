"""What waits in a writer's queue until its group is written."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import EncodedEntry, encode
from scribengin.log.format.records import Record, body_of_records, keep_alive_entry
from scribengin.log.write.results import Ack, Run

_FUTURE_BYTES = 1536
"""What a record that was written by itself takes in memory while it waits: its future, mostly."""


class PendingRecords:
    """Records that were written one by one and wait to become one entry. `durable`: their futures wait, too."""

    entries_count = 1

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._records: list[Record] = []
        self._futures: list[Future[DLSN]] = []
        self.body_bytes = self.size_bytes = 0

    @property
    def records(self) -> int:
        return len(self._records)

    def add(self, record: Record, body_bytes: int) -> tuple[Future[DLSN], int]:
        """Take a record of that size. Its future, and how many bytes of memory it holds until it is written."""
        future: Future[DLSN] = Future()
        future.set_running_or_notify_cancel()  # what is on its way to the disk cannot be called back
        if self._durable:
            self._futures.append(future)
        else:
            future.set_result(DLSN.INVALID)
        self._records.append(record)
        self.body_bytes += body_bytes
        self.size_bytes += body_bytes + _FUTURE_BYTES
        return future, body_bytes + _FUTURE_BYTES

    def entries(self, codec: str) -> Sequence[EncodedEntry]:
        return [encode(body_of_records(self._records), codec=codec)]

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        segment, entry, _slot = firsts[0]
        for slot, future in enumerate(self._futures):
            future.set_result(DLSN(segment, entry, slot))
        return DLSN(segment, entry, len(self._records) - 1)

    def fail(self, error: BaseException) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class PendingBulk:
    """Entries of one batch that fit into a group. `last`: the batch ends with them."""

    def __init__(self, entries: Sequence[EncodedEntry], ack: Ack[Any], *, last: bool) -> None:
        self._entries = entries
        self._ack = ack
        self._last = last
        self.entries_count = len(entries)
        self.records = sum(entry.records for entry in entries)
        self.body_bytes = self.size_bytes = sum(entry.body_bytes for entry in entries)

    def entries(self, _codec: str) -> Sequence[EncodedEntry]:
        return self._entries

    def resolve(self, firsts: Sequence[DLSN]) -> DLSN:
        runs = [Run(first, entry.records) for first, entry in zip(firsts, self._entries, strict=True)]
        self._ack.written(runs, last=self._last)
        return runs[-1].last

    def fail(self, error: BaseException) -> None:
        self._ack.fail(error)


class PendingKeepAlive:
    """An entry that says that the writer is there. Nobody waits for it."""

    entries_count = 1
    records = body_bytes = size_bytes = 0

    def __init__(self, last_txid: int) -> None:
        self._last_txid = last_txid

    def entries(self, _codec: str) -> Sequence[EncodedEntry]:
        return [keep_alive_entry(self._last_txid)]

    def resolve(self, _firsts: Sequence[DLSN]) -> None:
        return

    def fail(self, error: BaseException) -> None:
        return


Pending = PendingRecords | PendingBulk | PendingKeepAlive
