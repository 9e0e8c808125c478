"""Many logs of one client: what waits to be written goes to the proxy together, and each log has its own answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from scribengin.errors import AccessDenied, CallerUnknown, MessageInvalid, OverCapacity
from scribengin.log.format.records import Record, body_of_records
from scribengin.proxy import ProxyServer
from scribengin.proxy.service import ProxyService
from scribengin.proxy.state.access import token_digest
from scribengin.proxy.wire.answers import Answer, Refused, TryAgain, Written, decode_answer
from scribengin.proxy.wire.bundles import SEND_ALONE, encode_bundle
from scribengin.proxy.wire.requests import encode_write
from scribengin.testing.log_samples import payloads_read
from tests.integration.proxy.proxied import ProxiedPlace, proxied_place

LOGS = [f"log-{n}" for n in range(12)]
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def request(log: str, payload: bytes, number: int = 1) -> bytes:
    body = body_of_records([Record(0, None, None, payload)])
    return encode_write(log, b"sender".ljust(16), number, number - 1, body, txids=False)


def answers(server: ProxyServer, *requests: bytes, token: str | None = None) -> list[Answer | None]:
    """What the proxy says to each request of a bundle; None: it is to be sent by itself."""
    found = list(server.service.answer_bundle(pa.py_buffer(encode_bundle(requests)), token))
    assert len(found) == len(requests)
    return [None if bytes(one) == SEND_ALONE else decode_answer([pa.py_buffer(one)]) for one in found]


def test_each_request_of_a_bundle_has_its_own_answer(place: ProxiedPlace) -> None:
    namespace = place.bound("served", "full", "new")
    server = place.start(log_rates={"bytes_s_hard": 1})
    with place.client() as client:
        client.open_writer("served").close()
        with client.open_writer("full") as writer:
            writer.write(bytes(100_000)).result(120)
    damaged = bytearray(request("served", b"damaged"))
    damaged[-70] ^= 1
    found = answers(
        server,
        request("served", b"1"),
        request("full", b"2"),
        request("new", b"3"),
        bytes(damaged),
        request("missing", b"4"),
        request("served", b"1"),
    )
    assert isinstance(found[0], Written)
    assert isinstance(found[1], Refused)
    assert isinstance(found[1].error, OverCapacity)
    assert found[2] is None, "the proxy would have to take it first"
    assert isinstance(found[3], TryAgain)
    assert isinstance(found[3].why, MessageInvalid)
    assert found[4] is None
    assert isinstance(found[5], Refused | Written), "the same numbers again: above the rate, or where they stand"
    assert payloads_read(namespace, "served") == [b"1"]
    assert payloads_read(namespace, "new") == []


def test_who_may_not_write_a_log_is_told_so_for_that_one(place: ProxiedPlace) -> None:
    namespace = place.bound("mine", "another's")
    digest = token_digest(TOKEN).hex()
    server = place.start(
        access={"callers": {"me": {"token_sha256": digest, "logs": {"mine": ["write"]}}}},
    )
    first = server.service.answer("write", pa.py_buffer(request("mine", b"1")), TOKEN)
    assert isinstance(first, Written)
    found = answers(server, request("mine", b"2", 2), request("another's", b"3"), token=TOKEN)
    assert isinstance(found[0], Written)
    assert isinstance(found[1], Refused)
    assert isinstance(found[1].error, AccessDenied)
    (stranger,) = answers(server, request("mine", b"4", 3))
    assert isinstance(stranger, Refused)
    assert isinstance(stranger.error, CallerUnknown)
    assert payloads_read(namespace, "mine") == [b"1", b"2"]


def test_many_logs_of_a_client_share_calls_and_no_hand_over_loses_or_doubles_anything(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = place.bound(*LOGS)
    servers = [place.start() for _ in range(2)]
    bundles: list[int] = []
    whole = ProxyService.answer_bundle

    def counted(service: ProxyService, body: pa.Buffer, token: str | None = None) -> Iterator[bytes | pa.Buffer]:
        bundles.append(1)
        return whole(service, body, token)

    monkeypatch.setattr(ProxyService, "answer_bundle", counted)
    with place.client() as client:
        writers = [client.open_writer(log) for log in LOGS]

        def write(n: int) -> None:
            for number in range(60):
                future = writers[n].write(b"%d" % number)
                if number % 3 == 0:
                    future.result(120)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(len(LOGS))]
        for thread in threads:
            thread.start()
        servers[0].close()
        for thread in threads:
            thread.join(120)
        for writer in writers:
            writer.close()
    for log in LOGS:
        assert payloads_read(namespace, log) == [b"%d" % number for number in range(60)]
    assert bundles, "twelve logs had something to send at the same time"
