"""Reads one segment out of its ledgers.

A segment is asked for by the byte, and a ledger by the entry. Each entry that is read says how many bytes of the ledger
end with it. So a place is found by trying entries, halving what is left, and what comes after it needs no search.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from scribengin.errors import LogClosed, LogNotFound
from scribengin.log.store.bookkeeper.client import LedgerPart, LedgerReader, Ledgers
from scribengin.log.store.bookkeeper.long_poll import TailHints
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers
from scribengin.log.store.bookkeeper.refusals import refusals
from scribengin.log.store.contract import SegmentView, Tail
from scribengin.log.store.layout import SLOT_BYTES, read_tail, slot_of

WINDOW_BYTES = 4 * 1024 * 1024
_ENTRIES_MAX = 1000
"""So many entries of a ledger are asked for at once."""
_BLIND_ENTRIES = 4
"""So many of whatever size: Java's heap has room for them."""
_LAST = struct.Struct("<q")


def tail_entry(tail: Tail, last: int) -> bytes:
    """What a ledger of tails holds: a slot (layout.py), and the last entry of the other ledger that it shows."""
    return slot_of(tail) + _LAST.pack(last)


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
        self._window: pa.Buffer | None = None
        self._window_start = 0

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
        window, start = self._window, self._window_start
        if window is None or not start <= offset <= offset + length <= start + window.size:
            with self._reading():
                start, data = self._fetched(offset, offset + length)
            window = self._window = pa.py_buffer(data)
            self._window_start = start
        at = min(offset - start, window.size)
        return window.slice(at, min(length, window.size - at))

    def close(self) -> None:
        if self._hints is not None:
            self._hints.close()
        opened = (self._log, self._tails)
        self._log = self._tails = self._window = None
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

    def _fetched(self, start: int, end: int) -> tuple[int, bytes]:
        """Where they begin, and bytes that hold those of [start, end) that there are. Whole entries."""
        found = self._entry_at(start)
        if found is None:
            return start, b""
        parts = [found]
        size = len(found.data)
        while parts[-1].end < max(end, start + WINDOW_BYTES):
            first = parts[-1].last + 1
            if first > self._last and (parts[-1].end >= end or not self._found_more()):
                break
            wanted = max(end, start + WINDOW_BYTES) - parts[-1].end
            about = max(1, size // (parts[-1].last - found.first + 1))
            count = min(wanted // about + 1, _ENTRIES_MAX, max(1, WINDOW_BYTES // about))
            last = self._last_within(first, min(first + count - 1, self._last), parts[-1].end + 2 * WINDOW_BYTES)
            parts.append(self._read(first, last))
            size += len(parts[-1].data)
        return found.start, b"".join(part.data for part in parts) if len(parts) > 1 else found.data

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
                if before >= self._last and not self._found_more():
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
        part = self._open_log().read(first, last)
        for known in ((part.last_start, part.last - 1), (part.end, part.last)):
            if known not in self._ends:
                insort(self._ends, known)
        return part

    def _found_more(self) -> bool:
        last = self._open_log().last()
        more = last > self._last
        self._last = max(self._last, last)
        return more
