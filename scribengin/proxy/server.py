"""A proxy on the network: an Arrow Flight server whose every call is one request."""

from __future__ import annotations

import uuid

import pyarrow.flight as flight

from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import ConfigInvalid
from scribengin.log import CommitThread, LogNamespace
from scribengin.proxy.config import ProxyConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin_registry.contract import Registry


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Carries requests to the service that it is given before the first of them can come."""

    service: ProxyService

    def do_action(self, _context: flight.ServerCallContext, action: flight.Action) -> list[object]:
        """Called by Flight, on a thread for each request that is under way."""
        return list(self.service.handle(action.type, action.body))


class ProxyServer(ClosedAtExit):
    """A write proxy for the logs of a namespace. It is found by clients when this is made."""

    def __init__(self, uri: str, registry: Registry, config: ProxyConfig | None = None) -> None:
        """`uri` as `LogNamespace.open` has it. `registry` is closed by whoever made it, after this.

        Raises ConfigInvalid (the address cannot be listened at), and as `LogNamespace.open`.
        """
        config = config or ProxyConfig()
        self._threads = CommitThread()
        self._namespace = LogNamespace.open(uri, registry=registry, commit_thread=self._threads)
        try:
            self._server = _FlightServer(f"grpc://{config.host}:{config.port}")
        except OSError as error:
            raise ConfigInvalid(f"cannot listen at {config.host}:{config.port}: {error}") from None
        host = config.advertised_host or config.host
        self.address = f"grpc://{host}:{self._server.port}"
        """Where clients reach it."""
        proxy = ProxyDescriptor(name=uuid.uuid4().hex, address=self.address)
        self.service = ProxyService(self._namespace, registry, proxy, config)
        self._server.service = self.service
        self._thread = background("proxy-server", self._server.serve)
        self._thread.start()
        self.service.announce()

    def close(self) -> None:
        """Hand the logs over to the other proxies, answer what is under way, and end. Idempotent."""
        try:
            self.service.close()
        finally:
            self._server.shutdown()
            self._thread.join()
            self._namespace.close()
            self._threads.close()
