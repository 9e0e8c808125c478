"""What clients of proxies do not see: fencing, full disks, sessions and proxies that end, messages that get lost."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import LogWriteFailed, OwnershipAcquireFailed, ProxyUnreachable, StoreUnreachable
from scribengin.log import LogNamespace
from scribengin.log.store import mark
from scribengin.log.store.mark import read_mark
from scribengin.proxy import ProxiedNamespace, ProxiedWriter
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.state import resend
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import LOG, PATH, ProxiedPlace, proxied_place


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


class LossyTransport(ProxyTransport):
    """Loses some requests, and some answers. Seeded."""

    def __init__(self, seed: int, lost_of_a_hundred: int = 30) -> None:
        self._real = FlightTransport()
        self._random = random.Random(seed)
        self._lost = lost_of_a_hundred

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        if self._random.randrange(100) < self._lost:
            raise ProxyUnreachable("the request was lost")
        answer = self._real.call(address, kind, body, timeout_s)
        if self._random.randrange(100) < self._lost:
            raise ProxyUnreachable("the answer was lost")
        return answer

    def close(self) -> None:
        self._real.close()


def write_all(writer: ProxiedWriter, letter: bytes, count: int) -> None:
    for n in range(count):
        writer.write(letter + b"%d" % n)
    writer.flush()


def expect_each_once(namespace: LogNamespace, *letters: bytes, count: int) -> None:
    seen = payloads_read(namespace, LOG)
    for letter in letters:
        found = [one for one in seen if one.startswith(letter)]
        assert found == [letter + b"%d" % n for n in range(count)], f"{found}"
    assert len(seen) == count * len(letters), f"{seen}"


@pytest.mark.parametrize("seed", range(3))
def test_lost_requests_and_lost_answers_lose_and_double_nothing(
    place: ProxiedPlace, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend, "_PAUSE_S", 0.001)
    namespace = place.bound(LOG)
    place.start()
    place.start()
    letters = (b"A", b"B", b"C")
    clients = [
        place.stack.enter_context(
            ProxiedNamespace.open(PATH, registry=place.session(), transport=LossyTransport(seed * 10 + n))
        )
        for n in range(3)
    ]
    writers = [client.open_writer(LOG, timeout_s=60) for client in clients]
    threads = [
        threading.Thread(target=write_all, args=(writer, letter, 100))
        for writer, letter in zip(writers, letters, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for writer in writers:
        writer.close()
    expect_each_once(namespace, *letters, count=100)


def test_fencing_below_a_proxy_is_not_seen_by_its_clients(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()
    with place.client().open_writer(LOG) as writer:
        for n in range(20):
            if n % 4 == 3:
                namespace.open_writer(LOG, steal=True).close()
            writer.write(b"A%d" % n).result(120)
    expect_each_once(namespace, b"A", count=20)


def test_a_disk_that_refuses_for_a_while_is_not_seen_by_clients(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()

    def fail(_stop: str) -> None:
        raise LogWriteFailed("the disk refused")

    with place.client().open_writer(LOG) as writer:
        writer.write(b"A0").result(120)
        for n, stop in ((1, "log.segment_sync:before"), (2, "log.segment_sync:after")):
            with at_failpoint(stop, fail):
                writer.write(b"A%d" % n).result(120)
    expect_each_once(namespace, b"A", count=3)


def test_a_proxy_that_may_open_no_more_files_for_a_while_is_not_seen_by_clients(
    place: ProxiedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = bound_namespace(place.registry, tmp_path, LOG)
    place.start()
    client = place.client(reads="proxy")
    open_file = os.open
    refusals = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]

    def refused(directory: Path) -> str | None:
        if refusals and threading.current_thread() is not threading.main_thread():
            raise refusals.pop()
        return read_mark(directory)

    monkeypatch.setattr(mark, "read_mark", refused)
    with client.open_writer(LOG) as writer:
        writer.write(b"A0").result(120)
    assert not refusals
    expect_each_once(namespace, b"A", count=1)

    def none_left(path: str, *words: int, **more: int) -> int:
        if str(path).endswith(".log"):
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return open_file(path, *words, **more)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", none_left)
        hasty = place.client(reads="proxy", patience_s=1)
        with hasty.open_reader(LOG) as reader, pytest.raises(StoreUnreachable, match="Too many open files") as told:
            reader.read(1)
        assert "Traceback" not in str(told.value)
    assert payloads_read(client, LOG) == [b"A0"]


def test_a_request_for_a_log_of_another_proxy_is_sent_there(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    one, other = place.start(), place.start()
    with place.client().open_writer(LOG) as first, place.client().open_writer(LOG) as second:
        first.write(b"A0").result(120)
        owner = one if one.service.logs else other
        beside = other if owner is one else one
        beside_only = place.client()
        beside_only._delivery._address = lambda _log: beside.address  # type: ignore[method-assign]
        with pytest.raises(ProxyUnreachable, match="disagree"):
            beside_only.open_writer(LOG, timeout_s=0)
        second.write(b"B0").result(120)
        assert beside.service.logs == []
    found = sorted(payloads_read(namespace, LOG))
    assert found == [b"A0", b"B0"], f"{found}"


def test_a_proxy_that_ends_hands_its_logs_over(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    one = place.start()
    with place.client().open_writer(LOG) as writer:
        futures = [writer.write(b"A%d" % n) for n in range(50)]
        assert futures[0].result(120)  # it owns the log
        other = place.start()
        one.close()
        futures += [writer.write(b"A%d" % n) for n in range(50, 100)]
        assert all(future.result(120) for future in futures)
        assert other.service.logs == [LOG]
    expect_each_once(namespace, b"A", count=100)
    assert namespace.segments(LOG)[0].entries, "the first proxy has completed its segment"


def test_a_proxy_whose_session_ends_gives_its_logs_to_others(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    session = place.session()
    one = place.start(session)
    with place.client().open_writer(LOG) as writer:
        writer.write(b"A0").result(120)
        other = place.start()
        place.ensemble.expire(session)
        for n in range(1, 20):
            writer.write(b"A%d" % n).result(120)
        assert one.service.logs or other.service.logs
    expect_each_once(namespace, b"A", count=20)


def test_a_proxy_whose_session_ended_is_found_again(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    session = place.session()
    server = place.start(session)
    place.ensemble.expire(session)
    with place.client().open_writer(LOG, timeout_s=120) as writer:
        writer.write(b"A0").result(120)
    assert server.service.logs == [LOG]
    expect_each_once(namespace, b"A", count=1)


def test_records_wait_for_a_proxy_as_long_as_the_client_is_patient(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    one = place.start()
    writer = place.client().open_writer(LOG)
    one.close()
    waiting = writer.write(b"A0")
    place.start()
    waiting.result(120)
    writer.close()
    expect_each_once(namespace, b"A", count=1)


def test_a_client_that_is_out_of_patience_fails_for_good(place: ProxiedPlace) -> None:
    place.bound(LOG)
    one = place.start()
    writer = place.client(patience_s=0.05).open_writer(LOG)
    one.close()
    with pytest.raises(ProxyUnreachable):
        writer.write(b"1").result(120)
    wait_until(lambda: writer.failed, what="the writer has failed")
    with pytest.raises(ProxyUnreachable):
        writer.write(b"2")
    writer.close()


def test_a_log_that_somebody_writes_who_is_no_proxy_is_not_to_be_had(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start(acquire_timeout_s=0.05)
    with namespace.open_writer(LOG), pytest.raises(OwnershipAcquireFailed):
        place.client().open_writer(LOG, timeout_s=0.1)
    place.client().open_writer(LOG).close()


def test_aborting_does_not_wait_for_a_proxy(place: ProxiedPlace) -> None:
    place.bound(LOG)
    one = place.start()
    writer = place.client().open_writer(LOG)
    one.close()
    waiting = writer.write(b"1")
    writer.abort()
    with pytest.raises(Exception, match="closed"):
        waiting.result(120)


def test_many_batches_of_one_client_stay_in_order_through_a_hand_over(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    one = place.start()
    with place.client().open_writer(LOG) as writer:
        futures = [writer.write_bulk(payload_batch([b"A%d" % (10 * n + m) for m in range(10)])) for n in range(20)]
        place.start()
        one.close()
        places = [future.result(120) for future in futures]
    firsts = [place.first for place in places]
    assert firsts == sorted(firsts), f"{firsts}"
    expect_each_once(namespace, b"A", count=200)
