"""A question that no proxy can make anything of is refused at once: whoever asks it would ask it again as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest

from scribengin.errors import MessageDamaged, MessageInvalid
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, Refused, TryAgain
from scribengin.proxy.wire.requests import ASK, ASK_WITH_DATA, WRITE, AskRequest
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "flights/0"
PROXY = ProxyDescriptor(name="a", address="a proxy")
Asking = Callable[[ProxyDelivery, AskRequest], object]


def must_not_wait(_seconds: float) -> bool:
    raise AssertionError("it is asked again")


class Proxies(ProxyTransport):
    """One proxy, which is asked without a network, and counts that."""

    def __init__(self, service: ProxyService) -> None:
        self._service = service
        self.calls = 0

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        assert address == PROXY.address
        assert timeout_s > 0
        self.calls += 1
        return [pa.py_buffer(message) for message in self._service.handle(kind, pa.py_buffer(body))]

    def close(self) -> None:
        """There is nothing to close."""

    def servers(self) -> list[ProxyDescriptor]:
        return [PROXY]


@pytest.fixture
def service() -> Iterator[ProxyService]:
    with ExitStack() as stack:
        registry = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk(f"disk {id(stack)}")
        namespace = stack.enter_context(bound_namespace(registry, disk.name, LOG, store=MEMORY_STORE))
        yield stack.enter_context(ProxyService(namespace, registry, PROXY))


@pytest.mark.parametrize(
    "request_",
    [
        AskRequest("of another version", LOG),
        AskRequest("truncate", LOG),
        AskRequest("truncate", LOG, {"before": "the end", "force": False}),
        AskRequest(wire.TAIL, LOG, {"segment": ["flights", 1]}),
        AskRequest(wire.CREATE, LOG, {"segment": ["flights%2F0-0", 1, 2**63, ""], "handle": "a", "fsync": True}),
        AskRequest(wire.CLOSE, LOG, {"segment": ["flights%2F0-0", 1, 1, ""]}),
    ],
    ids=lambda request: f"{request.op} {len(request.fields)}",
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda delivery, request: delivery.ask(request, pause=must_not_wait),
        lambda delivery, request: delivery.ask_any(LOG, request, pause=must_not_wait),
        lambda delivery, request: delivery.ask_at(PROXY.address, request, pause=must_not_wait),
    ],
    ids=["of a log's owner", "of anyone", "of one proxy"],
)
def test_who_asks_what_is_no_question_is_told_so_at_once(
    service: ProxyService, ask: Asking, request_: AskRequest
) -> None:
    proxies = Proxies(service)
    delivery = ProxyDelivery(proxies, proxies, ProxyClientConfig(), ManualClock())
    with pytest.raises(MessageInvalid) as refused:
        ask(delivery, request_)
    assert type(refused.value) is MessageInvalid
    assert request_.op in str(refused.value)
    assert proxies.calls == 1


SEGMENT = f'"op": "{wire.DISK_BYTES}", "log": "{LOG}", "segment": ["flights%2F0-0", 1, 1, ""]'


@pytest.mark.parametrize(
    "body",
    [
        "{" + SEGMENT + ', "offset": Infinity, "length": 1}',
        "{" + SEGMENT + ', "offset": 0, "length": -1e999}',
        '{"op": "names", "log": "", "prefix": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"op": "truncate", "log": "flights/0", "before": ' + "[" * 900 + "]" * 900 + "}",
    ],
    ids=["offset", "length", "deep", "rather deep"],
)
def test_numbers_without_end_and_lists_without_bottom_are_refused(service: ProxyService, body: str) -> None:
    found = answer(service, ASK, body.encode())
    assert isinstance(found, Refused)
    assert type(found.error) is MessageInvalid


def answer(service: ProxyService, kind: str, body: bytes) -> Answer:
    return service.answer(kind, pa.py_buffer(body))


@pytest.mark.parametrize(
    ("kind", "body"),
    [("of another version", b""), (ASK, b"no question"), (WRITE, b"prxwrt02" + bytes(120))],
    ids=["kind", "question", "write"],
)
def test_what_another_version_says_is_refused(service: ProxyService, kind: str, body: bytes) -> None:
    found = answer(service, kind, body)
    assert isinstance(found, Refused)
    assert type(found.error) is MessageInvalid


@pytest.mark.parametrize(
    ("kind", "body"),
    [(WRITE, b"prxwrt03"), (WRITE, b"prxwrt03" + bytes(120)), (ASK_WITH_DATA, b"\xff\0\0\0{}")],
    ids=["cut", "damaged", "cut question"],
)
def test_what_was_cut_or_damaged_on_its_way_is_asked_for_again(service: ProxyService, kind: str, body: bytes) -> None:
    found = answer(service, kind, body)
    assert isinstance(found, TryAgain)
    assert type(found.why) is MessageDamaged
    assert not found.maybe_written
