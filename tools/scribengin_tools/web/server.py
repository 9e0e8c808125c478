"""`scribengin web` as a server: the address, the token, the thread that serves."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.model import Config
from scribengin.base.process.openness import is_loopback
from scribengin.errors import ConfigInvalid, ServerDown
from scribengin_registry.contract import Registry
from scribengin_tools.web.access import Access, names_of
from scribengin_tools.web.actions import WebActions
from scribengin_tools.web.app import Page
from scribengin_tools.web.connections import BACKLOG, BoundedConnection
from scribengin_tools.web.model.watcher import Watcher

TOKEN_VARIABLE = "SCRIBENGIN_WEB_TOKEN"
"""The token that lets people into `scribengin web`. Default: a new one at each start, which is printed."""
DEFAULT_PORT = 8480
_END_S = 3
_START_S = 30.0


class WebConfig(Config):
    """Where the page is served, and what it may do. Without a `token` one is made."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = None
    allow_hosts: tuple[str, ...] = ()
    write: bool = False


class WebServer:
    """Serves the page from when it is entered on, until it is left."""

    def __init__(self, registry: Registry, config: WebConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises ConfigInvalid: an address that cannot be had, or that others reach while nobody knows the token."""
        if config.token is None and not is_loopback(config.host):
            raise ConfigInvalid(
                f"--host {config.host} lets other machines in: give a token of your own, "
                f"in --token-file or {TOKEN_VARIABLE}"
            )
        self.token = config.token or secrets.token_urlsafe(32)
        access = Access(self.token, clock)
        self._socket = _listening(config.host, config.port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{config.host}]' if ':' in config.host else config.host}:{self.port}"
        self.watcher = Watcher(registry, clock)
        names = names_of(config.host, config.allow_hosts)
        cookie = f"scribengin-web-{self.port}"  # cookies know no ports, and two servers may be on one host
        page = Page(self.watcher, WebActions(registry), access, names, cookie, config.write, clock)
        settings = uvicorn.Config(
            page.app(),
            http=BoundedConnection,
            ws="none",
            backlog=BACKLOG,
            log_level="error",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_END_S,
        )
        self._server = _Server(settings, self.watcher)
        self._thread = threading.Thread(target=self._serve, name="web-server", daemon=True)

    @property
    def link(self) -> str:
        """Whoever opens it is in. What stands behind `#` stays in the browser: it is in no request and no log."""
        return f"{self.url}/login#token={self.token}"

    def __enter__(self) -> Self:
        still = threading.Event()
        self.watcher.__enter__()
        self._thread.start()
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                self.close()
                raise ServerDown(f"the web server at {self.url} did not start")
            still.wait(0.01)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all streams, and answer nobody any more."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self.watcher.close()
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Server(uvicorn.Server):
    """Ends the streams of events before it waits for what is open: they would never end by themselves."""

    def __init__(self, settings: uvicorn.Config, watcher: Watcher) -> None:
        super().__init__(settings)
        self._watcher = watcher

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watcher.stop()
        await super().shutdown(sockets)


def token_from(file: Path | None, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The token that was given, and what should be said about it. Raises ConfigInvalid: the file cannot be read, or is
    empty."""
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip() or None, None
    try:
        token = file.read_text(encoding="utf-8").strip()
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"--token-file {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not token:
        raise ConfigInvalid(f"--token-file {file} is empty: `openssl rand -hex 32 > {file}` writes a token")
    others = mode & (stat.S_IRGRP | stat.S_IROTH)
    return token, f"{file} can be read by other users: chmod 600 {file}" if others else None


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # of what nothing can be called, it is the latter
        raise ConfigInvalid(f"--host {host} is no address: name one of this machine") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigInvalid(f"port {port} of {host} is taken: --port names another one, 0 takes any") from None
        raise ConfigInvalid(f"--host {host} --port {port}: {error.strerror}; name an address of this machine") from None
    return listening
