"""How a client of proxies connects to one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from scribengin.proxy.client.transport import FlightTransport
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.wire.requests import ASK


def test_a_proxy_that_is_back_is_reached_soon_however_long_it_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC tries a connection that failed again after up to two minutes: longer than a client has patience."""
    connected = []

    class Client:
        def do_action(self, _action: flight.Action, _options: flight.FlightCallOptions) -> list[flight.Result]:
            return [flight.Result(pa.py_buffer(b"D{}"))]

        def close(self) -> None:
            """Nothing is open."""

    def connect(_address: str, **options: object) -> Client:
        connected.append(dict(options.get("generic_options", [])))  # type: ignore[call-overload]
        return Client()

    monkeypatch.setattr(flight, "connect", connect)
    with FlightTransport() as transport:
        transport.call("grpc://a:1", ASK, b"{}", 1.0)
    [options] = connected
    assert options["grpc.max_reconnect_backoff_ms"] <= ProxyClientConfig().patience_s * 1000 / 10
    assert options["grpc.initial_reconnect_backoff_ms"] <= options["grpc.max_reconnect_backoff_ms"]
