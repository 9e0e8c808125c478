"""A proxy that ends while a store does not take what is written to one of its logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pytest

from scribengin.base.threads import background
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write.segment_chain import BegunAppend, Mark
from scribengin.proxy.config import ProxyConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.state.balance import HandOver
from scribengin.proxy.wire.answers import Written
from scribengin.proxy.wire.requests import WRITE, encode_write
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

STALLED, OTHERS = "a", ("b", "c")
LIMIT_S = 120.0


class Place:
    """A proxy that writes logs. What is written to the first of them waits until it may."""

    def __init__(self, stack: ExitStack) -> None:
        registry = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk(f"disk {id(stack)}")
        self.namespace = stack.enter_context(bound_namespace(registry, disk.name, STALLED, *OTHERS, store=MEMORY_STORE))
        self.service = ProxyService(
            self.namespace, registry, ProxyDescriptor(name="a", address="a proxy"), ProxyConfig(answer_timeout_s=240)
        )
        stack.enter_context(self.service)
        self.service.announce()
        for log in (STALLED, *OTHERS):
            self.write(log, 1)
        self.reached, self.goes_on = threading.Event(), threading.Event()
        stack.callback(self.goes_on.set)
        self._stall()
        self._threads: list[threading.Thread] = []
        self.begin(lambda: self.write(STALLED, 2))
        assert self.reached.wait(LIMIT_S)

    def _stall(self) -> None:
        writer = self.service._log(STALLED).writer
        assert writer is not None
        begin_append = writer._chain.begin_append

        def waits(entries: Sequence[EncodedEntry], mark: Mark | None = None) -> BegunAppend:
            self.reached.set()
            assert self.goes_on.wait(2 * LIMIT_S)
            return begin_append(entries, mark)

        writer._chain.begin_append = waits  # type: ignore[method-assign]

    def write(self, log: str, number: int) -> None:
        body = body_of_records([Record(7, None, None, b"%d" % number, 0)])
        request = encode_write(log, bytes(16), number, number - 1, body, txids=False)
        assert isinstance(self.service.answer(WRITE, pa.py_buffer(request)), Written)

    def begin(self, work: Callable[[], object]) -> None:
        thread = background("test", work)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        """Let the store take what waits, and wait for all that was begun."""
        self.goes_on.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()

    def are_let_go(self) -> bool:
        return all(self.service._nodes.owner(log) is None for log in OTHERS)


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_the_other_logs_are_handed_over(place: Place) -> None:
    place.begin(place.service.close)
    wait_until(place.are_let_go, LIMIT_S, "the others may have them")
    assert place.service._nodes.owner(STALLED) is not None
    place.end()
    assert place.service._nodes.owner(STALLED) is None
    assert payloads_read(place.namespace, STALLED) == [b"1", b"2"]


def test_the_other_logs_are_handed_over_while_the_stalled_one_is_being_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [HandOver(STALLED, "another"), HandOver(OTHERS[0], "another")]
    monkeypatch.setattr("scribengin.proxy.balancing.hand_overs", lambda *_args: moves)
    place.begin(place.service.balancer.look)
    wait_until(lambda: place.service._log(STALLED).writer is None, LIMIT_S, "the balancer gives the log up")
    place.begin(place.service.close)
    wait_until(place.are_let_go, LIMIT_S, "the others may have them")
    place.end()
    assert payloads_read(place.namespace, STALLED) == [b"1", b"2"]
