"""A client of a log as a process: it writes, or reads, until its standard input ends. Run with `-m`.

    log_client write|read REGISTRY NAMESPACE LOG NAME

With `proxy:` before the namespace it goes through proxies. A line of JSON for each thing that it does, with the time of
this host's clock: [s, kind, ...], as `LogClient` reads it. What fails it does again, with another record.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from scribengin.errors import ScribenginError
from scribengin.log import DLSN, LogNamespace
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig
from scribengin_registry.opening import connect

_SESSION_S = 6.0
_PAUSE_S = 0.02
_PATIENCE_S = 300.0


class LogDoer:
    """What both kinds do."""

    def __init__(self, hosts: str, path: str, log: str, name: str, *, proxied: bool) -> None:
        self._hosts = hosts
        self._path = path
        self._log = log
        self._name = name
        self._proxied = proxied
        self._number = 0
        self._next = DLSN.INITIAL
        self._ended = threading.Event()
        self._telling = threading.Lock()
        threading.Thread(target=self._await_end, daemon=True).start()

    def run(self, act: Callable[[LogNamespace], None]) -> None:
        """Do it again and again, each time with a session of its own."""
        while not self._ended.is_set():
            try:
                with (
                    connect(self._hosts, session_timeout_s=_SESSION_S, auth="") as session,
                    self._opened(session) as namespace,
                ):
                    act(namespace)
            except ScribenginError as error:
                self._tell("failed", type(error).__name__, str(error)[:300])
                self._ended.wait(_PAUSE_S)

    def write(self, namespace: LogNamespace) -> None:
        """A record after the other."""
        writer = namespace.open_writer(self._log, timeout_s=5.0)
        try:
            while not self._ended.wait(_PAUSE_S):
                value = f"{self._name}-{self._number}"
                self._number += 1
                self._tell("sent", value)
                place = writer.write(value.encode()).result(_PATIENCE_S)
                self._tell("acknowledged", value, list(place))
        finally:
            writer.abort()

    def read(self, namespace: LogNamespace) -> None:
        """Everything, and what comes."""
        with namespace.open_reader(self._log, start=self._next) as reader:
            while not self._ended.is_set():
                for record in reader.read(500, timeout_s=0.5):
                    self._tell("seen", record.payload.decode(), list(record.dlsn))
                self._next = reader.position

    def _opened(self, session: object) -> LogNamespace:
        if self._proxied:
            config = ProxyClientConfig(patience_s=_PATIENCE_S, call_timeout_s=5.0, reads="proxy")
            return ProxiedNamespace.open(self._path, registry=session, client=config)  # type: ignore[arg-type]
        return LogNamespace.open(self._path, registry=session)  # type: ignore[arg-type]

    def _tell(self, kind: str, *words: object) -> None:
        with self._telling, suppress(BrokenPipeError):
            print(json.dumps([time.monotonic(), kind, *words]), flush=True)

    def _await_end(self) -> None:
        sys.stdin.read()
        self._ended.set()


def main(what: str, hosts: str, path: str, log: str, name: str) -> None:
    """Write or read."""
    proxied = path.startswith("proxy:")
    client = LogDoer(hosts, path.removeprefix("proxy:"), log, name, proxied=proxied)
    client.run(client.write if what == "write" else client.read)


if __name__ == "__main__":
    main(*sys.argv[1:])
