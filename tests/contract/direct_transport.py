"""A proxy of this process, called without a network."""

from __future__ import annotations

import pyarrow as pa

from scribengin.proxy import ProxyServer
from scribengin.proxy.client.transport import ProxyTransport


class DirectTransport(ProxyTransport):
    """Calls a proxy of this process, so that what happens in it at a failpoint reaches the test."""

    def __init__(self, server: ProxyServer) -> None:
        self._service = server.service

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        assert address
        assert timeout_s > 0
        return [pa.py_buffer(message) for message in self._service.handle(kind, pa.py_buffer(body))]

    def close(self) -> None:
        """There is nothing to close."""
