"""Requests that go together to one proxy: their bytes, who sends them, and who is told what."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.errors import MessageInvalid, ProxyUnreachable
from scribengin.proxy.client.together import SharedCalls
from scribengin.proxy.wire.bundles import OF_ALL, SEND_ALONE, WRITES, decode_bundle, encode_bundle
from scribengin.proxy.wire.requests import WRITE
from scribengin.testing.clocks import ManualClock
from scribengin.testing.waiting import wait_until


@given(requests=st.lists(st.binary(max_size=200), min_size=1, max_size=6))
def test_a_bundle_is_read_as_it_was_made(requests: list[bytes]) -> None:
    found = decode_bundle(pa.py_buffer(encode_bundle(requests)))
    assert [bytes(one) for one in found] == requests


@given(data=st.binary(max_size=120), cut=st.integers(0, 300))
def test_what_is_no_bundle_is_refused_and_breaks_nothing(data: bytes, cut: int) -> None:
    whole = encode_bundle([b"x" * 70, b"y" * 70])
    for bad in (data, whole[:cut] if cut < 64 + 128 + 70 else b"", whole[:8] + data, encode_bundle([])):
        with pytest.raises(MessageInvalid):
            decode_bundle(pa.py_buffer(bad))


class Proxy:
    """Answers each request with itself. The first two calls are answered when they are let."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[bytes]]] = []
        self.gates = {b"first": threading.Event(), b"second": threading.Event()}
        self.answers_max = 1000
        self.refuses_all = False
        self.alone: set[bytes] = set()
        self.stalled: set[bytes] = set()
        """By themselves, these are answered when it goes on."""
        self.sent_alone: set[bytes] = set()
        self.goes_on = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, kind: str, body: bytes, _timeout_s: float) -> Iterator[pa.Buffer]:
        requests = [bytes(one) for one in decode_bundle(pa.py_buffer(body))] if kind == WRITES else [body]
        with self._lock:
            self.calls.append((kind, requests))
        if kind == WRITE and body in self.stalled:
            self.sent_alone.add(body)
            assert self.goes_on.wait(60)
        if requests[0] in self.gates:
            assert self.gates[requests[0]].wait(60)
        if self.refuses_all:
            yield pa.py_buffer(OF_ALL + b"R")
            return
        for request in requests[: self.answers_max]:
            if request == b"lost":
                raise ProxyUnreachable("the connection was lost")
            bundled = kind == WRITES and request in self.alone
            yield pa.py_buffer(SEND_ALONE if bundled else b"W" + request)


class Caller(threading.Thread):
    def __init__(self, calls: SharedCalls, request: bytes) -> None:
        super().__init__(daemon=True)
        self._calls = calls
        self._request = request
        self.found: list[bytes] | Exception | None = None

    def run(self) -> None:
        try:
            self.found = [bytes(message) for message in self._calls.call(self._request, 60)]
        except (ProxyUnreachable, MessageInvalid) as error:
            self.found = error


class Place:
    """Two calls are under way, of one request each, and so many more requests wait."""

    def __init__(self) -> None:
        self.proxy = Proxy()
        self.calls = SharedCalls(self.proxy)
        self.first = [self.ask(b"first"), self.ask(b"second")]
        wait_until(lambda: len(self.proxy.calls) == 2, what="two calls to be under way")

    def ask(self, request: bytes) -> Caller:
        caller = Caller(self.calls, request)
        caller.start()
        return caller

    def waiting(self, *requests: bytes) -> list[Caller]:
        callers = []
        for request in requests:
            callers.append(self.ask(request))
            wait_until(lambda: len(self.calls._queue) == len(callers), what="the request to wait")
        return callers

    def let(self, *callers: Caller) -> None:
        """The first call is answered, what waits goes its way, and then the second call is answered."""
        for gate, ended in ((b"first", [self.first[0], *callers]), (b"second", self.first[1:])):
            self.proxy.gates[gate].set()
            for caller in ended:
                caller.join(60)
                assert not caller.is_alive()


def test_what_comes_while_calls_are_under_way_goes_together_and_each_hears_its_own_answer() -> None:
    place = Place()
    callers = place.waiting(*(b"%d" % n for n in range(5)))
    place.let(*callers)
    assert [caller.found for caller in callers] == [[b"W%d" % n] for n in range(5)]
    assert {kind for kind, _requests in place.proxy.calls} == {WRITES}
    assert sorted(requests for _kind, requests in place.proxy.calls) == [
        [b"%d" % n for n in range(5)],
        [b"first"],
        [b"second"],
    ]


def test_what_the_proxy_does_not_take_in_a_bundle_is_sent_by_itself() -> None:
    place = Place()
    place.proxy.alone = {b"new log"}
    callers = place.waiting(b"one", b"new log", b"other")
    place.let(*callers)
    assert [caller.found for caller in callers] == [[b"Wone"], [b"Wnew log"], [b"Wother"]]
    assert (WRITE, [b"new log"]) in place.proxy.calls


def test_a_log_that_has_stalled_waits_beside_the_bundles() -> None:
    """A call of one request is a bundle, too: else two such logs would hold up all others."""
    place = Place()
    place.proxy.alone = {b"first", b"second"}
    place.proxy.stalled = {b"first", b"second"}
    place.proxy.gates[b"first"].set()
    place.proxy.gates[b"second"].set()
    wait_until(lambda: place.proxy.sent_alone == {b"first", b"second"}, what="both to wait by themselves")
    for n in range(5):
        other = place.ask(b"%d" % n)
        other.join(60)
        assert other.found == [b"W%d" % n]
    place.proxy.goes_on.set()
    for caller in place.first:
        caller.join(60)
    assert [caller.found for caller in place.first] == [[b"Wfirst"], [b"Wsecond"]]


def test_what_a_whole_bundle_is_refused_with_is_told_to_all_of_it() -> None:
    place = Place()
    callers = place.waiting(b"one", b"two", b"three")
    place.proxy.refuses_all = True
    place.let(*callers)
    assert [caller.found for caller in callers] == [[b"R"]] * 3


def test_a_connection_that_is_lost_is_told_to_those_without_an_answer() -> None:
    place = Place()
    callers = place.waiting(b"one", b"lost", b"other")
    place.let(*callers)
    assert callers[0].found == [b"Wone"]
    assert isinstance(callers[1].found, ProxyUnreachable)
    assert isinstance(callers[2].found, ProxyUnreachable)
    later = place.ask(b"later")
    place.let(later)
    assert later.found == [b"Wlater"]


def test_a_request_whose_turn_does_not_come_is_given_up_and_not_sent() -> None:
    """Calls before it that no proxy answers take their whole time, one after the other."""
    place = Place()
    with pytest.raises(ProxyUnreachable, match=r"has not answered the requests before this one for 0\.01 s"):
        place.calls.call(b"late", 0.01)
    other = place.waiting(b"other")
    place.let(*other)
    assert other[0].found == [b"Wother"]
    assert [b"late"] not in [requests for _kind, requests in place.proxy.calls]


def test_the_turn_the_bundle_and_a_call_by_itself_have_one_limit_together() -> None:
    clock = ManualClock()
    limits_s: list[tuple[str, float]] = []
    under_way, go_on = threading.Semaphore(0), threading.Event()

    def answers(kind: str, body: bytes, timeout_s: float) -> Iterator[pa.Buffer]:
        requests = [bytes(one) for one in decode_bundle(pa.py_buffer(body))] if kind == WRITES else [body]
        if requests != [b"late"]:
            under_way.release()
            assert go_on.wait(60)
        else:
            limits_s.append((kind, timeout_s))
            clock.advance_s(20)
        yield pa.py_buffer(SEND_ALONE if (kind, requests) == (WRITES, [b"late"]) else b"W")

    calls = SharedCalls(answers, clock)
    callers = [Caller(calls, one) for one in (b"first", b"second", b"late")]
    for caller in callers[:2]:
        caller.start()
        assert under_way.acquire(timeout=60)
    callers[2].start()
    wait_until(lambda: len(calls._queue) == 1, what="the request to wait")
    clock.advance_s(10)
    go_on.set()
    for caller in callers:
        caller.join(60)
    assert [caller.found for caller in callers] == [[b"W"]] * 3
    assert limits_s == [(WRITES, 50), (WRITE, 30)]


def test_who_goes_in_the_bundle_of_somebody_with_more_time_waits_no_longer_than_its_own() -> None:
    place = Place()
    place.proxy.gates[b"leads"] = threading.Event()
    leads = place.waiting(b"leads")
    late: list[ProxyUnreachable] = []

    def ask() -> None:
        try:
            place.calls.call(b"late", 0.5)
        except ProxyUnreachable as error:
            late.append(error)

    caller = threading.Thread(target=ask, daemon=True)
    caller.start()
    wait_until(lambda: len(place.calls._queue) == 2 or not caller.is_alive(), what="the request to wait")
    place.proxy.gates[b"first"].set()
    caller.join(60)
    assert len(late) == 1
    assert late[0].timed_out
    place.proxy.gates[b"leads"].set()
    place.let(*leads)
    assert leads[0].found == [b"Wleads"]


def test_who_has_little_time_left_takes_nobody_along() -> None:
    clock = ManualClock()
    sent: list[tuple[list[bytes], float]] = []
    under_way = threading.Semaphore(0)
    gates = {b"first": threading.Event(), b"second": threading.Event()}

    def answers(_kind: str, body: bytes, timeout_s: float) -> Iterator[pa.Buffer]:
        requests = [bytes(one) for one in decode_bundle(pa.py_buffer(body))]
        if requests[0] in gates:
            under_way.release()
            assert gates[requests[0]].wait(60)
        else:
            sent.append((requests, timeout_s))
        for request in requests:
            yield pa.py_buffer(b"W" + request)

    calls = SharedCalls(answers, clock)
    callers = [Caller(calls, one) for one in (b"first", b"second", b"hurries", b"patient")]
    for caller in callers[:2]:
        caller.start()
        assert under_way.acquire(timeout=60)
    callers[2].start()
    wait_until(lambda: len(calls._queue) == 1, what="the request to wait")
    clock.advance_s(58)
    callers[3].start()
    wait_until(lambda: len(calls._queue) == 2, what="the other one to wait")
    for gate, ended in ((b"first", [callers[0], *callers[2:]]), (b"second", callers[1:2])):
        gates[gate].set()
        for caller in ended:
            caller.join(60)
    assert [caller.found for caller in callers[2:]] == [[b"Whurries"], [b"Wpatient"]]
    assert sorted(sent) == [([b"hurries"], 2.0), ([b"patient"], 60.0)]


def test_answers_that_are_too_few_are_told_to_those_without_one() -> None:
    place = Place()
    place.proxy.answers_max = 2
    callers = place.waiting(b"one", b"two", b"three")
    place.let(*callers)
    assert [caller.found for caller in callers[:2]] == [[b"Wone"], [b"Wtwo"]]
    assert isinstance(callers[2].found, MessageInvalid)


def test_large_requests_do_not_all_go_together() -> None:
    place = Place()
    large = [bytes([n]) * (5 * 1024 * 1024) for n in range(3)]
    callers = place.waiting(*large)
    place.let(*callers)
    assert [caller.found for caller in callers] == [[b"W" + one] for one in large]
    assert all(len(requests) == 1 for _kind, requests in place.proxy.calls)
