"""A store that does not answer for one segment: who reads others goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pyarrow as pa
import pytest

from scribengin.base.threads import background
from scribengin.errors import StoreUnreachable
from scribengin.log.store.contract import SegmentName, SegmentView, Tail
from scribengin.proxy.config import ProxyConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.reading import segments as reading
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone, TryAgain
from scribengin.proxy.wire.requests import ASK, encode_ask
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, fill_log
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE

STALLED, OTHER = "stalled", "other"
LIMIT_S = 120.0
_T = TypeVar("_T")


class StallingView(SegmentView):
    """A segment that is not read until it may."""

    def __init__(self, view: SegmentView) -> None:
        self._view = view
        self.reached, self.goes_on = threading.Event(), threading.Event()
        self.closed = False

    def tail(self) -> Tail | None:
        return self._view.tail()

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        return self._view.watch_tail(moved)

    def size(self) -> int:
        return self._view.size()

    def read(self, offset: int, length: int) -> pa.Buffer:
        self.reached.set()
        assert self.goes_on.wait(2 * LIMIT_S)
        return self._view.read(offset, length)

    def close(self) -> None:
        self.closed = True
        self._view.close()


class Background:
    """Work on a thread of its own."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.found: list[_T] = []
        self._thread = background("test", lambda: self.found.append(work()))
        self._thread.start()

    def result(self) -> _T:
        self._thread.join(LIMIT_S)
        assert self.found, "it waits still"
        return self.found[0]


class Place:
    """A proxy with a log whose store has stalled, and a reader that waits for that."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk(f"disk {id(stack)}")
        namespace = stack.enter_context(bound_namespace(registry, disk.name, STALLED, OTHER, store=MEMORY_STORE))
        for log in (STALLED, OTHER):
            fill_log(namespace, log, 3)
        self.clock = ManualClock()
        proxy = ProxyDescriptor(name="a", address="a proxy")
        self.service = ProxyService(namespace, registry, proxy, ProxyConfig(answer_timeout_s=0.05), self.clock)
        stack.enter_context(self.service)
        self.stalled, self.other = (namespace.segments(log)[0].file for log in (STALLED, OTHER))
        opens = self.service.reads._store.open
        self.view = StallingView(opens(self.stalled))

        def stalling(name: SegmentName) -> SegmentView:
            return self.view if name == self.stalled else opens(name)

        monkeypatch.setattr(self.service.reads._store, "open", stalling)
        self.reader = Background(lambda: self.read(self.stalled))
        assert self.view.reached.wait(LIMIT_S)

    def read(self, name: SegmentName) -> Answer:
        request = wire.about_segment(wire.BYTES, name, offset=0, length=100, ahead=0)
        return self.service.answer(ASK, pa.py_buffer(encode_ask(request)))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as stack:
        made = Place(stack, monkeypatch)
        stack.callback(made.view.goes_on.set)
        yield made


def test_a_segment_that_stalls_is_closed_once_its_reader_is_done(place: Place) -> None:
    place.clock.advance_s(reading.IDLE_S)
    Background(lambda: place.service.reads.sweep() or True).result()
    assert not place.view.closed
    place.view.goes_on.set()
    found = place.reader.result()
    assert isinstance(found, AskDone)
    assert found.data is not None
    assert found.data.size == 100
    assert place.view.closed


def test_readers_of_others_go_on_where_the_segment_that_stalls_is_to_be_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_OPEN_MAX", 1)
    assert isinstance(Background(lambda: place.read(place.other)).result(), AskDone)


def test_who_wants_a_segment_that_stalls_for_others_is_told_so_and_takes_no_thread_for_good(place: Place) -> None:
    found = Background(lambda: place.read(place.stalled)).result()
    assert isinstance(found, TryAgain)
    assert type(found.why) is StoreUnreachable
    assert str(place.stalled) in str(found.why)


def test_a_proxy_ends_its_readers_where_a_segment_stalls(place: Place) -> None:
    Background(lambda: place.service.reads.close() or True).result()
    assert place.service.reads.open_segments == 0
