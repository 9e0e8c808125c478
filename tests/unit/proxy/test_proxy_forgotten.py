"""A sender that was forgotten, since many others have written: what it sends again is never written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pytest

from scribengin.errors import ProxyUnreachable, SenderUnknown
from scribengin.log import LogNamespace
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write import senders
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire.answers import Written, decode_answer
from scribengin.proxy.wire.requests import ASK, WRITE, AskRequest, encode_ask, encode_write
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "log"
REMEMBERED = 3
"""So many senders the log knows."""


class LossyTransport(ProxyTransport):
    """Carries requests to one proxy. Of the first that writes, the answer is lost, and others come before it is sent
    again."""

    def __init__(self, service: ProxyService) -> None:
        self._service = service
        self._others = 0
        self.meanwhile: Callable[[], object] | None = None
        """What is to happen before the first request is sent again."""
        self.is_done = True
        """Whether the first request is done, and its answer lost. Else it is lost itself."""

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        meanwhile, is_first = self.meanwhile, kind == WRITE and self.meanwhile is not None
        found = self.asked(kind, body) if self.is_done or not is_first else []
        if meanwhile is not None and is_first:
            self.meanwhile = None
            meanwhile()
            raise ProxyUnreachable("the answer was lost")
        return found

    def asked(self, kind: str, body: bytes) -> list[pa.Buffer]:
        return [pa.py_buffer(message) for message in self._service.handle(kind, pa.py_buffer(body))]

    def other_senders_write(self, count: int) -> None:
        for _ in range(count):
            self._others += 1
            body = body_of_records([Record(7, None, None, b"of others", 0)])
            request = encode_write(LOG, b"%016d" % self._others, 1, 0, body, txids=False)
            assert isinstance(decode_answer(self.asked(WRITE, request)), Written)

    def release(self) -> None:
        """Its log goes to another writer, and so to another segment."""
        self.asked(ASK, encode_ask(AskRequest("release", LOG)))

    def close(self) -> None:
        """There is nothing to close."""


class Place:
    """A proxy for a log that remembers few senders, and a client."""

    def __init__(self, stack: ExitStack) -> None:
        registry = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk(f"disk {id(stack)}")
        self.namespace: LogNamespace = stack.enter_context(
            bound_namespace(registry, disk.name, LOG, store=MEMORY_STORE)
        )
        proxy = ProxyDescriptor(name="a", address="a proxy")
        service = stack.enter_context(ProxyService(self.namespace, registry, proxy))
        service.announce()
        self.transport = LossyTransport(service)
        self.client = stack.enter_context(
            ProxiedNamespace.open(
                self.namespace.path,
                registry=registry,
                client=ProxyClientConfig(reads="proxy"),
                transport=self.transport,
            )
        )

    def written(self, payload: bytes) -> int:
        """How often the log has it."""
        return payloads_read(self.namespace, LOG).count(payload)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(senders, "SenderTable", partial(senders.SenderTable, REMEMBERED))
    with ExitStack() as stack:
        yield Place(stack)


@pytest.mark.parametrize("moves", [False, True], ids=["the same segment", "another segment"])
@pytest.mark.parametrize("is_done", [True, False], ids=["written", "not written"])
def test_the_first_records_of_a_sender_that_is_forgotten_are_not_written_again(
    place: Place, moves: bool, is_done: bool
) -> None:
    def meanwhile() -> None:
        place.transport.other_senders_write(REMEMBERED)
        if moves:
            place.transport.release()

    with place.client.open_writer(LOG) as writer:
        place.transport.meanwhile, place.transport.is_done = meanwhile, is_done
        with pytest.raises(SenderUnknown, match="cannot be told"):
            writer.write(b"mine").result(60)
        writer.abort()
    assert place.written(b"mine") == is_done


def test_the_first_records_of_a_sender_that_cannot_be_forgotten_are_written_once(place: Place) -> None:
    """All whom the log has forgotten wrote into segments that were complete before the sender began."""
    with place.client.open_writer(LOG) as warm:
        warm.write(b"warm").result(60)
    place.transport.other_senders_write(2 * REMEMBERED)
    place.transport.release()
    place.transport.other_senders_write(1)
    with place.client.open_writer(LOG) as writer:
        place.transport.meanwhile, place.transport.is_done = lambda: None, False
        writer.write(b"mine").result(60)
    assert place.written(b"mine") == 1
