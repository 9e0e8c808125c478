"""Calls of proxies over Arrow Flight."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.flight as flight

from scribengin.base.closing import ClosedAtExit
from scribengin.errors import ProxyUnreachable
from scribengin.proxy.client.credentials import ProxyCredentials
from scribengin.proxy.client.together import SharedCalls
from scribengin.proxy.config import CA_VARIABLE
from scribengin.proxy.wire.requests import TOKEN_HEADER, WRITE

_CONNECTING = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000)]
"""So long a connection that failed is not tried again. gRPC's own two minutes are longer than a client has patience:
a proxy that is back would not be asked."""


class ProxyTransport(ClosedAtExit, ABC):
    """Carries a request to a proxy, and its answer back. Thread-safe."""

    @abstractmethod
    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        """The messages of the answer. Raises ProxyUnreachable (the proxy may have done what was asked), ConfigInvalid
        (it was not asked)."""

    def call_alone(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        """As `call`, of what may have to wait long: no other request waits with it."""
        return self.call(address, kind, body, timeout_s)


class FlightTransport(ProxyTransport):
    """The one for real networks: a connection for each proxy. What is to be written meanwhile goes together."""

    def __init__(self, credentials: ProxyCredentials | None = None) -> None:
        """`credentials`: of None, proxies are not told who asks."""
        self._credentials = credentials or ProxyCredentials()
        token = self._credentials.token
        self._headers = [] if token is None else [(TOKEN_HEADER.encode(), f"Bearer {token}".encode())]
        self._lock = threading.Lock()
        self._clients: dict[str, flight.FlightClient] = {}
        self._bundles: dict[str, SharedCalls] = {}
        self._closed = False

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        if kind != WRITE:
            return self.call_alone(address, kind, body, timeout_s)
        self._credentials.check(address)
        with self._lock:
            bundles = self._bundles.get(address)
            if bundles is None:
                bundles = self._bundles[address] = SharedCalls(partial(self._answers, address))
        return bundles.call(body, timeout_s)

    def call_alone(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        self._credentials.check(address)
        return list(self._answers(address, kind, body, timeout_s))

    def _answers(self, address: str, kind: str, body: bytes, timeout_s: float) -> Iterator[pa.Buffer]:
        try:
            client = self._client(address)
            options = flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)
            for result in client.do_action(flight.Action(kind, body), options):
                yield result.body
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            timed_out = isinstance(error, flight.FlightTimedOutError)
            raise ProxyUnreachable(
                f"the proxy {address} does not answer: {_mended(first)}", timed_out=timed_out
            ) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()

    def _client(self, address: str) -> flight.FlightClient:
        with self._lock:
            if self._closed:
                raise ProxyUnreachable(f"the proxy {address} is not asked any more: the namespace was closed")
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = flight.connect(
                    address, tls_root_certs=self._credentials.authorities, generic_options=_CONNECTING
                )
            return client


def _mended(why: str) -> str:
    """With what to do, where gRPC only says what is wrong."""
    if "certificate verify failed" in why:
        return f"{why}; name the authority that its certificate is of: `ca_file`, or {CA_VARIABLE}"
    if "is not in peer certificate" in why:
        return f"{why}; have its certificate name the host by which it is reached"
    return why
