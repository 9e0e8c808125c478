"""A proxy on the network: an Arrow Flight server whose every call is one request."""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from scribengin.base.closing import ClosedAtExit
from scribengin.errors import ConfigInvalid, LogClosed
from scribengin.log import LOGS_AT_ONCE, CommitThread, LogNamespace
from scribengin.proxy.access import rules_of
from scribengin.proxy.config import ProxyConfig, TlsConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire.answers import TryAgain, encode_answer
from scribengin.proxy.wire.bundles import OF_ALL, WRITES
from scribengin.proxy.wire.requests import TLS_SCHEME, TOKEN_HEADER
from scribengin_registry.client import is_host
from scribengin_registry.contract import Registry

_BEARER = "Bearer "


class _SentToken(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The token that came with a call, while it is under way."""

    def __init__(self, token: str | None) -> None:
        self.token = token


class _TokenReader(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Flight shows the headers of a call nowhere else."""

    def start_call(self, _info: object, headers: dict[str, list[str]]) -> _SentToken:
        sent = next(iter(headers.get(TOKEN_HEADER, [])), "")
        return _SentToken(sent.removeprefix(_BEARER) if sent.startswith(_BEARER) else None)


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Carries requests to the service that it is given. It serves from when it is made: who comes before that is told
    to ask again. Never call `serve`: that takes the process's signals, shuts down by itself, and tells nobody."""

    service: ProxyService | None = None

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[object] | list[object]:
        """Called by Flight, on a thread for each call that is under way."""
        sent = context.get_middleware(TOKEN_HEADER)
        token = None if sent is None else sent.token
        service = self.service
        if service is None:
            not_yet = encode_answer(TryAgain(LogClosed("the proxy is starting; ask again in a moment")))
            return [b"".join((OF_ALL, *not_yet))] if action.type == WRITES else list(not_yet)
        if action.type == WRITES:
            return service.answer_bundle(action.body, token)
        return list(service.handle(action.type, action.body, token))


class ProxyServer(ClosedAtExit):
    """A proxy for the logs of a namespace, which it writes and reads. It is found by clients when this is made."""

    def __init__(self, uri: str, registry: Registry, config: ProxyConfig | None = None) -> None:
        """`uri` as `LogNamespace.open` has it. `registry` is closed by whoever made it, after this.

        Raises ConfigInvalid (the address cannot be listened at, a certificate or a token is none), ReferenceMissing,
        and as `LogNamespace.open`.
        """
        config = config or ProxyConfig()
        access = rules_of(config.access)
        with ExitStack() as undo:
            self._threads = CommitThread(threads_max=LOGS_AT_ONCE)
            undo.callback(self._threads.close)
            self._server = _listening(config)
            undo.callback(self._server.shutdown)
            self._namespace = LogNamespace.open(uri, registry=registry, commit_thread=self._threads)
            undo.callback(self._namespace.close)
            host = config.advertised_host or config.host
            host = f"[{host}]" if ":" in host else host
            self.address = f"{_scheme(config)}://{host}:{self._server.port}"
            """Where clients reach it."""
            proxy = ProxyDescriptor(name=uuid.uuid4().hex, address=self.address, logs_max=config.logs_max)
            self.service = ProxyService(self._namespace, registry, proxy, config, access=access)
            self._server.service = self.service
            self.service.announce()
            undo.pop_all()

    def close(self) -> None:
        """Hand the logs over to the other proxies, answer what is under way, and end. Idempotent."""
        try:
            self.service.close()
        finally:
            self._server.shutdown()
            self._server.wait()
            self._namespace.close()
            self._threads.close()


def _listening(config: ProxyConfig) -> _FlightServer:
    """Sockets of gRPC share a port with whoever lets them, and say on stderr why not: so the port is tried before."""
    if not is_host(config.host):
        raise ConfigInvalid(f"cannot listen at {config.host}: no host is called that; name another one")
    at = f"[{config.host}]" if ":" in config.host else config.host
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    certificates = None if config.tls is None else [_certificate(config.tls)]
    readers = None if config.access is None else {TOKEN_HEADER: _TokenReader()}
    try:
        socket.create_server((config.host, config.port), family=family).close()
        location = f"{_scheme(config)}://{at}:{config.port}"
        return _FlightServer(location, tls_certificates=certificates, middleware=readers)
    except (OSError, pa.ArrowException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigInvalid(f"cannot listen at {at}:{config.port}: {first}; name another host or port") from None


def _scheme(config: ProxyConfig) -> str:
    return "grpc" if config.tls is None else TLS_SCHEME


def _certificate(tls: TlsConfig) -> tuple[bytes, bytes]:
    """The certificate and its key. gRPC says on stderr what is wrong with them: so they are looked at before."""
    certificate, key = (Path(file).expanduser() for file in (tls.certificate_file, tls.key_file))
    try:
        found = certificate.read_bytes(), key.read_bytes()
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        why = (error.reason or "no PEM").replace("_", " ").lower()
        raise ConfigInvalid(f"{certificate} and {key} are no certificate and its key, as PEM ({why})") from None
    except OSError as error:
        raise ConfigInvalid(f"{error.filename} cannot be read ({error.strerror}): name the proxy's own file") from None
    return found
