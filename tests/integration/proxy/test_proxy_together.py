"""Many logs of one client: what waits to be written goes to the proxy together, and each log has its own answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

import scribengin.proxy.service as proxy_service
from scribengin.errors import AccessDenied, CallerUnknown, LogBusy, MessageDamaged, WrittenTooFast
from scribengin.log import LogConfig
from scribengin.log.format.entry import EncodedEntry
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write.segment_chain import BegunAppend, Mark, SegmentChain
from scribengin.proxy import ProxyServer
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.state.access import token_digest
from scribengin.proxy.wire.answers import Answer, Refused, TryAgain, Written, decode_answer
from scribengin.proxy.wire.bundles import OF_ALL, SEND_ALONE, encode_bundle
from scribengin.proxy.wire.requests import encode_write
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import payloads_read
from tests.integration.proxy.proxied import ProxiedPlace, proxied_place

LOGS = [f"log-{n}" for n in range(12)]
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def request(log: str, payload: bytes, number: int = 1, sender: bytes = b"sender") -> bytes:
    body = body_of_records([Record(0, None, None, payload)])
    return encode_write(log, sender.ljust(16), number, number - 1, body, txids=False)


def answers(server: ProxyServer, *requests: bytes, token: str | None = None) -> list[Answer | None]:
    """What the proxy says to each request of a bundle; None: it is to be sent by itself."""
    found = list(server.service.answer_bundle(pa.py_buffer(encode_bundle(requests)), token))
    assert len(found) == len(requests)
    return heard(found)


def answer_to_all(server: ProxyServer, bundle: bytes, token: str | None = None) -> Answer:
    """What the proxy says to the bundle as a whole."""
    (found,) = server.service.answer_bundle(pa.py_buffer(bundle), token)
    assert bytes(found)[:1] == OF_ALL
    return decode_answer([pa.py_buffer(bytes(found)[1:])])


def heard(found: list[bytes | pa.Buffer]) -> list[Answer | None]:
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
    assert isinstance(found[1].error, WrittenTooFast)
    assert found[2] is None, "the proxy would have to take it first"
    assert isinstance(found[3], TryAgain)
    assert isinstance(found[3].why, MessageDamaged)
    assert found[4] is None
    assert isinstance(found[5], Refused), "a second's worth came with the first request of that log"
    assert isinstance(found[5].error, WrittenTooFast)
    assert payloads_read(namespace, "served") == [b"1"]
    assert payloads_read(namespace, "new") == []


def test_the_same_numbers_twice_in_a_bundle_are_told_where_they_stand(place: ProxiedPlace) -> None:
    namespace = place.bound("log")
    server = place.start()
    place.client().open_writer("log").close()
    first, again = answers(server, request("log", b"1"), request("log", b"1"))
    assert isinstance(first, Written)
    assert again == first
    assert payloads_read(namespace, "log") == [b"1"]


class StalledDisk:
    """What is written to these logs, which the proxy writes, waits until it is let."""

    def __init__(self, server: ProxyServer, *logs: str) -> None:
        self.reached = {log: threading.Event() for log in logs}
        self._goes_on = threading.Event()
        for log in logs:
            writer = server.service._log(log).writer
            assert writer is not None
            self._stall(log, writer._chain)

    def _stall(self, log: str, chain: SegmentChain) -> None:
        begin_append = chain.begin_append

        def waits(entries: Sequence[EncodedEntry], mark: Mark | None = None) -> BegunAppend:
            self.reached[log].set()
            assert self._goes_on.wait(240)
            return begin_append(entries, mark)

        chain.begin_append = waits  # type: ignore[method-assign]

    def goes_on(self) -> None:
        self._goes_on.set()


def test_logs_that_have_stalled_do_not_stall_the_others_of_their_client(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than calls are under way at a time, and a proxy and a client that have all the time there is."""
    monkeypatch.setattr(proxy_service, "_TOGETHER_S", 0.1)
    stalled, others = LOGS[:3], LOGS[3:6]
    namespace = place.bound(*stalled, *others)
    server = place.start(answer_timeout_s=3600)
    with place.client(call_timeout_s=3600, patience_s=3600) as client:
        writers = {log: client.open_writer(log) for log in (*stalled, *others)}
        disk = StalledDisk(server, *stalled)
        try:
            waiting = [writers[log].write(b"late") for log in stalled]
            for log in stalled:
                assert disk.reached[log].wait(120)
            for n in range(10):
                for future in [writers[log].write(b"%d" % n) for log in others]:
                    future.result(120)
            assert not any(future.done() for future in waiting)
        finally:
            disk.goes_on()
        for future in waiting:
            future.result(120)
        for writer in writers.values():
            writer.close()
    for log in stalled:
        assert payloads_read(namespace, log) == [b"late"]
    for log in others:
        assert payloads_read(namespace, log) == [b"%d" % n for n in range(10)]


def test_a_bundle_does_not_wait_for_a_log_without_room(place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is sent alone for counts once against a rate: the second request would fill that for ten seconds."""
    other = bytes(100_000)
    monkeypatch.setattr(proxy_service, "_TOGETHER_S", 0.1)
    namespace = place.bound("full", config=LogConfig(pending_bytes_max=1024))
    server = place.start(log_rates={"bytes_s_hard": 10_000})
    place.client().open_writer("full").close()
    disk = StalledDisk(server, "full")
    try:
        (begun,) = answers(server, request("full", bytes(2000)))
        assert isinstance(begun, TryAgain)
        assert isinstance(begun.why, LogBusy)
        assert begun.maybe_written, "it may be refused when it is sent again, and be in the log all the same"
        assert answers(server, request("full", other, sender=b"other")) == [None]
    finally:
        disk.goes_on()
    for sender, payload in ((b"sender", bytes(2000)), (b"other", other)):
        alone = server.service.answer("write", pa.py_buffer(request("full", payload, sender=sender)))
        assert isinstance(alone, Written)
    assert payloads_read(namespace, "full") == [bytes(2000), other]


def test_a_log_that_took_long_to_take_has_the_whole_time_for_its_records(place: ProxiedPlace) -> None:
    namespace = place.bound("log")
    clock = ManualClock()
    proxy = ProxyDescriptor(name="a", address="grpc://a:1")
    with ProxyService(namespace, place.session(), proxy, clock=clock) as service:
        take = service._take
        left_s: list[float] = []

        def slow(log: object) -> object:
            clock.advance_s(3600)
            return take(log)  # type: ignore[arg-type]

        def finish(_begun: object, until_s: float, **_how: object) -> Answer:
            left_s.append(until_s - clock.monotonic_s())
            return TryAgain(LogBusy("nobody waits here"))

        service._take = slow  # type: ignore[method-assign, assignment]
        service._outcome = finish  # type: ignore[method-assign]
        service.answer("write", pa.py_buffer(request("log", b"1")))
    assert left_s == [20.0]


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
    for bundle in (encode_bundle([request("mine", b"4", 3)] * 3), b"no bundle"):
        stranger = answer_to_all(server, bundle)
        assert isinstance(stranger, Refused)
        assert isinstance(stranger.error, CallerUnknown), "nothing is looked at before it is known who asks"
    damaged = answer_to_all(server, b"no bundle", TOKEN)
    assert isinstance(damaged, TryAgain)
    assert isinstance(damaged.why, MessageDamaged)
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
            assert not thread.is_alive()
        for writer in writers:
            writer.close()
    for log in LOGS:
        assert payloads_read(namespace, log) == [b"%d" % number for number in range(60)]
    assert bundles, "twelve logs had something to send at the same time"
