"""What read proxies and their clients decide by themselves: which proxy is asked, what is kept, who is told."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.errors import LogNotFound, OverCapacity, StoreUnreachable
from scribengin.log.store.contract import SegmentName, SegmentView, Tail
from scribengin.proxy.client.tail_poll import TailPoll
from scribengin.proxy.reading.blocks import BLOCK_BYTES, BlockCache
from scribengin.proxy.reading.tails import TailWatches
from scribengin.proxy.state.ring import heaviest
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.requests import decode_ask, encode_ask
from scribengin.testing.waiting import wait_until

NAME = SegmentName("flights%2F0-0123456789ab", 3, 2)
KEYS = [f"log-{n % 40}/{n:018d}-1" for n in range(2000)]


@given(servers=st.sets(st.text("abc0123", min_size=1), min_size=1, max_size=8))
def test_a_proxy_that_comes_or_goes_moves_its_own_share_and_no_more(servers: set[str]) -> None:
    before = {key: heaviest(key, servers) for key in KEYS[:200]}
    after = {key: heaviest(key, servers | {"new"}) for key in before}
    assert all(after[key] in (before[key], "new") for key in before)
    gone = min(servers)
    left = {key: heaviest(key, servers - {gone}) for key in before}
    assert all(left[key] == before[key] for key in before if before[key] != gone)


def test_every_proxy_has_about_its_share_and_nobody_is_asked_where_there_is_none() -> None:
    servers = [f"grpc://machine-{n}:5000" for n in range(5)]
    shares = {server: sum(heaviest(key, servers) == server for key in KEYS) for server in servers}
    assert all(300 < share < 500 for share in shares.values())
    assert heaviest("a key", []) is None


def test_a_question_about_a_segment_names_its_log() -> None:
    asked = decode_ask(pa.py_buffer(encode_ask(wire.about_segment(wire.BYTES, NAME, offset=1, length=2, ahead=3))))
    assert (asked.op, asked.log) == (wire.BYTES, "flights/0")
    assert wire.segment_asked(asked) == NAME
    for tail in (None, Tail(10, 2, -1, 7)):
        assert wire.heard_tail(wire.told_tail(tail)) == tail


def test_a_block_grows_and_never_shrinks() -> None:
    cache = BlockCache(1000)
    cache.put(NAME, 0, b"12")
    cache.put(NAME, 0, b"1234")
    cache.put(NAME, 0, b"123")
    assert cache.block(NAME, 0) == b"1234"
    assert cache.size_bytes == 4


def test_the_cache_is_bounded_in_bytes_and_loses_what_was_not_asked_for_longest() -> None:
    cache = BlockCache(30)
    for number in range(3):
        cache.put(NAME, number, bytes([number]) * 10)
    cache.block(NAME, 0)
    cache.put(NAME, 3, b"3" * 10)
    assert [bool(cache.block(NAME, number)) for number in range(4)] == [True, False, True, True]
    cache.put(NAME, 9, b"9" * 31)
    assert cache.size_bytes == 0


def test_what_is_held_of_a_range_ends_at_the_first_gap() -> None:
    cache = BlockCache(10 * BLOCK_BYTES)
    cache.put(NAME, 0, b"a" * BLOCK_BYTES)
    cache.put(NAME, 1, b"b" * 10)
    cache.put(NAME, 2, b"c" * BLOCK_BYTES)
    assert b"".join(cache.parts(NAME, BLOCK_BYTES - 1, 3 * BLOCK_BYTES)) == b"a" + b"b" * 10
    assert cache.parts(NAME, BLOCK_BYTES + 10, 3 * BLOCK_BYTES) == []
    assert b"".join(cache.parts(NAME, 5, 8)) == b"aaa"


class NoThread:
    """A thread for which the machine has no room."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


class GrowingView(SegmentView):
    """A segment whose tail moves when it is told to. It tells of that, or not."""

    def __init__(self, *, tells: bool = True) -> None:
        self.shown: Tail | None = None
        self.failure: Exception | None = None
        self.looks = 0
        self.closed = False
        self._tells = tells
        self._watching: list[threading.Event] = []

    def show(self, end: int) -> None:
        self.shown = Tail(end, 1, 0, 1)
        for event in list(self._watching):
            event.set()

    def tail(self) -> Tail | None:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return self.shown

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        if not self._tells:
            return None
        self._watching.append(moved)
        return lambda: self._watching.remove(moved)

    def size(self) -> int:
        return 0

    def read(self, offset: int, length: int) -> pa.Buffer:
        return pa.py_buffer(b"")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("tells", [True, False])
def test_a_tail_is_opened_and_watched_once_for_all_that_wait(tells: bool) -> None:
    view, opened = GrowingView(tells=tells), []

    def open_view(name: SegmentName) -> SegmentView:
        opened.append(name)
        return view

    found: list[Tail | None] = []
    with TailWatches(open_view, 100) as tails:
        assert tails.wait(NAME, -1, 0.0) is None
        threads = [threading.Thread(target=lambda: found.append(tails.wait(NAME, -1, 120))) for _ in range(50)]
        for thread in threads:
            thread.start()
        wait_until(lambda: tails.waiting == 50, what="all wait")
        view.show(10)
        for thread in threads:
            thread.join(120)
        assert found == [Tail(10, 1, 0, 1)] * 50
        assert opened == [NAME]
        wait_until(lambda: tails.watched == 0, what="nobody waits any more, and the watch ends")
    wait_until(lambda: view.closed, what="the view is closed")


def test_who_waits_is_told_what_the_store_refuses_and_the_next_one_looks_anew() -> None:
    view = GrowingView(tells=False)
    view.failure = LogNotFound("it was purged")
    with TailWatches(lambda _name: view, 10) as tails:
        with pytest.raises(LogNotFound):
            tails.wait(NAME, -1, 120)
        view.failure = None
        view.show(5)
        assert tails.wait(NAME, 4, 120) == view.shown


def test_who_waits_is_told_what_the_system_refuses_and_the_next_one_looks_anew() -> None:
    view = GrowingView(tells=False)
    view.failure = OSError(errno.EMFILE, "Too many open files")
    with TailWatches(lambda _name: view, 10) as tails:
        with pytest.raises(OSError, match="Too many open files"):
            tails.wait(NAME, -1, 120)
        view.failure = None
        view.show(5)
        assert tails.wait(NAME, 4, 120) == view.shown


def test_a_tail_that_gets_no_thread_is_watched_by_the_next_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    view = GrowingView(tells=False)
    view.show(5)
    with TailWatches(lambda _name: view, 10) as tails:
        with monkeypatch.context() as patch:
            patch.setattr("scribengin.proxy.reading.tails.background", lambda _name, _run: NoThread())
            with pytest.raises(RuntimeError, match="new thread"):
                tails.wait(NAME, 4, 120)
        assert tails.wait(NAME, 4, 120) == view.shown


def test_so_many_wait_and_no_more_and_all_are_answered_when_the_proxy_ends() -> None:
    tails = TailWatches(lambda _name: GrowingView(), 1)
    found: list[Tail | None] = []
    thread = threading.Thread(target=lambda: found.append(tails.wait(NAME, -1, 120)))
    thread.start()
    wait_until(lambda: tails.waiting == 1, what="one waits")
    with pytest.raises(OverCapacity):
        tails.wait(NAME, -1, 120)
    tails.close()
    thread.join(120)
    assert found == [None]


def test_a_reader_that_waits_asks_once_and_hears_of_every_move() -> None:
    asked: list[int] = []
    moves = threading.Semaphore(0)
    ends = iter(range(10, 1000, 10))

    def ask(known: int, _wait_s: float) -> Tail | None:
        asked.append(known)
        assert moves.acquire(timeout=120)
        return Tail(next(ends), 1, 0, 1)

    poll = TailPoll(ask)
    moved = threading.Event()
    stop = poll.watch(moved)
    for end in (10, 20):
        assert poll.latest() == (None if end == 10 else Tail(10, 1, 0, 1))
        moves.release()
        assert moved.wait(120)
        moved.clear()
        wait_until(lambda now=end: asked[-1] == now, what="it asks again, which it does while somebody watches")
    stop()
    assert poll.latest() is None
    poll.close()
    moves.release()
    poll.join()
    assert poll.ended
    assert asked == [-1, 10, 20]


def test_a_reader_that_cannot_be_told_asks_by_itself() -> None:
    def ask(_known: int, _wait_s: float) -> Tail | None:
        raise StoreUnreachable("no proxy answers")

    poll = TailPoll(ask)
    moved = threading.Event()
    poll.watch(moved)
    assert moved.wait(120)
    assert poll.latest() is None
    poll.close()
    poll.join()


def test_a_reader_that_got_no_thread_to_wait_with_has_one_when_it_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = TailPoll(lambda known, _wait_s: Tail(known + 10, 1, 0, 1))
    moved = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr("scribengin.proxy.client.tail_poll.background", lambda _name, _run: NoThread())
        with pytest.raises(RuntimeError, match="new thread"):
            poll.watch(moved)
    stop = poll.watch(moved)
    assert moved.wait(120)
    stop()
    poll.close()
    poll.join()
