"""A session whose credentials the servers refuse says so at once, whoever looks when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kazoo.protocol.states import KazooState, KeeperState

from scribengin_registry.contract import Registry
from scribengin_registry.errors import NotAuthorised
from scribengin_registry.zookeeper.registry import ZooKeeperRegistry

_LONG_S = 100_000.0
"""A session of that length: whoever waits for another one waits for longer than a test may take."""


class RefusedClient:
    """As kazoo's client, of a session that was connected before its credentials were refused."""

    def __init__(self) -> None:
        self.handler = SimpleNamespace(dispatch_callback=lambda callback: callback.func(*callback.args))
        self.client_id = (1, b"")
        self.client_state = KeeperState.CONNECTED
        self._listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def get_async(self, path: str) -> None:
        raise AssertionError(f"{path} is asked of servers that have refused")

    sync_async = get_async

    def set_async(self, path: str, _data: bytes, _version: int) -> None:
        self.get_async(path)

    def become(self, client_state: str, state: str) -> None:
        """kazoo changes what it knows of the server before it tells anybody."""
        self.client_state = client_state
        for listener in self._listeners:
            listener(state)


@pytest.fixture
def client() -> RefusedClient:
    return RefusedClient()


@pytest.fixture
def registry(client: RefusedClient) -> Registry:
    opened = ZooKeeperRegistry(client, "server:2181", session_timeout_s=_LONG_S)
    client.become(KeeperState.CONNECTED, KazooState.CONNECTED)
    return opened


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda registry: registry.find("/a"), id="read"),
        pytest.param(lambda registry: registry.set("/a", b""), id="write"),
        pytest.param(lambda registry: registry.sync(), id="sync"),
    ],
)
def test_who_asks_after_the_refusal_is_told_of_it(
    client: RefusedClient, registry: Registry, ask: Callable[[Registry], object]
) -> None:
    client.become(KeeperState.AUTH_FAILED, KazooState.LOST)
    with pytest.raises(NotAuthorised, match="refused the user's credentials"):
        ask(registry)


def test_who_waits_for_a_connection_hears_of_the_refusal(client: RefusedClient, registry: Registry) -> None:
    client.become(KeeperState.CONNECTING, KazooState.SUSPENDED)
    refused = threading.Timer(0.05, client.become, (KeeperState.AUTH_FAILED, KazooState.LOST))
    refused.start()
    with pytest.raises(NotAuthorised, match="refused the user's credentials"):
        registry.find("/a")
    refused.join()
