"""A proxy on the network: an Arrow Flight server whose every call is one request."""

from __future__ import annotations

import socket
import uuid

import pyarrow as pa
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
    """A proxy for the logs of a namespace, which it writes and reads. It is found by clients when this is made."""

    def __init__(self, uri: str, registry: Registry, config: ProxyConfig | None = None) -> None:
        """`uri` as `LogNamespace.open` has it. `registry` is closed by whoever made it, after this.

        Raises ConfigInvalid (the address cannot be listened at), and as `LogNamespace.open`.
        """
        config = config or ProxyConfig()
        self._server = _listening(config)
        self._threads = CommitThread()
        try:
            self._namespace = LogNamespace.open(uri, registry=registry, commit_thread=self._threads)
        except BaseException:
            self._server.shutdown()
            self._threads.close()
            raise
        host = config.advertised_host or config.host
        host = f"[{host}]" if ":" in host else host
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


def _listening(config: ProxyConfig) -> _FlightServer:
    """Sockets of gRPC share a port with whoever lets them, and say on stderr why not: so the port is tried before."""
    at = f"[{config.host}]" if ":" in config.host else config.host
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        socket.create_server((config.host, config.port), family=family).close()
        return _FlightServer(f"grpc://{at}:{config.port}")
    except (OSError, pa.ArrowException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigInvalid(f"cannot listen at {at}:{config.port}: {first}; name another host or port") from None
