"""Who follows a segment on BookKeeper asks its bookies little: what is not there yet costs an answer of each."""

from __future__ import annotations

from typing import Any, cast

import pytest

from scribengin.log.store.bookkeeper.client import LedgerPart, Ledgers
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers
from scribengin.log.store.bookkeeper.view import BookKeeperView, tail_entry
from scribengin.log.store.contract import Tail

LOG, TAILS = 1, 2


class Tails:
    """The ledger of tails of a segment, each of which shows an entry more; and the segment's own, of which nothing is
    read."""

    def __init__(self) -> None:
        self.tails = 0
        self.asked: list[str] = []

    def open(self, ledger: int) -> Tails:
        return self

    def has(self, entry: int) -> None:
        pass

    def close(self) -> None:
        pass

    def last_by_trying(self) -> int:
        self.asked.append("search")
        return self.tails - 1

    def read(self, first: int, last: int) -> LedgerPart:
        assert first == last < self.tails
        return LedgerPart(first, last, 0, tail_entry(shown(last + 1), last), 0)

    def read_if_there(self, entry: int) -> LedgerPart | None:
        self.asked.append(f"{entry}?")
        return self.read(entry, entry) if entry < self.tails else None

    def added(self, tails: int) -> None:
        """So many more, and nothing was asked yet."""
        self.tails += tails
        self.asked.clear()


def shown(entries: int) -> Tail:
    return Tail(end=100 * entries, entries=entries, last_txid=entries, sequence=entries)


@pytest.fixture
def ledger() -> Tails:
    return Tails()


@pytest.fixture
def view(ledger: Tails) -> BookKeeperView:
    return BookKeeperView(cast(Ledgers, cast(Any, ledger)), SegmentLedgers(log=LOG, tail=TAILS), "segment")


def test_who_keeps_up_asks_for_one_entry_a_tail(view: BookKeeperView, ledger: Tails) -> None:
    ledger.added(1)
    assert view.tail_beyond(0) == shown(1)
    for entries in range(1, 20, 2):
        ledger.added(1)
        assert view.tail_beyond(entries) == shown(entries + 1)
        assert ledger.asked == [f"{entries}?"], "and not for the one behind it"
        assert view.tail_beyond(entries) == shown(entries + 1)
        assert ledger.asked == [f"{entries}?"], "it is known"
        ledger.added(1)
        assert view.tail_beyond(entries + 1) == shown(entries + 2)


def test_who_is_behind_catches_up_in_two_looks(view: BookKeeperView, ledger: Tails) -> None:
    ledger.added(1)
    view.tail()
    ledger.added(100)
    assert view.tail_beyond(1) == shown(2)
    assert view.tail_beyond(2) == shown(101)
    assert ledger.asked == ["1?", "search"]
    assert view.tail_beyond(101) == shown(101)
    assert ledger.asked == ["1?", "search", "101?"]


def test_a_tail_is_the_newest_whoever_followed_before(view: BookKeeperView, ledger: Tails) -> None:
    assert view.tail_beyond(0) is None
    ledger.added(3)
    assert view.tail_beyond(0) == shown(1)
    assert view.tail() == shown(3)
