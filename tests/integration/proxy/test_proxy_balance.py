"""Logs go from proxy to proxy while clients write them: what is in the logs says nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.testing.log_samples import payloads_read
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import ProxiedPlace, proxied_place

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
