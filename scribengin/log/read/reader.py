"""Readers of a log: record batches from a position, across segments, following the tail; and ranges for dataflows.

The mistake to avoid: going on with a reader that has failed. What it raised says where it stopped; its position may be
in the middle of what is damaged, truncated, or somebody else's. So the first failure is final, and every later read
raises it again, until a new reader is opened.

`IdleWatch` tells a log where nothing happens from one that is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.names import log_command
from scribengin.errors import ColdSegmentMissing, DamagedEntry, LogClosed, ReadCancelled, ReaderIdle, ScribenginError
from scribengin.log.config import ReaderConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.records import LogRecord
from scribengin.log.metadata.reader_lock import SubscriberLock
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.metrics import LogMetrics
from scribengin.log.read.batches import first_true, in_channels, records_of, with_place
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.read.cursor import EntryCursor
from scribengin.log.read.ranges import RangePlan, plan_range
from scribengin.log.read.read_ahead import Entries, EntriesAhead, EntriesInTurn, ReadEntry
from scribengin.log.read.starts import Start, find_txid, locate
from scribengin.log.store.contract import SegmentStore
from scribengin_registry.errors import RegistryUnreachable, SessionLost

_T = TypeVar("_T")
_PLAIN = ReaderConfig()


class RecordPlace(NamedTuple):
    """Where a record stands. Of the records behind it in the same batch each stands a slot further, unless records of
    other channels were left out in between."""

    dlsn: DLSN
    sequence_id: int


class LogReader(ClosedAtExit):
    """Reads one log, for one thread; `close` may be called from any. Made by `LogNamespace.open_reader`."""

    def __init__(
        self,
        catalog: LogCatalog,
        start: Start,
        clock: Clock,
        config: ReaderConfig = _PLAIN,
        *,
        lock: SubscriberLock | None = None,
        metrics: LogMetrics | None = None,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._config = config
        self._lock = lock
        self._metrics = metrics
        self._calling = threading.RLock()
        """Held while a call is under way, so that `close` ends nothing that is in use."""
        self._closed = False
        self._failure: Exception | None = None
        self._position, self._gate = locate(catalog, start, skip_damaged=config.skip_damaged)
        self._entries = self._entries_from(self._position)
        self._entry: ReadEntry | None = None
        """The one that the position lies in, when that is known."""
        self._last: RecordPlace | None = None
        self._idle = IdleWatch(catalog, config, clock)

    @property
    def directory(self) -> str:
        """What tells this log from another one that had, or will have, its name."""
        return self._catalog.log.directory

    @property
    def position(self) -> DLSN:
        """Of the first record that has not been read: a reader that starts there goes on."""
        return self._position

    @property
    def last_place(self) -> RecordPlace | None:
        """Where the first record of the batch stands that was read last; None before any was."""
        return self._last

    @property
    def damaged_entries(self) -> int:
        """How many entries were passed over because of `skip_damaged`."""
        return self._entries.passed_over.entries

    @property
    def damaged_bytes(self) -> int:
        """How many bytes those took, as stored."""
        return self._entries.passed_over.bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing has come for `idle_warn_s`, not even a keep-alive."""
        return self._idle.is_idle

    def read_batch(
        self, records_max: int = 65_536, timeout_s: float = 0.0, *, place: bool = True
    ) -> pa.RecordBatch | None:
        """The next records: at most `records_max`, all of one entry, mapped. None after the timeout.

        As READ_SCHEMA; without `place` as BODY_SCHEMA, which costs nothing, and `last_place` tells the rest.
        Raises EndOfStream (every time) behind the last record of a sealed log, DamagedEntry, PositionTruncated,
        LogNotFound, ReaderIdle, ReaderLockLost, ReadCancelled (`close` was called meanwhile), LogClosed.
        RegistryUnreachable and SessionLost (only where a subscriber's lock has to be looked at) are not final.
        """
        with self._calling:
            self._check_open()
            return self._next(records_max, timeout_s, place=place)

    def read(self, records_max: int = 1000, timeout_s: float = 0.0, *, wait_for_all: bool = False) -> list[LogRecord]:
        """The next records: at least one unless the timeout passes, at most `records_max` (but whole entries, if the
        reader was opened so).

        With `wait_for_all` it waits for that many until the timeout, or until no more can come. Raises as `read_batch`;
        if something was read before that, it is returned, and the next call raises, or goes on where that is possible.
        """
        with self._calling:
            self._check_open()
            begun = self._position
            try:
                return self._read(records_max, timeout_s, wait_for_all=wait_for_all)
            except ScribenginError:
                raise  # nothing was collected
            except BaseException as error:  # nothing of what was collected is handed out
                self._end(error, begun)
                raise

    def find(self, txid: int, *, after: bool = False) -> DLSN | None:
        """The first record that is kept whose transaction id is at least `txid` (with `after`: greater); None if there
        is none yet. Does not move the reader. Raises DamagedEntry, LogNotFound.
        """
        return self._ask(lambda: find_txid(self._catalog, txid + 1 if after else txid))

    def plan(self, start: DLSN, records_max: int, bytes_max: int) -> RangePlan | None:
        """What to read next from `start`, or None: see `ranges.plan_range`. Does not move the reader."""
        return self._ask(lambda: plan_range(self._catalog, start, records_max=records_max, bytes_max=bytes_max))

    def wait(self, position: DLSN, timeout_s: float) -> bool:
        """Block until a record is visible at or behind `position`, or the timeout: whether one is. Raises as `lag`,
        and ReadCancelled."""
        with self._calling:
            self._check_open()
            before = self._catalog.sequence_at(position)
            return self._await(lambda: self._catalog.end_sequence() > before or None, timeout_s) or False

    def lag(self, position: DLSN) -> int:
        """How many visible records lie at and behind `position`. Raises PositionTruncated, DamagedEntry,
        LogNotFound."""
        return self._ask(lambda: self._catalog.end_sequence() - self._catalog.sequence_at(position))

    def ended(self, position: DLSN) -> bool:
        """Whether the log is sealed and nothing lies at or behind `position`, now or ever."""
        return self._ask(lambda: self._catalog.state().head.end_of_stream) and self.lag(position) == 0

    def end_position(self) -> DLSN:
        """The position behind the last visible record."""
        return self._ask(self._catalog.end_position)

    def close(self) -> None:
        """Release everything; a call that waits raises ReadCancelled. What was read stays valid. Idempotent.

        Raises what the registry raises when the lock of a subscriber cannot be given back: then call it again.
        """
        self._closed = True
        self._catalog.wake()
        with self._calling:
            self._entries.close()
            self._catalog.close()
            if self._metrics is not None:
                self._metrics.close()
            if self._lock is not None:
                self._lock.release()

    def _entries_from(self, position: DLSN) -> Entries:
        skip = self._config.skip_damaged
        cursor = EntryCursor(self._catalog, position, skip_damaged=skip)
        if self._config.read_ahead is None:
            return EntriesInTurn(cursor, skip_damaged=skip)
        return EntriesAhead(cursor, self._config.read_ahead, skip_damaged=skip)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"log '{self._catalog.log.name}': the reader is closed; open a new one")

    def _ask(self, question: Callable[[], _T]) -> _T:
        with self._calling:
            self._check_open()
            return question()

    def _await(self, look: Callable[[], _T | None], timeout_s: float) -> _T | None:
        def look_unless_closed() -> _T | None:
            if self._closed:
                raise ReadCancelled(f"log '{self._catalog.log.name}': the reader was closed while it waited")
            return look()

        return self._catalog.await_change(look_unless_closed, timeout_s)

    def _read(self, records_max: int, timeout_s: float, *, wait_for_all: bool) -> list[LogRecord]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        records: list[LogRecord] = []
        left_s = timeout_s
        while len(records) < records_max or not records:
            try:
                batch = self._next(records_max - len(records), left_s, place=True)
            except ScribenginError:
                if not records:
                    raise
                break  # the reader stands behind them, so they are handed out, and the next call finds out what is
            if batch is None:
                break
            records.extend(records_of(batch))
            left_s = max(0.0, deadline_s - self._clock.monotonic_s()) if wait_for_all else 0.0
        return records

    def _next(self, records_max: int, timeout_s: float, *, place: bool) -> pa.RecordBatch | None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        begun = self._position
        try:
            return self._await(lambda: self._found_batch(records_max, place=place), timeout_s)
        except (ReadCancelled, RegistryUnreachable, SessionLost):
            raise  # nothing was read: the next call goes on
        except BaseException as error:
            self._end(error, DLSN.parse(error.position) if isinstance(error, DamagedEntry) else begun)
            raise

    def _end(self, error: BaseException, position: DLSN) -> None:
        """Whatever the error is: what it happened to, from `position` on, was not handed out."""
        self._position = position
        self._failure = error if isinstance(error, Exception) else self._interrupted()

    def _interrupted(self) -> LogClosed:
        return LogClosed(
            f"log '{self._catalog.log.name}': a read was interrupted; open a new reader at {self._position}"
        )

    def _found_batch(self, records_max: int, *, place: bool) -> pa.RecordBatch | None:
        try:
            return self._next_batch(records_max, place=place)
        except ColdSegmentMissing as error:
            raise self._catalog.gone(error) from None

    def _next_batch(self, records_max: int, *, place: bool) -> pa.RecordBatch | None:
        if self._lock is not None:
            self._lock.check()
        if self._position < self._catalog.state().head.first:
            self._catalog.check_position(self._position)
        while True:
            if self._entry is None:
                self._entry = self._entries.next()
                if self._entry is None:
                    self._position = max(self._position, self._entries.position)
                    self._idle.saw_nothing()
                    return None
                self._idle.saw_entry()
            batch = self._slice(self._entry, records_max, place=place)
            if batch is not None:
                return batch

    def _slice(self, entry: ReadEntry, records_max: int, *, place: bool) -> pa.RecordBatch | None:
        """Wanted records of the entry from the position on; None if there are none. The position is behind them."""
        header, body = entry.header, entry.body
        slot = self._first_slot(entry)
        if body is None or slot >= header.records:
            self._pass(entry, header.records)
            return None
        end = header.records if self._config.whole_entries else min(header.records, slot + max(1, records_max))
        self._pass(entry, end)
        batch = body if end - slot == header.records else body.slice(slot, end - slot)
        mask = in_channels(batch, self._config.channels) if self._config.channels else None
        first = 0 if mask is None else first_true(mask)
        if first < 0:
            return None
        self._last = RecordPlace(DLSN(entry.segment, header.entry, slot + first), header.sequence + slot + first)
        if place:
            batch = with_place(batch, entry.segment, header.entry, slot, header.sequence + slot)
        if mask is not None:
            batch = batch.filter(mask)
        if self._metrics is not None:
            read_bytes = header.body_bytes * batch.num_rows // header.records
            self._metrics.read(records=batch.num_rows, record_bytes=read_bytes, cold=entry.cold)
        return batch

    def _first_slot(self, entry: ReadEntry) -> int:
        header = entry.header
        slot = self._position.slot if self._position[:2] == (entry.segment, header.entry) else 0
        if self._gate is None or entry.body is None:
            return slot
        passes = self._gate.first_slot(header, entry.body)
        if passes is None:
            return header.records
        self._gate = None
        return max(slot, passes)

    def _pass(self, entry: ReadEntry, slot_end: int) -> None:
        segment, number = entry.segment, entry.header.entry
        if slot_end < entry.header.records:
            self._position = DLSN(segment, number, slot_end)
        else:
            self._position = DLSN(segment, number + 1, 0)
            self._entry = None


def open_reader(
    metadata: LogMetadata,
    store: SegmentStore,
    start: Start,
    clock: Clock,
    config: ReaderConfig,
    *,
    subscriber: str | None,
    timeout_s: float,
    cancel: threading.Event | None,
) -> LogReader:
    """A reader, as `LogNamespace.open_reader` describes it."""
    with ExitStack() as undo:
        lock = None if subscriber is None else SubscriberLock(metadata, subscriber)
        catalog = LogCatalog(metadata, store, metadata.descriptor(), clock, follow=True)
        undo.callback(catalog.close)
        if lock is not None:
            undo.callback(lock.give_up)
            lock.acquire(clock, timeout_s=timeout_s, cancel=cancel)
        metrics = LogMetrics(metadata.namespace, metadata.log)
        undo.callback(metrics.close)
        reader = LogReader(catalog, start, clock, config, lock=lock, metrics=metrics)
        undo.pop_all()
    return reader


class IdleWatch:
    """How long a reader has seen nothing. Keep-alive entries count as something.

    A log that its last writer has closed is at rest and not idle: the time begins again when it is found so. One whose
    writer has died is idle until somebody recovers it.
    """

    def __init__(self, catalog: LogCatalog, config: ReaderConfig, clock: Clock) -> None:
        self._log = catalog.log.name
        self._recovery = log_command(catalog.namespace, "recover", self._log)
        self._clock = clock
        self._writer = catalog.writer
        self._warn_s = config.idle_warn_s
        self._error_s = config.idle_error_s
        self._seen_s = clock.monotonic_s()

    @property
    def idle_s(self) -> float:
        """Seconds since something was seen."""
        return self._clock.monotonic_s() - self._seen_s

    @property
    def is_idle(self) -> bool:
        """Whether that is longer than `idle_warn_s`."""
        return self._warn_s is not None and self.idle_s >= self._warn_s

    def saw_entry(self) -> None:
        """Something came."""
        self._seen_s = self._clock.monotonic_s()

    def saw_nothing(self) -> None:
        """Nothing was there. Raises ReaderIdle after `idle_error_s`, unless the registry cannot be asked just now."""
        if self._error_s is None or self.idle_s < self._error_s:
            return
        try:
            writer = self._writer()
        except (RegistryUnreachable, SessionLost):
            return
        if writer == "died":
            raise ReaderIdle(
                f"log '{self._log}': nothing came for {self.idle_s:.0f} s, and its writer has died and left a segment "
                f"unfinished; start a writer, or run {self._recovery}, then open a new reader"
            )
        if writer == "there":
            raise ReaderIdle(
                f"log '{self._log}': nothing came for {self.idle_s:.0f} s, not even a keep-alive, though it has a "
                "writer; look at that writer (does its log have keep_alive_ms?), then open a new reader"
            )
        self.saw_entry()
