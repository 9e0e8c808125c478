"""Ctrl-C in the middle of a request: kazoo takes it for a connection that broke, and it must be heard all the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer

from scribengin.testing.waiting import wait_until
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_registry.client import interrupt
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect


class InterruptedSocket:
    """What kazoo wakes its thread by. This process gets a signal while the first byte is sent."""

    def __init__(self, real: Any, number: signal.Signals) -> None:
        self._real, self._number = real, number
        self.sent = False

    def send(self, data: bytes) -> int:
        sent = int(self._real.send(data))
        if not self.sent:
            self.sent = True
            signal.raise_signal(self._number)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def interrupted_requests(hosts: str, number: signal.Signals) -> Iterator[Registry]:
    with connect(hosts) as registry:
        session: Any = registry
        connection = session._client._connection
        connection._write_sock = InterruptedSocket(connection._write_sock, number)
        yield registry


def ask(registry: Registry) -> None:
    """Requests of somebody who does not know of the interruption."""
    wait_until(lambda: registry.find("/") is None, what="the interruption, which never came")


def test_an_interruption_is_heard_once_the_request_is_sent(registry_hosts: str) -> None:
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with interrupted_requests(registry_hosts, signal.SIGINT) as registry, pytest.raises(KeyboardInterrupt):
            ask(registry)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_whatever_it_was_asking(
    registry_hosts: str, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(typer.Exit) as ended,
        ending_cleanly("demo"),
        interrupted_requests(registry_hosts, number) as registry,
    ):
        ask(registry)
    assert ended.value.exit_code == 130
    assert isinstance(ended.value.__context__, KeyboardInterrupt), "what kazoo made of it ended the demo"
    assert capsys.readouterr().err == "demo: interrupted; everything it had started is stopped\n"
