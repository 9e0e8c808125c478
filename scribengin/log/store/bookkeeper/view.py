"""Reads one segment out of its ledgers.

A segment is asked for by the byte, and a ledger by the entry. Each entry that is read says how many bytes of the ledger
end with it. So a place is found by trying entries, halving what is left, and what comes after it needs no search. Who
goes on where a read has ended is reading the segment through: what comes next is asked for before it is wanted.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from scribengin.errors import LogClosed, LogNotFound
from scribengin.log.store.bookkeeper.client import AskedEntries, LedgerPart, LedgerReader, Ledgers
from scribengin.log.store.bookkeeper.long_poll import TailHints
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers
from scribengin.log.store.bookkeeper.refusals import refusals
from scribengin.log.store.contract import SegmentView, Tail
from scribengin.log.store.layout import SLOT_BYTES, read_tail, slot_of

WINDOW_BYTES = 4 * 1024 * 1024
_ENTRIES_MAX = 1000
"""So many entries of a ledger are asked for at once."""
_BLIND_ENTRIES = 12
"""So many of whatever size: Java's heap has room for them."""
_LAST = struct.Struct("<q")


def tail_entry(tail: Tail, last: int) -> bytes:
    """What a ledger of tails holds: a slot (layout.py), and the last entry of the other ledger that it shows."""
    return slot_of(tail) + _LAST.pack(last)


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of a segment, from `start` to the end of the ledger's entry `last`."""

    start: int
    last: int
    end: int
    data: pa.Buffer


class BookKeeperView(SegmentView):
    """One segment, open for reading. Raises LogNotFound where its ledger is gone."""

    def __init__(self, ledgers: Ledgers, named: SegmentLedgers, name: str) -> None:
        self._ledgers = ledgers
        self._named = named
        self._name = name
        self._log: LedgerReader | None = None
        with self._reading():
            self._log = ledgers.open(named.log)
        self._hints: TailHints | None = None
        self._tails: LedgerReader | None = None
        self._tail: Tail | None = None
        self._tail_entry = -1
        self._at_last_tail = False
        """Whether none was behind that one when it was last looked for."""
        self._last = -1
        """An entry that is there."""
        self._ends: list[tuple[int, int]] = [(0, -1)]
        """Of entries that were read: where they end, and which they are."""
        self._window: _Window | None = None
        self._ahead: AskedEntries | None = None

    def tail(self) -> Tail | None:
        log = self._open_log()
        with self._reading():
            tails = self._opened_tails()
            if tails is not None:
                last = tails.last_by_trying()
                self._at_last_tail = True
                if last > self._tail_entry:
                    self._take_tail(log, tails.read(last, last))
        return self._tail

    def tail_beyond(self, entries: int) -> Tail | None:
        """What is not there yet every bookie is asked for, one after the other. So the entry behind one that was found
        is not looked for: whoever follows comes back. Who has come back twice may be far behind."""
        log = self._open_log()
        if self._tail is not None and self._tail.entries > entries:
            return self._tail
        if not self._at_last_tail:
            return self.tail()
        with self._reading():
            tails = self._opened_tails()
            found = None if tails is None else tails.read_if_there(self._tail_entry + 1)
            if found is not None:
                self._at_last_tail = False
                self._take_tail(log, found)
        return self._tail

    def _opened_tails(self) -> LedgerReader | None:
        if self._tails is None:
            with suppress(FileNotFoundError):  # it is being removed
                self._tails = self._ledgers.open(self._named.tail)
        return self._tails

    def _take_tail(self, log: LedgerReader, part: LedgerPart) -> None:
        self._tail = read_tail(part.data[:SLOT_BYTES])
        self._tail_entry = part.last
        [self._last] = _LAST.unpack(part.data[SLOT_BYTES:])
        log.has(self._last)

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        self._open_log()
        if self._hints is None:
            self._hints = TailHints(lambda: self._ledgers.open(self._named.log))
        return self._hints.watch(moved)

    def size(self) -> int:
        log = self._open_log()
        with self._reading():
            closed_bytes = log.closed_bytes
            if closed_bytes is not None:
                return closed_bytes
            last = log.last()
            return 0 if last < 0 else log.read(last, last).end

    def read(self, offset: int, length: int) -> pa.Buffer:
        self._open_log()
        window = self._window
        if window is None or not window.start <= offset <= offset + length <= window.end:
            with self._reading():
                window = self._window = self._fetched(window, offset, offset + length)
        if window is None:
            return pa.py_buffer(b"")
        at = min(offset, window.end) - window.start
        return window.data.slice(at, min(length, window.data.size - at))

    def close(self) -> None:
        if self._hints is not None:
            self._hints.close()
        opened = (self._log, self._tails)
        if self._ahead is not None:
            self._ahead.abandon()
        self._log = self._tails = self._window = self._ahead = None
        for reader in opened:
            if reader is not None:
                reader.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with refusals(f"read segment {self._name}"):
                yield
        except FileNotFoundError:
            raise LogNotFound(
                f"segment {self._name} is gone: its log was deleted or truncated; list the logs there are"
            ) from None

    def _open_log(self) -> LedgerReader:
        if self._log is None:
            raise LogClosed(f"segment {self._name} is closed; open a new reader")
        return self._log

    def _fetched(self, before: _Window | None, start: int, end: int) -> _Window | None:
        """Bytes that hold those of [start, end) that there are, up to the end of an entry; None: there are none. With
        what `before` has of them they are not asked for again."""
        goes_on = before is not None and before.start <= start <= before.end
        if before is not None and goes_on:
            parts: list[bytes | pa.Buffer] = [before.data.slice(start - before.start)]
            at, last = before.end, before.last
        else:
            found = self._entry_at(start)
            if found is None:
                return None
            parts, start, at, last = [found.data], found.start, found.end, found.last
        more = True
        while more or at < end:
            if last >= self._last and (at >= end or not self._found_behind(last)):
                break
            part = self._part_behind(last, at)
            parts.append(part.data)
            at, last, more = part.end, part.last, False
        if goes_on and self._ahead is None and last < self._last:
            self._ahead = self._ask(last + 1, at)
        return _Window(start, last, at, pa.py_buffer(b"".join(parts) if len(parts) > 1 else parts[0]))

    def _part_behind(self, last: int, end: int) -> LedgerPart:
        """The entries behind that one, which ends there: as many as it takes for a window."""
        asked, self._ahead = self._ahead, None
        if asked is not None and asked.first != last + 1:
            asked.abandon()
            asked = None
        return self._noted((asked or self._ask(last + 1, end)).come())

    def _ask(self, first: int, start: int) -> AskedEntries:
        """For entries from there on, which are there: a window of them, if they are as large as those before. That few
        were small says little about many."""
        end, entries = self._ends[-1][0], self._ends[-1][1] + 1
        count = min(WINDOW_BYTES * entries // max(1, end) + 1, max(_BLIND_ENTRIES, 2 * entries), _ENTRIES_MAX)
        last = self._last_within(first, min(first + count - 1, self._last), start + 2 * WINDOW_BYTES)
        return self._open_log().ask(first, last)

    def _last_within(self, first: int, last: int, limit: int) -> int:
        """`last`, or one before it where the bytes from `first` on would end behind `limit`. Entries differ: of many
        the last one is read by itself before, and says where they end."""
        while last - first >= _BLIND_ENTRIES and self._read(last, last).end > limit:
            last = (first + last) // 2
        return last

    def _entry_at(self, offset: int) -> LedgerPart | None:
        """The entry that holds that byte; None: there is none."""
        while True:
            low = bisect_right(self._ends, (offset, 1 << 62)) - 1
            before = self._ends[low][1]
            after = self._ends[low + 1][1] if low + 1 < len(self._ends) else None
            if after is None:
                if before >= self._last and not self._found_behind(before):
                    return None
                after = self._last
            tried = before + 1 if after - before <= 1 or self._follows(low, offset) else (before + after + 1) // 2
            part = self._read(tried, tried)
            if part.start <= offset < part.end:
                return part

    def _follows(self, low: int, offset: int) -> bool:
        """Whether the entry after that one begins just there: then it is the one, or as good as."""
        return self._ends[low][0] == offset

    def _read(self, first: int, last: int) -> LedgerPart:
        return self._noted(self._open_log().read(first, last))

    def _noted(self, part: LedgerPart) -> LedgerPart:
        for known in ((part.last_start, part.last - 1), (part.end, part.last)):
            if known not in self._ends:
                insort(self._ends, known)
        return part

    def _found_behind(self, entry: int) -> bool:
        """Whether there is one behind it. A tail may show fewer than are known to be there."""
        self._last = max(self._last, self._open_log().last())
        return self._last > entry
