"""Finding the last entry of a ledger that nobody confirms, by few questions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scribengin.log.store.bookkeeper.client import LedgerReader


class TriedReader(LedgerReader):
    """A ledger of so many entries."""

    def __init__(self, entries: int, known: int) -> None:
        super().__init__(SimpleNamespace(getId=lambda: 7))
        self.has(known)
        self.entries = entries
        self.tried: list[int] = []

    def _is_there(self, entry: int) -> bool:
        self.tried.append(entry)
        return entry < self.entries


@pytest.mark.parametrize("known", [-1, 0, 5])
def test_the_last_entry_is_found_however_many_came(known: int) -> None:
    for more in range(70):
        reader = TriedReader(known + 1 + more, known)
        assert reader.last_by_trying() == known + more
        assert len(reader.tried) <= 3 + 2 * more.bit_length()


@pytest.mark.parametrize(("more", "tried"), [(0, [6]), (1, [6, 7]), (2, [6, 7, 9, 8]), (3, [6, 7, 9, 8])])
def test_at_a_tail_one_entry_is_missed_at_most_twice(more: int, tried: list[int]) -> None:
    """A miss costs an answer of every bookie that could have the entry."""
    reader = TriedReader(6 + more, 5)
    reader.last_by_trying()
    assert reader.tried == tried
