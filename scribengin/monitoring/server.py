"""A process's metrics and health over HTTP: GET /metrics for Prometheus, GET /health for whoever restarts things.

/health answers with one line of JSON: 200 while the process makes progress or has nothing to do, 503 when it is
stalled. That it answers at all only says that it lives.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.diagnostics import tagged
from scribengin.base.threads import background
from scribengin.errors import ConfigInvalid
from scribengin.log.metrics import exposition
from scribengin_registry.client import is_host

_LOG = logging.getLogger(__name__)

PORTS_TRIED_MAX = 100
CONNECTIONS_MAX = 32
"""The one that is here longest goes when there are more: who scrapes is answered, whoever else only connects."""
ANSWERED_S = 10.0
"""From the connection until the answer was taken."""
_ANYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a process makes progress, and what else it says about that."""

    well: bool
    words: dict[str, Any] = field(default_factory=dict)


class MonitoringServer:
    """Serves until `close`. `health` is called for each request, on a thread of the server's."""

    def __init__(self, host: str, port: int, health: Callable[[], Health]) -> None:
        """Listen on the first free port of `port` and the following ones, or on any (0): several processes of one
        dataflow may be on one machine. Raises ConfigInvalid when none is free, or `host` is no address of this machine.
        """
        self._server = _listening(host, port, health)
        self.port: int = self._server.server_address[1]
        self._thread = background("monitoring", self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where others find it."""
        host = str(self._server.server_address[0])
        named = socket.gethostname() if host in _ANYWHERE else host
        return f"http://[{named}]:{self.port}" if ":" in named else f"http://{named}:{self.port}"

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def served(host: str, port: int, health: Callable[[], Health]) -> MonitoringServer | None:
    """A server, or None where there can be none, which is said: a dataflow that cannot be measured goes on."""
    try:
        return MonitoringServer(host, port, health)
    except ConfigInvalid as error:
        _LOG.warning(str(error), extra=tagged("metrics_unserved"))
        return None


def _listening(host: str, port: int, health: Callable[[], Health]) -> _Server:
    if not is_host(host):
        raise ConfigInvalid(f"metrics_host {host}: no host is called that; name an address of this machine")
    last = min(port + PORTS_TRIED_MAX - 1, 65_535) if port else 0
    for candidate in range(port, last + 1):
        try:
            return _Server(host, candidate, health)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigInvalid(
                    f"metrics_host {host}, metrics_port {candidate}: {error.strerror}; name an address of this machine"
                ) from None
    raise ConfigInvalid(f"metrics_port: {port} to {last} on {host} are all taken; choose others, or 0 for any")


class _Server(ThreadingTCPServer):
    """Not http.server's own, which asks the name service who it is before it listens."""

    daemon_threads = True
    allow_reuse_address = True  # a process that is started again gets the port it had

    def __init__(self, host: str, port: int, health: Callable[[], Health]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[socket.socket, float] = {}  # in the order in which they came
        self._threads_now = 0
        self._changing = threading.Lock()
        super().__init__((host, port), _handler(health))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Have a thread answer, in the place of another if need be."""
        with self._changing:
            full = self._threads_now >= 2 * CONNECTIONS_MAX  # all of them work on an answer
            if not full:
                self._threads_now += 1
                self._open[request] = SYSTEM_CLOCK.monotonic_s()
            if len(self._open) > CONNECTIONS_MAX:
                _give_up(self._open, next(iter(self._open)))
        if full:
            self.close_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Its thread is done with it."""
        with self._changing:
            self._threads_now -= 1
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has gone, or was given up: that is no event. Anything else is."""
        error = sys.exception()
        if not isinstance(error, OSError):
            _LOG.warning(f"a request for metrics or health failed: {error!r}", extra=tagged("metrics_unanswered"))

    def service_actions(self) -> None:
        """Several times a second: give up what takes too long."""
        oldest_s = SYSTEM_CLOCK.monotonic_s() - ANSWERED_S
        with self._changing:
            for request in [request for request, since_s in self._open.items() if since_s < oldest_s]:
                _give_up(self._open, request)


def _give_up(open_: dict[socket.socket, float], request: socket.socket) -> None:
    """Its thread finds the connection at its end, and closes it."""
    del open_[request]
    with contextlib.suppress(OSError):  # who asked has gone
        request.shutdown(socket.SHUT_RDWR)


def _handler(health: Callable[[], Health]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = ANSWERED_S

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", exposition())
                case "/health":
                    found = health()
                    status = HTTPStatus.OK if found.well else HTTPStatus.SERVICE_UNAVAILABLE
                    line = json.dumps(found.words, ensure_ascii=False) + "\n"
                    self._answer(status, "application/json", line.encode())
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there are /metrics and /health\n")

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            with contextlib.suppress(ConnectionError, TimeoutError):  # who asked has gone
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape is no event."""

    return Handler
