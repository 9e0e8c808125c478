"""Logs go from proxy to proxy while clients write them: what is in the logs says nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.proxy.state.balance import HandOver
from scribengin.proxy.wire.answers import AskDone
from scribengin.proxy.wire.requests import AskRequest
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import PATH, ProxiedPlace, proxied_place
from tests.integration.proxy.struck import LIMIT_S, StruckProxy, client_of

LOGS = [f"flights/{n}" for n in range(6)]


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def test_a_proxy_that_comes_gets_logs_while_clients_write_them(place: ProxiedPlace) -> None:
    namespace = place.bound(*LOGS)
    one = place.start(balance_s=0.05)
    client = place.client()
    writers = [place.stack.enter_context(client.open_writer(log)) for log in LOGS]
    count = 0

    def write_on() -> None:
        nonlocal count
        for writer in writers:
            writer.write(b"%d" % count)
        count += 1

    write_on()
    other = place.start(balance_s=0.05)

    def both_write() -> bool:
        write_on()
        return len(other.service.logs) >= 2 and bool(one.service.logs)

    wait_until(both_write, what="the other proxy writes logs, too")
    for writer in writers:
        writer.flush()
    assert not set(one.service.logs) & set(other.service.logs)
    for log in LOGS:
        assert payloads_read(namespace, log) == [b"%d" % n for n in range(count)]


def test_a_proxy_that_is_not_to_balance_keeps_its_logs(place: ProxiedPlace) -> None:
    place.bound(*LOGS)
    one = place.start(balance_s=0)
    client = place.client()
    for log in LOGS:
        client.open_writer(log).close()
    other = place.start(balance_s=0)
    other.service.balancer.look()
    assert one.service.logs == LOGS


def test_a_log_goes_to_the_proxy_that_does_less_and_one_that_would_be_too_much_stays(place: ProxiedPlace) -> None:
    namespace = place.bound("hot/0", "hot/1", "cold/0", "cold/1")
    clock = ManualClock()
    proxies = {
        name: place.stack.enter_context(StruckProxy(name, place.ensemble, PATH, clock, balance_s=3600))
        for name in ("busy", "idle")
    }
    busy, idle = (proxy.service for proxy in proxies.values())
    for service, kind in ((busy, "hot"), (idle, "cold")):
        for n in range(2):
            assert service.ask(AskRequest("open", f"{kind}/{n}")) == AskDone()
    clock.advance_s(3600)  # a log that was taken a moment ago stays
    hot = [place.stack.enter_context(client_of(place, proxies).open_writer(f"hot/{n}")) for n in range(2)]
    for writer, requests in zip(hot, (3, 2), strict=True):
        for n in range(requests):
            writer.write(b"%d" % n).result(LIMIT_S)
    assert idle.balancer.look() == []
    assert busy.balancer.look() == [HandOver("hot/1", "idle")]
    hot[1].write(b"2").result(LIMIT_S)
    assert (busy.logs, idle.logs) == (["hot/0"], ["cold/0", "cold/1", "hot/1"])
    assert payloads_read(namespace, "hot/1") == [b"0", b"1", b"2"]
    clock.advance_s(3600)
    hot[0].write(b"3").result(LIMIT_S)
    assert (idle.balancer.look(), busy.balancer.look()) == ([], []), "all load is that of one log"
