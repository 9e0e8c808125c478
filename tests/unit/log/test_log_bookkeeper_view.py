"""A segment on BookKeeper is read by the byte and asked for by the entry. A heap has room for what a request brings.
Who reads it through has asked for what comes next, and who does not for nothing more."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scribengin.log.store.bookkeeper import view as views
from scribengin.log.store.bookkeeper.client import LedgerPart, Ledgers
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers
from scribengin.log.store.bookkeeper.view import BookKeeperView, tail_entry
from scribengin.log.store.contract import Tail

MIB = 1024 * 1024
SMALL_WINDOW_BYTES = 1000


class Asked:
    def __init__(self, ledger: Ledger, part: LedgerPart) -> None:
        self.first = part.first
        self._ledger, self._part = ledger, part
        ledger.under_way += 1

    def come(self) -> LedgerPart:
        self._ledger.under_way -= 1
        return self._part

    def abandon(self) -> None:
        self._ledger.under_way -= 1
        self._ledger.in_vain += 1


class Ledger:
    """A closed ledger."""

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries
        self.whole = b"".join(entries)
        self.closed_bytes = len(self.whole)
        self._ends = [0, *accumulate(map(len, entries))]
        self.asked: list[LedgerPart] = []
        self.under_way = 0
        self.in_vain = 0
        self.shown: LedgerPart | None = None
        """The only tail, which it stands for as well."""

    def open(self, ledger: int) -> Ledger:
        return self

    def last(self) -> int:
        return len(self.entries) - 1

    def ask(self, first: int, last: int) -> Asked:
        assert 0 <= first <= last < len(self.entries)
        data = b"".join(self.entries[first : last + 1])
        part = LedgerPart(first, last, self._ends[first], data, self._ends[last])
        self.asked.append(part)
        return Asked(self, part)

    def read(self, first: int, last: int) -> LedgerPart:
        return self.shown or self.ask(first, last).come()

    def has(self, entry: int) -> None:
        self.shown = None

    def last_by_trying(self) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "WINDOW_BYTES", SMALL_WINDOW_BYTES)


def view_of(ledger: Ledger) -> BookKeeperView:
    return BookKeeperView(cast(Ledgers, cast(Any, ledger)), SegmentLedgers(log=1, tail=2), "segment")


def numbered(count: int, size: int) -> Ledger:
    return Ledger([b"%0*d" % (size, number) for number in range(count)])


@pytest.mark.usefixtures("small_windows")
def test_who_reads_on_has_asked_for_the_next_window_and_gets_each_entry_once() -> None:
    ledger = numbered(200, 100)
    view = view_of(ledger)
    read = b""
    while len(read) < len(ledger.whole):
        read += bytes(view.read(len(read), 70))
        assert ledger.under_way <= 1
        if 2 * SMALL_WINDOW_BYTES < len(read) < len(ledger.whole) - 2 * SMALL_WINDOW_BYTES:
            assert ledger.under_way == 1
    assert read == ledger.whole
    sent = [entry for part in ledger.asked for entry in range(part.first, part.last + 1)]
    assert sent == [*range(len(ledger.entries))]
    assert (ledger.under_way, ledger.in_vain) == (0, 0)


@pytest.mark.usefixtures("small_windows")
def test_who_reads_here_and_there_has_nothing_under_way() -> None:
    ledger = numbered(200, 100)
    view = view_of(ledger)
    for offset in (15_000, 300, 9_000, 19_990):
        assert bytes(view.read(offset, 10)) == ledger.whole[offset : offset + 10]
        assert ledger.under_way == 0


@pytest.mark.usefixtures("small_windows")
def test_what_nobody_wants_any_more_is_abandoned() -> None:
    ledger = numbered(200, 100)
    view = view_of(ledger)
    read_on(view, 0, 3_000)
    assert ledger.under_way == 1
    read_on(view, 15_000, 18_000)
    assert (ledger.under_way, ledger.in_vain) == (1, 1), "another one is"
    view.close()
    view.close()
    assert (ledger.under_way, ledger.in_vain) == (0, 2)


def read_on(view: BookKeeperView, start: int, end: int) -> None:
    for offset in range(start, end, 100):
        view.read(offset, 100)


@pytest.mark.parametrize(
    ("sizes", "requests_max"),
    [
        ([20, *[MIB] * 100], 130),
        ([*[100] * 5000, *[MIB] * 50, *[100] * 5000], 140),
        ([300] * 60_000, 130),
        ([MIB, 10] * 60, 200),
    ],
    ids=["a small entry, then large ones", "large ones between small ones", "small ones", "by turns"],
)
def test_no_request_asks_for_more_than_a_heap_has_room_for(sizes: list[int], requests_max: int) -> None:
    ledger = Ledger([bytes([number % 256]) * size for number, size in enumerate(sizes)])
    view = view_of(ledger)
    step = 512 * 1024
    for start in range(0, ledger.closed_bytes, step):
        length = min(step, ledger.closed_bytes - start)
        assert view.read(start, length).to_pybytes() == ledger.whole[start : start + length]
    assert max(len(part.data) for part in ledger.asked) <= 3 * views.WINDOW_BYTES
    assert len(ledger.asked) <= requests_max, "small entries come many at a time"


@pytest.mark.usefixtures("small_windows")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=60),
    reads=st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 2_500), st.booleans()), max_size=30),
)
def test_any_reads_give_what_is_there(sizes: list[int], reads: list[tuple[int, int, bool]]) -> None:
    ledger = Ledger([bytes([number % 251]) * size for number, size in enumerate(sizes)])
    view = view_of(ledger)
    at = 0
    for offset, length, goes_on in reads:
        at = at if goes_on else offset
        found = bytes(view.read(at, length))
        assert found == ledger.whole[at : at + length]
        at += len(found)
    view.close()
    assert ledger.under_way == 0


def test_a_tail_that_shows_less_than_was_read_asks_for_nothing_that_is_not_there() -> None:
    ledger = Ledger([b"one", b"two", b"three"])
    view = view_of(ledger)
    assert bytes(view.read(0, 20)) == ledger.whole
    ledger.shown = LedgerPart(0, 0, 0, tail_entry(Tail(end=3, entries=1, last_txid=1, sequence=1), 0), 0)
    assert view.tail() is not None
    for offset in range(len(ledger.whole) + 2):
        assert bytes(view.read(offset, 20)) == ledger.whole[offset:]
