"""What clients ask of proxies beside records: logs are created, truncated, sealed, deleted and released."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import ConfigInvalid, EndOfStream, LogExists, LogNotFound, LogWriteFailed, ProxyUnreachable
from scribengin.log import LogConfig
from scribengin.log.metadata.segments import LogMetadata, SegmentsHead, WriterEpoch
from scribengin.log.metadata.writer_lock import HeldLock
from scribengin.proxy import ProxyConfig
from scribengin.proxy.client.transport import FlightTransport
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.proxy.server import _listening
from scribengin.proxy.wire.answers import AskDone, Refused, TryAgain, decode_answer
from scribengin.proxy.wire.requests import ASK, WRITE, AskRequest, encode_ask
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.disk_states import Unlink
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import RegistryUnreachable
from tests.integration.proxy.proxied import LOG, ProxiedPlace, proxied_place


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def test_a_log_is_created_with_its_configuration_once(place: ProxiedPlace) -> None:
    namespace = place.bound()
    place.start()
    client = place.client()
    assert client.create(LOG, LogConfig(retention_hours=7)).config.retention_hours == 7
    with pytest.raises(LogExists):
        client.create(LOG)
    assert namespace.names() == [LOG]
    with pytest.raises(LogNotFound):
        client.open_writer("no/such")
    client.open_writer("made/now", create=True).close()


def test_a_proxy_that_cannot_be_announced_is_not_left_half_open(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.bound(LOG)
    ports: list[int] = []

    def refused(_nodes: ProxyNodes, proxy: ProxyDescriptor) -> None:
        ports.append(int(proxy.address.rpartition(":")[2]))
        raise RegistryUnreachable("no server of the registry answers")

    with monkeypatch.context() as patch:
        patch.setattr(ProxyNodes, "announce", refused)
        with pytest.raises(RegistryUnreachable):
            place.start()
    place.start(port=ports[0])


@pytest.mark.parametrize("same", [True, False])
def test_a_log_that_somebody_else_has_made_is_not_taken_for_ones_own(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """The first call got no answer, so it may have made the log; but not one of another configuration."""
    place.bound(LOG, config=LogConfig(record_bytes_max=7 if same else 8))
    place.start()
    client = place.client()
    call = FlightTransport.call
    lost: list[str] = []

    def lose_the_first(transport: FlightTransport, address: str, kind: str, body: bytes, timeout_s: float) -> object:
        if not lost:
            lost.append(kind)
            raise ProxyUnreachable("no answer")
        return call(transport, address, kind, body, timeout_s)

    monkeypatch.setattr(FlightTransport, "call", lose_the_first)
    if same:
        assert client.create(LOG, LogConfig(record_bytes_max=7)).config.record_bytes_max == 7
    else:
        with pytest.raises(LogExists):
            client.create(LOG, LogConfig(record_bytes_max=7))
    assert lost == [ASK]


def test_files_that_cannot_be_removed_are_told_of_as_by_the_log_itself(place: ProxiedPlace) -> None:
    namespace = place.bound("by-proxy", "itself")
    for log in ("by-proxy", "itself"):
        namespace.open_writer(log).close()
    place.start()
    client = place.client()

    def refuse(operation: object) -> None:
        if isinstance(operation, Unlink):
            raise OSError(errno.EIO, "Input/output error")

    place.disk.hook = refuse
    for deleting, log in ((namespace, "itself"), (client, "by-proxy")):
        with pytest.raises(LogWriteFailed, match="Input/output error; remove it by hand"):
            deleting.delete(log)
    assert namespace.names() == []


def test_a_log_that_was_sealed_by_an_attempt_that_failed_is_sealed(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = place.bound(LOG)
    place.start()
    seal = LogMetadata.seal
    failed: list[str] = []

    def seal_and_fail(metadata: LogMetadata, owner: WriterEpoch) -> SegmentsHead:
        head = seal(metadata, owner)
        if not failed:
            failed.append(metadata.log)
            raise RegistryUnreachable("away")
        return head

    monkeypatch.setattr(LogMetadata, "seal", seal_and_fail)
    writer = place.client().open_writer(LOG)
    writer.write(b"1").result(120)
    writer.mark_end_of_stream()
    assert failed == [LOG]
    with pytest.raises(EndOfStream):
        namespace.open_writer(LOG)


def test_segments_are_offloaded_where_they_are(place: ProxiedPlace, tmp_path: Path) -> None:
    namespace = place.bound(LOG, config=LogConfig(cold_url=str(tmp_path / "cold")))
    namespace.open_writer(LOG).close()
    place.start()
    with pytest.raises(ConfigInvalid, match="is offloaded on the machine of its store"):
        place.client().offload(LOG)
    assert namespace._metadata(LOG).head()[0].cold_places == ()


def test_truncation_is_exact_while_clients_write(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()
    client = place.client()
    with client.open_writer(LOG) as writer:
        places = [writer.write(b"%d" % n).result(120) for n in range(5)]
        assert client.truncate(LOG, places[2])
        assert not client.truncate(LOG, places[2])
        writer.write(b"5").result(120)
    assert payloads_read(namespace, LOG) == [b"2", b"3", b"4", b"5"]


def test_a_sealed_log_takes_nothing_of_anybody(place: ProxiedPlace) -> None:
    place.bound(LOG)
    place.start()
    client = place.client()
    writer, other = client.open_writer(LOG), client.open_writer(LOG)
    writer.write(b"1").result(120)
    writer.mark_end_of_stream()
    with pytest.raises(EndOfStream):
        other.write(b"2").result(120)
    with pytest.raises(EndOfStream):
        client.open_writer(LOG)
    other.close()


def test_a_log_that_is_deleted_under_a_writer_is_gone_for_it(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    one, other = place.start(), place.start()
    client = place.client()
    with client.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        client.delete(LOG)
        with pytest.raises(LogNotFound):
            writer.write(b"2").result(120)
        client.create(LOG)
        with pytest.raises(LogNotFound, match="another one made in its place"):
            writer.write(b"of the log that is gone").result(120)
        with client.open_writer(LOG) as new:
            new.write(b"3").result(120)
    assert payloads_read(namespace, LOG) == [b"3"]
    assert sorted(one.service.logs + other.service.logs) == [LOG]
    with pytest.raises(LogNotFound):
        client.delete("no/such")


def test_nothing_is_done_to_a_log_that_was_made_anew_by_a_writer_of_the_one_before(place: ProxiedPlace) -> None:
    """Its records would stand at places that it has given out already, and others would find the log sealed."""
    namespace = place.bound(LOG)
    place.start()
    client = place.client()
    writer, idle = client.open_writer(LOG), client.open_writer(LOG)
    writer.write(b"1").result(120)
    namespace.delete(LOG, force=True)
    namespace.create(LOG, LogConfig(record_bytes_max=10))
    with pytest.raises(LogNotFound, match="another one made in its place"):
        writer.write(bytes(20)).result(120)
    with pytest.raises(LogNotFound, match="another one made in its place"):
        idle.mark_end_of_stream()
    with client.open_writer(LOG) as new:
        new.write(b"2").result(120)
    writer.abort()
    idle.abort()
    assert payloads_read(namespace, LOG) == [b"2"]


def test_a_proxy_that_has_not_heard_that_a_log_was_made_anew_looks(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldLock, "_on_change", lambda _lock, _event: None)
    namespace = place.bound(LOG)
    place.start()
    client = place.client()
    client.open_writer(LOG).close()
    namespace.delete(LOG, force=True)
    namespace.create(LOG)
    with client.open_writer(LOG) as new:
        new.write(b"1").result(120)
    assert payloads_read(namespace, LOG) == [b"1"]


def test_a_log_that_is_released_is_nobodys_until_somebody_writes(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    server = place.start()
    client = place.client()
    with client.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        client.release(LOG)
        assert server.service.logs == []
        namespace.open_writer(LOG).close()
        writer.write(b"2").result(120)
    assert payloads_read(namespace, LOG) == [b"1", b"2"]


def test_a_proxy_says_what_it_writes_and_what_it_does_not_know(place: ProxiedPlace) -> None:
    place.bound(LOG)
    server = place.start()
    place.client().open_writer(LOG).close()
    asked = server.service.handle(ASK, pa.py_buffer(encode_ask(AskRequest("info"))))
    found = decode_answer([pa.py_buffer(message) for message in asked])
    assert isinstance(found, AskDone)
    assert found.said["logs"] == [LOG]
    bad = encode_ask(AskRequest("truncate", LOG, {"before": "x", "force": True}))
    for kind, body in (("dance", b""), (ASK, b"{"), (ASK, encode_ask(AskRequest("dance"))), (ASK, bad)):
        assert isinstance(server.service.answer(kind, pa.py_buffer(body)), Refused)
    assert isinstance(server.service.answer(WRITE, pa.py_buffer(b"123")), TryAgain), "it was cut on its way"


def test_who_comes_before_a_proxy_has_started_is_told_to_ask_again() -> None:
    """It listens from when its port is taken, and a client may know the port."""
    server = _listening(ProxyConfig())
    client = FlightTransport()
    try:
        for kind, body in ((ASK, encode_ask(AskRequest("info"))), (WRITE, b"records")):
            answer = decode_answer(client.call(f"grpc://127.0.0.1:{server.port}", kind, body, 60.0))
            assert isinstance(answer, TryAgain)
            assert "is starting" in str(answer.why)
    finally:
        client.close()
        server.shutdown()
        server.wait()


def test_signals_stay_those_of_the_process_that_has_the_proxy(place: ProxiedPlace) -> None:
    """Flight would take them from whoever was to hand the logs over, and end the network without that."""
    place.bound(LOG)
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    client = place.stack.enter_context(FlightTransport())
    try:
        server = place.start()
        request = (server.address, ASK, encode_ask(AskRequest("info")), 60.0)
        assert client.call(*request)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: told == [signal.SIGTERM], what="the process to hear of the signal")
        for _ in range(20):
            assert client.call(*request)
    finally:
        signal.signal(signal.SIGTERM, before)
