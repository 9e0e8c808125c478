"""One sender for all writers of a log in a client: what goes together, and whose the errors are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest

from scribengin.errors import (
    LogClosed,
    LogError,
    OverCapacity,
    ProxyUnreachable,
    ScribenginError,
    StoreUnreachable,
    TransactionIdOutOfOrder,
    WrittenTooFast,
)
from scribengin.log import DLSN, LogConfig, LogDescriptor
from scribengin.log.write.results import SlotRange
from scribengin.proxy import ProxiedWriter, ProxyClientConfig
from scribengin.proxy.client import sending
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.sending import LogSenders
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.state.resend import Lost, NotSent, SenderState, Sent
from scribengin.proxy.wire.requests import ASK, WRITE, AskRequest
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import payload_batch
from scribengin.testing.waiting import wait_until

LOG = "flights"
MIB = 1024 * 1024


class Proxy:
    """Takes requests when it is let, and answers as `fate` says of their payloads."""

    def __init__(self) -> None:
        self.config = ProxyClientConfig()
        self.clock = ManualClock()
        self.open = threading.Event()
        self.came = threading.Event()
        self.requests: list[list[bytes]] = []
        self.senders: list[bytes] = []
        self.fate: Callable[[list[bytes]], ScribenginError | None] = lambda _payloads: None
        self.lost = False

    def send(
        self,
        state: SenderState,
        log: str,
        directory: str,
        body: pa.RecordBatch,
        *,
        txids: bool,
        atomic: bool,
        since_s: float,
        pause: Callable[[float], object],
    ) -> Sent | NotSent | Lost:
        assert (log, directory) == (LOG, "its-directory")
        self.came.set()
        while not self.open.wait(0.01):
            if pause(0.0):
                return Lost(LogClosed("nobody waits"))
        payloads = body.column("payload").to_pylist()
        self.requests.append(payloads)
        self.senders.append(state.sender)
        error = self.fate(payloads)
        if error is None:
            return Sent((SlotRange(DLSN(1, len(self.requests), 0), body.num_rows),))
        return Lost(error) if self.lost else NotSent(error)


def log_of(config: LogConfig) -> LogDescriptor:
    return LogDescriptor(name=LOG, directory="its-directory", created_ms=0, config=config)


class Place:
    def __init__(self) -> None:
        self.proxy = Proxy()
        self.delivery = cast("ProxyDelivery", self.proxy)
        self.senders = LogSenders(self.delivery)

    def writer(self, **config: object) -> ProxiedWriter:
        parsed = LogConfig.parse(config, source="a test")
        return ProxiedWriter(self.senders, self.delivery, log_of(parsed))

    def held(self, writer: ProxiedWriter) -> None:
        """A request of that writer is under way, and stays so until the proxy is opened."""
        writer.write(b"first")
        assert self.proxy.came.wait(60)


class DeafTransport(ProxyTransport):
    """Takes calls, and answers none: each takes all the time that it may."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.limits_s: list[float] = []
        self.addresses: list[str] = []
        self.timed_out = False
        self.open = threading.Event()

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        assert kind in (ASK, WRITE)
        assert self.open.wait(60)
        self.addresses.append(address)
        self.limits_s.append(timeout_s)
        self._clock.advance_s(timeout_s)
        raise ProxyUnreachable(f"the proxy {address} does not answer", timed_out=self.timed_out)

    def close(self) -> None:
        """There is nothing to close."""


class Servers:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def servers(self) -> list[ProxyDescriptor]:
        return [ProxyDescriptor(name=name, address=name) for name in self.names]


def deaf(servers: tuple[str, ...] = ("deaf",), **config: object) -> tuple[DeafTransport, ProxyDelivery]:
    clock = ManualClock()
    transport = DeafTransport(clock)
    parsed = ProxyClientConfig.parse(config, source="a test")
    return transport, ProxyDelivery(Servers(servers), transport, parsed, clock)


def written_alone(delivery: ProxyDelivery) -> BaseException | None:
    """What becomes of a record of a writer that has a sender of its own."""
    writer = ProxiedWriter(LogSenders(delivery), delivery, log_of(LogConfig()))
    error = writer.write(b"alone").exception(60)
    writer.abort()
    return error


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_is_written_while_a_request_is_under_way_goes_together_whosever_it_is(place: Place) -> None:
    one, other = place.writer(), place.writer()
    place.held(one)
    futures = [writer.write(b"%d" % n) for n in range(10) for writer in (one, other)]
    place.proxy.open.set()
    assert [future.result(60) for future in futures] == [DLSN(1, 2, slot) for slot in range(20)]
    assert place.proxy.requests == [[b"first"], [b"%d" % n for n in range(10) for _ in range(2)]]
    assert len(set(place.proxy.senders)) == 1
    assert one.flush() == DLSN(1, 2, 18)
    assert other.flush() == DLSN(1, 2, 19)


def test_what_is_refused_is_refused_to_whose_it_is(place: Place) -> None:
    """Of 33 records, the one is found in a few requests, and the others keep their order."""
    one, other = place.writer(), place.writer()
    place.proxy.fate = lambda payloads: TransactionIdOutOfOrder("no") if b"bad" in payloads else None
    place.held(one)
    good = [one.write(b"%d" % n) for n in range(16)]
    bad = other.write(b"bad")
    good += [one.write(b"%d" % n) for n in range(16, 32)]
    place.proxy.open.set()
    places = [future.result(60) for future in good]
    assert isinstance(bad.exception(60), TransactionIdOutOfOrder)
    assert places == sorted(places)
    written = [payload for request in place.proxy.requests if b"bad" not in request for payload in request]
    assert written == [b"first", *(b"%d" % n for n in range(32))]
    assert len(place.proxy.requests) < 16
    assert not other.failed
    other.write(b"good").result(60)


def test_what_is_no_batch_is_refused_as_by_the_log_itself(place: Place) -> None:
    table: Any = pa.table({"payload": [b"a"]})
    place.proxy.open.set()
    writer = place.writer()
    for write in (writer.write_bulk, writer.write_atomic):
        with pytest.raises(LogError, match=r"and this is a Table: write each of `table.to_batches\(\)`"):
            write(table)
    writer.write(b"b").result(60)
    assert place.proxy.requests == [[b"b"]]


def test_what_all_are_refused_for_is_not_tried_one_by_one(place: Place) -> None:
    writer = place.writer()
    place.held(writer)
    futures = [writer.write(b"x") for _ in range(100)]
    batch = writer.write_bulk(payload_batch([b"y"] * 10))
    place.proxy.fate = lambda _payloads: WrittenTooFast("too fast")
    place.proxy.open.set()
    assert all(isinstance(future.exception(60), WrittenTooFast) for future in futures)
    assert isinstance(batch.exception(60), WrittenTooFast)
    assert len(place.proxy.requests) == 2


def test_what_is_too_many_at_once_for_the_log_is_written_in_parts(place: Place) -> None:
    """A log with `outstanding_writes_max` of 10 refuses a request for its size, and has room for each part of it."""
    writer = place.writer()
    place.held(writer)
    futures = [writer.write(b"%d" % n) for n in range(50)]
    place.proxy.fate = lambda payloads: OverCapacity("too many") if len(payloads) > 10 else None
    place.proxy.open.set()
    places = [future.result(60) for future in futures]
    assert places == sorted(places)
    written = [payload for request in place.proxy.requests if len(request) <= 10 for payload in request]
    assert written == [b"first", *(b"%d" % n for n in range(50))]


def test_what_the_log_has_no_room_for_is_refused_in_a_few_requests(place: Place) -> None:
    """Others use its limit up. Halving goes down to one record, and the rest would come back one by one."""
    writer = place.writer()
    place.held(writer)
    futures = [writer.write(b"%d" % n) for n in range(64)]
    place.proxy.fate = lambda payloads: OverCapacity("too many") if b"first" not in payloads else None
    place.proxy.open.set()
    assert all(isinstance(future.exception(60), OverCapacity) for future in futures)
    assert [len(request) for request in place.proxy.requests] == [1, 64, 32, 16, 8, 4, 2, 1]
    place.proxy.fate = lambda _payloads: None
    assert writer.write(b"later").result(60)
    writer.close()


def test_a_batch_of_which_a_part_is_on_its_way_fails_by_its_future(place: Place) -> None:
    """Whoever hears an error of the call writes the batch again, and the part stands twice."""
    place.proxy.config = ProxyClientConfig(request_bytes_max=MIB)
    one, other = place.writer(), place.writer(pending_bytes_max=2 * MIB)
    found: list[object] = []
    called = threading.Event()

    def calls_back(_future: object) -> None:
        found.append(other.write_bulk(payload_batch([bytes(900_000)] * 4)))
        called.set()

    one.write(b"first").add_done_callback(calls_back)
    place.proxy.open.set()
    assert called.wait(60)
    with pytest.raises(LogError, match="would wait for the thread that it runs on"):
        cast("Future[object]", found[0]).result(60)
    one.close()
    other.close()


def test_a_record_is_not_queued_for_a_thread_that_cannot_begin(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread:
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    writer = place.writer()
    place.proxy.open.set()
    with monkeypatch.context() as patch:
        patch.setattr(sending, "background", lambda *_: NoThread())
        with pytest.raises(RuntimeError, match="can't start"):
            writer.write(b"first")
    assert writer.write(b"second").result(60)
    assert place.proxy.requests == [[b"second"]]
    writer.close()


def test_a_callback_that_would_wait_for_its_own_thread_hears_so(place: Place) -> None:
    """Of any writer that the client has of the log: all of them have one thread."""
    one, other = place.writer(), place.writer(pending_bytes_max=1024)
    heard: list[LogError] = []
    called = threading.Event()

    def calls_back(_future: object) -> None:
        for waits in (lambda: [other.write(bytes(600)) for _ in range(3)], other.flush):
            try:
                waits()
            except LogError as error:
                heard.append(error)
        called.set()

    one.write(b"first").add_done_callback(calls_back)
    place.proxy.open.set()
    assert called.wait(60)
    assert [str(error) for error in heard] == [
        "log 'flights': a future's callback would wait for the thread that it runs on; hand the work to another "
        "thread, as through a queue"
    ] * 2
    assert other.flush()
    one.close()
    other.close()
    assert sum(len(request) for request in place.proxy.requests) == 2


def test_a_callback_does_not_wait_for_a_thread_that_waits_for_room(place: Place) -> None:
    one, other = place.writer(), place.writer(pending_bytes_max=1024)
    heard: list[BaseException] = []

    def calls_back(_future: object) -> None:
        try:
            other.write(b"no")
        except LogError as error:
            heard.append(error)

    one.write(b"first").add_done_callback(calls_back)
    assert place.proxy.came.wait(60)
    full = threading.Thread(target=lambda: [other.write(bytes(600)) for _ in range(2)], daemon=True)
    full.start()
    wait_until(lambda: one._sender._waiting == 1, what="a thread to wait for room")
    place.proxy.open.set()
    full.join(60)
    assert not full.is_alive()
    other.close()
    one.close()
    assert len(heard) == 1
    assert sum(len(request) for request in place.proxy.requests) == 3


def test_a_thread_that_ends_by_an_error_of_its_own_leaves_nobody_waiting(place: Place) -> None:
    one, other, later = place.writer(), place.writer(), place.writer()
    place.held(one)
    behind = other.write(b"behind")

    def breaks(payloads: list[bytes]) -> None:
        if payloads == [b"first"]:
            raise ZeroDivisionError("nobody thought of that")

    place.proxy.fate = breaks
    place.proxy.open.set()
    assert isinstance(behind.exception(60), ZeroDivisionError)
    for writer in (one, other):
        with pytest.raises(ZeroDivisionError):
            writer.flush()
    assert later.write(b"later").result(60)
    later.close()
    assert place.proxy.requests == [[b"first"], [b"later"]]
    assert len(set(place.proxy.senders)) == 2, "what was under way may be written: its numbers are not used again"


def test_what_nobody_knows_the_fate_of_ends_its_writers_and_no_others(place: Place) -> None:
    one, other = place.writer(), place.writer()
    place.proxy.lost = True
    place.proxy.fate = lambda payloads: ProxyUnreachable("gone") if b"first" in payloads else None
    place.held(one)
    behind = one.write(b"behind")
    goes_on = other.write(b"goes on")
    place.proxy.open.set()
    assert goes_on.result(60)
    assert isinstance(behind.exception(60), ProxyUnreachable)
    with pytest.raises(ProxyUnreachable):
        one.write(b"more")
    one.close()
    other.close()
    assert place.proxy.requests == [[b"first"], [b"goes on"]]
    assert len(set(place.proxy.senders)) == 2, "the others go on as a new sender"


def test_a_writer_that_is_aborted_takes_only_its_own_records_along(place: Place) -> None:
    one, other = place.writer(), place.writer()
    place.held(other)
    dropped = one.write(b"dropped")
    stays = other.write(b"stays")
    one.abort()
    assert isinstance(dropped.exception(60), LogClosed)
    place.proxy.open.set()
    assert stays.result(60)
    other.close()
    assert place.proxy.requests == [[b"first"], [b"stays"]]


def test_a_request_that_nobody_waits_for_any_more_is_given_up(place: Place) -> None:
    writer = place.writer()
    place.held(writer)
    writer.abort()
    other = place.writer()
    place.proxy.open.set()
    assert other.write(b"after it").result(60)
    other.close()


def test_a_writer_waits_for_room_of_its_own(place: Place) -> None:
    one, other = place.writer(pending_bytes_max=1024), place.writer(pending_bytes_max=1024)
    place.held(one)
    full = threading.Thread(target=lambda: [one.write(bytes(600)).done() for _ in range(3)])
    full.start()
    future = other.write(bytes(10))
    assert not future.done()
    place.proxy.open.set()
    full.join(60)
    one.close()
    other.close()
    assert sum(len(request) for request in place.proxy.requests) == 5


def test_a_lone_record_that_no_proxy_takes_fails_after_the_patience_of_its_client() -> None:
    """The last call is cut short: it does not take its thirty seconds on top."""
    transport, delivery = deaf(patience_s=40)
    transport.open.set()
    writer = ProxiedWriter(LogSenders(delivery), delivery, log_of(LogConfig()))
    error = writer.write(b"lone").exception(60)
    assert isinstance(error, ProxyUnreachable)
    assert "given up after 40 s (`patience_s` of the client): nobody knows" in str(error)
    assert transport.limits_s == [30, 10]
    with pytest.raises(ProxyUnreachable, match="given up"):
        writer.close()


@pytest.mark.parametrize(("config", "limits_s"), [({}, [5]), ({"call_timeout_s": 1}, [1, 1])])
def test_the_last_call_that_writes_has_five_seconds_if_a_call_has(
    config: dict[str, float], limits_s: list[float]
) -> None:
    transport, delivery = deaf(patience_s=2, **config)
    transport.open.set()
    assert isinstance(written_alone(delivery), ProxyUnreachable)
    assert transport.limits_s == limits_s


def test_a_proxy_has_a_whole_call_to_open_a_log_whatever_the_patience() -> None:
    """It may wait for its store meanwhile, as HDFS recovers a lease."""
    transport, delivery = deaf(patience_s=2)
    transport.open.set()
    with pytest.raises(ProxyUnreachable):
        delivery.ask(AskRequest("open", LOG), patience_s=0)
    assert transport.limits_s == [30]


@pytest.mark.parametrize(
    ("timed_out", "patience_s", "asked_next"),
    [
        pytest.param(True, 2, "first", id="it had five seconds"),
        pytest.param(True, 30, "other", id="it had all that a call has"),
        pytest.param(False, 2, "other", id="it is gone"),
    ],
)
def test_a_proxy_that_had_less_than_a_call_has_is_not_taken_for_dead(
    timed_out: bool, patience_s: float, asked_next: str
) -> None:
    transport, delivery = deaf(servers=("one", "two"), patience_s=patience_s)
    transport.timed_out = timed_out
    transport.open.set()
    for _writer in range(2):
        assert isinstance(written_alone(delivery), ProxyUnreachable)
    first, second = transport.addresses
    assert ("first" if first == second else "other") == asked_next


def test_a_lone_record_does_not_wait_out_the_patience_of_all_before_it() -> None:
    """Each writer fails with its own request, and they are sent one after the other."""
    transport, delivery = deaf(patience_s=10, call_timeout_s=5, request_bytes_max=1024)
    senders = LogSenders(delivery)
    writers = [ProxiedWriter(senders, delivery, log_of(LogConfig())) for _ in range(20)]
    futures = [writer.write(bytes(1000)) for writer in writers]
    transport.open.set()
    errors = [str(future.exception(60)) for future in futures]
    assert transport.limits_s == [5, 5]
    assert "nobody knows whether the records are in the log, and they may still come" in errors[0]
    assert all(error.endswith("the records are not in the log") for error in errors[1:])
    assert [error.count("given up") for error in errors] == [1] * len(writers)


@pytest.mark.parametrize("patience_s", [60.0, 45.0, 2.0])
def test_a_step_at_one_proxy_takes_no_longer_than_its_patience(patience_s: float) -> None:
    transport, delivery = deaf()
    transport.open.set()
    began_s = delivery.clock.monotonic_s()
    with pytest.raises(StoreUnreachable, match="does not answer"):
        delivery.ask_at("deaf", AskRequest("store_sync", LOG, {}), pause=lambda _s: False, patience_s=patience_s)
    assert delivery.clock.monotonic_s() - began_s <= patience_s + 0.1
    assert max(transport.limits_s) <= delivery.config.call_timeout_s


def test_the_proxy_for_a_log_is_waited_for_with_patience_and_found_when_it_comes() -> None:
    clock = ManualClock()
    transport, config = DeafTransport(clock), ProxyClientConfig(patience_s=30)
    servers = Servers(())
    delivery = ProxyDelivery(servers, transport, config, clock)

    def pause(seconds: float) -> bool:
        clock.advance_s(seconds)
        return False

    with pytest.raises(StoreUnreachable, match="no proxy of this namespace runs"):
        delivery.proxy_for(LOG, pause=pause)
    assert clock.monotonic_s() >= config.patience_s

    def come(seconds: float) -> bool:
        servers.names = ("late",)
        return pause(seconds)

    assert delivery.proxy_for(LOG, pause=come) == "late"
    servers.names = ()
    with pytest.raises(StoreUnreachable):
        ProxyDelivery(servers, transport, config, clock).proxy_for(LOG, pause=lambda _s: True)
