"""Where a reader gets its entries from: one by one, or verified by other threads ahead of it.

The order is always that of one cursor, which only the caller's thread moves: it walks headers, and hands the bodies
that stand behind them to the threads, which do nothing but verify. So nothing can come twice or be left out, however
often the threads are ahead, and an error is raised when the entries before it have been taken.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from scribengin.errors import DamagedEntry, ScribenginError
from scribengin.log.config import ReadAhead
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import Damage, EntryHeader
from scribengin.log.read.catalog import SegmentReader
from scribengin.log.read.cursor import EntryCursor, PassedOver
from scribengin.log.store.index import EntryPlace
from scribengin_registry.errors import RegistryUnreachable, SessionLost

_WORTH_A_THREAD_BYTES = 32 * 1024
"""Below this the checksum keeps the interpreter's lock, and a thread costs more than it saves."""


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """A verified entry. `body` is None for those without records; `cold`: it comes out of cold storage."""

    segment: int
    header: EntryHeader
    body: pa.RecordBatch | None
    cold: bool


class Entries(Protocol):
    """The entries of a log in order. Not thread-safe."""

    passed_over: PassedOver

    @property
    def position(self) -> DLSN:
        """Behind the entry that `next` returned last."""
        ...

    def next(self) -> ReadEntry | None:
        """The next one; None: there is none just now. Raises as `EntryCursor.next`."""
        ...

    def close(self) -> None:
        """End what works in the background. Idempotent."""
        ...


class EntriesInTurn:
    """Verifies each entry when it is asked for."""

    def __init__(self, cursor: EntryCursor, *, skip_damaged: bool) -> None:
        self._cursor = cursor
        self._skip_damaged = skip_damaged
        self.passed_over = cursor.passed_over
        self.position = cursor.position

    def next(self) -> ReadEntry | None:
        while (found := self._cursor.next()) is not None:
            reader, place = found
            try:
                body = reader.body(place) if place.header.carries_records else None
            except DamagedEntry:
                if not self._skip_damaged:
                    raise
                self.passed_over.add(1, place.header.size)
                continue
            self.position = self._cursor.position
            return ReadEntry(self.position.segment, place.header, body, reader.cold is not None)
        self.position = self._cursor.position
        return None

    def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Ahead:
    """An entry that the cursor has passed, and the caller has not taken. `body` is None if no thread looks at it."""

    reader: SegmentReader
    place: EntryPlace
    behind: DLSN
    stored: pa.Buffer | None
    body: Future[pa.RecordBatch | Damage] | None


class EntriesAhead:
    """Keeps the next entries being verified by threads, within limits."""

    def __init__(self, cursor: EntryCursor, limits: ReadAhead, *, skip_damaged: bool) -> None:
        self._cursor = cursor
        self._limits = limits
        self._skip_damaged = skip_damaged
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="log-read-ahead")
        self._ahead: deque[_Ahead] = deque()
        self._bytes = 0
        self._failure: ScribenginError | None = None
        self.passed_over = cursor.passed_over
        self.position = cursor.position

    def next(self) -> ReadEntry | None:
        while True:
            self._fill()
            if not self._ahead:
                if self._failure is not None:
                    raise self._failure
                self.position = self._cursor.position
                return None
            taken = self._ahead.popleft()
            self._bytes -= taken.place.header.size
            try:
                body = self._body(taken)
            except DamagedEntry:
                if not self._skip_damaged:
                    raise
                self.passed_over.add(1, taken.place.header.size)
                continue
            self.position = taken.behind
            return ReadEntry(taken.behind.segment, taken.place.header, body, taken.reader.cold is not None)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        limits = self._limits
        if not self._ahead and isinstance(self._failure, (RegistryUnreachable, SessionLost)):
            self._failure = None  # the cursor stands where it stood: it may have passed meanwhile
        while self._failure is None and len(self._ahead) < limits.entries_max and self._bytes < limits.bytes_max:
            try:
                found = self._cursor.next()
                if found is None:
                    return
                self._ahead.append(self._started(*found))
            except ScribenginError as error:  # the caller gets to it when what comes before is taken
                self._failure = error
                return
            self._bytes += found[1].header.size

    def _started(self, reader: SegmentReader, place: EntryPlace) -> _Ahead:
        behind = self._cursor.position
        if not place.header.carries_records:
            return _Ahead(reader, place, behind, None, None)
        stored = reader.stored_body(place)
        if place.header.body_bytes < _WORTH_A_THREAD_BYTES:
            return _Ahead(reader, place, behind, stored, None)
        return _Ahead(reader, place, behind, None, self._threads.submit(reader.decoded, place, stored))

    def _body(self, taken: _Ahead) -> pa.RecordBatch | None:
        if taken.body is not None:
            return taken.reader.checked(taken.place, taken.body.result())
        if taken.stored is not None:
            return taken.reader.checked(taken.place, taken.reader.decoded(taken.place, taken.stored))
        return None
