"""A proxy in a process of its own, and many clients in another: each writes record by record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from statistics import median
from typing import Any, Protocol

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.log import DLSN, LogNamespace
from scribengin.proxy import ProxiedNamespace, ProxyConfig, ProxyServer
from scribengin_registry.opening import connect

Values = Mapping[str, Any]
_MS = 1000.0


class _Writes(Protocol):
    def write(self, payload: bytes) -> Future[DLSN]: ...


class _Client:
    """Keeps `window` records under way until its share is acknowledged; the answer to one sends the next."""

    def __init__(self, writer: _Writes, payload: bytes, records: int) -> None:
        self._writer = writer
        self._payload = payload
        self._left = records
        self._unanswered = records
        self._changing = threading.Lock()
        self.took_s: list[float] = []
        self.failure: BaseException | None = None
        self.done = threading.Event()

    def begin(self, window: int) -> None:
        """Send the first of them."""
        for _ in range(min(window, self._left)):
            self._send()

    def _send(self) -> None:
        with self._changing:
            if not self._left:
                return
            self._left -= 1
        begun_s = SYSTEM_CLOCK.monotonic_s()
        self._writer.write(self._payload).add_done_callback(lambda future: self._answered(future, begun_s))

    def _answered(self, future: Future[DLSN], begun_s: float) -> None:
        self.took_s.append(SYSTEM_CLOCK.monotonic_s() - begun_s)
        self.failure = future.exception()
        with self._changing:
            self._unanswered -= 1
            ended = not self._unanswered
        if ended or self.failure is not None:
            self.done.set()
        else:
            self._send()


def _serve(job: Values) -> dict[str, float]:
    """Be the proxy of a namespace, for as long as the process lives."""
    with connect(job["hosts"]) as registry, ProxyServer(job["path"], registry, ProxyConfig(balance_s=0)):
        print("ready", flush=True)
        threading.Event().wait()
    return {}


def _clients(job: Values) -> dict[str, float]:
    """So many clients, each with a writer of its own, through the proxies."""
    return _of_all(ProxiedNamespace.open(job["namespace"]), job)


def _alone(job: Values) -> dict[str, float]:
    """One writer of the log itself."""
    return _of_all(LogNamespace.open(job["namespace"]), job)


def _of_all(namespace: LogNamespace, job: Values) -> dict[str, float]:
    count, logs, payload = job["clients"], job["logs"], bytes(job["record_bytes"])
    with namespace, ExitStack() as stack:
        writers = [stack.enter_context(namespace.open_writer(logs[n % len(logs)])) for n in range(count)]
        for future in [writer.write(payload) for writer in writers]:  # segments are made, proxies are found
            future.result()
        clients = [_Client(writer, payload, max(1, job["records"] // count)) for writer in writers]
        begun_s = SYSTEM_CLOCK.monotonic_s()
        for client in clients:
            client.begin(job["window"])
        for client in clients:
            client.done.wait()
            if client.failure is not None:
                raise client.failure
        took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    each_s = [one for client in clients for one in client.took_s]
    return {"records_per_s": len(each_s) / took_s, "p50_ms": median(each_s) * _MS}


JOBS: Mapping[str, Callable[[Values], dict[str, float]]] = {"serve": _serve, "clients": _clients, "alone": _alone}
