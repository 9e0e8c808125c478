"""Who waits at the end of a segment on BookKeeper waits for bookies, and looks itself only where they cannot tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from scribengin.log.store.bookkeeper.long_poll import TailHints

WAIT_S = 60


class Ledger:
    """A reader of one, whose bookies answer when the test says so: an entry that is confirmed, or an error."""

    def __init__(self) -> None:
        self.answers: SimpleQueue[int | Exception] = SimpleQueue()
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.closed = threading.Event()

    def await_confirmed(self, beyond: int, limit_s: float) -> int:
        self.asked.put(beyond)
        answer = self.answers.get(timeout=WAIT_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def hints(ledger: Ledger) -> Iterator[TailHints]:
    opened: Any = lambda: ledger  # noqa: E731  stands for a LedgerReader
    made = TailHints(opened)
    yield made
    made.close()
    ledger.answers.put(0)


def test_nobody_is_woken_before_a_bookie_answers(hints: TailHints, ledger: Ledger) -> None:
    moved = threading.Event()
    unwatch = hints.watch(moved)
    assert ledger.asked.get(timeout=WAIT_S) == -1
    assert not moved.is_set()
    ledger.answers.put(4)
    assert moved.wait(WAIT_S)
    assert ledger.asked.get(timeout=WAIT_S) == 4, "it goes on where the bookie stood"
    unwatch()
    moved.clear()
    ledger.answers.put(5)
    ledger.answers.put(6)
    assert not moved.is_set()


def test_a_ledger_without_an_entry_is_looked_at_until_it_has_one(hints: TailHints, ledger: Ledger) -> None:
    moved = threading.Event()
    hints.watch(moved)
    for refused in (FileNotFoundError(), IndexError(), ConnectionError()):
        moved.clear()
        ledger.answers.put(refused)
        assert moved.wait(WAIT_S)
        assert ledger.asked.get(timeout=WAIT_S) == -1


def test_its_thread_ends_with_the_view(hints: TailHints, ledger: Ledger) -> None:
    hints.watch(threading.Event())
    assert ledger.asked.get(timeout=WAIT_S) == -1
    hints.close()
    ledger.answers.put(0)
    assert ledger.closed.wait(WAIT_S)
