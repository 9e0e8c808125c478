"""Proxies, and writers beside them, of one process as if each had a machine of its own: it is stopped at a step of its
writer, cut off or switched off, and others hear nothing from it.

Nothing here waits for a limit of time: who does not answer any more is one who has not answered in time, and whose
session has ended by that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import LogWriteFailed, ProxyUnreachable
from scribengin.log import CommitThread, LogNamespace
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig, ProxyConfig
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import PATH, ProxiedPlace

LIMIT_S = 300.0
_T = TypeVar("_T")
_here = threading.local()
"""`machine`: the one that this thread is of. Whoever is of none is never struck."""


def pass_stop(stop: str) -> None:
    """The hook of failpoints: whoever is on a machine is struck with it."""
    machine = getattr(_here, "machine", None)
    if isinstance(machine, StruckMachine):
        machine.passed(stop)


class BehindClock:
    """The machine's clock, but that the time of day is that of so many hours ago."""

    def __init__(self, hours: float) -> None:
        self._behind_ms = round(hours * 3_600_000)

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() - self._behind_ms

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


class StruckMachine(ClosedAtExit):
    """A machine: a session, a namespace that is open there, and a thread that writes."""

    def __init__(self, name: str, ensemble: MemoryEnsemble, path: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.session = ensemble.connect()
        self._ensemble = ensemble
        self._commits = _MachinesCommits(self)
        self.namespace = LogNamespace.open(path, registry=self.session, clock=clock, commit_thread=self._commits)
        self._stop = ""
        """Where it is to stand still."""
        self._halted = threading.Event()
        self._goes = threading.Event()
        self._goes.set()
        self._away = False
        self.off = False

    def halt(self, stop: str) -> None:
        """Let it stand still as soon as one of its threads gets there, and its session end. From then on nobody hears
        from it."""
        self._halted.clear()
        self._stop = stop
        wait_until(self._halted.is_set, LIMIT_S, f"{self.name} to get to {stop}")
        self._away = True
        self.silence()
        self._ensemble.suspend(self.session)
        self._ensemble.expire(self.session)

    def silence(self) -> None:
        """Nobody hears from it any more."""

    def go_on(self) -> None:
        """Let its threads go on, of which nobody hears yet."""
        self._goes.set()

    def rejoin(self) -> None:
        """It goes on if it did not, and is heard again. It learns that its session has ended."""
        self._goes.set()
        self._away = False
        self._ensemble.resume(self.session)

    def switch_off(self) -> None:
        """It never goes on."""
        self.off = True
        self.session.close()
        self._goes.set()

    def run(self, work: Callable[[], _T]) -> Future[_T]:
        """Do that on a thread of this machine."""
        outcome: Future[_T] = Future()

        def do() -> None:
            _here.machine = self
            with suppress(InvalidStateError):  # nobody waits for it any more
                try:
                    outcome.set_result(work())
                except Exception as error:  # noqa: BLE001  the thread's outermost loop: whoever waits raises it
                    outcome.set_exception(error)

        background(self.name, do).start()
        return outcome

    def passed(self, stop: str) -> None:
        """One of its threads is there. Raises LogWriteFailed where the machine is off."""
        if stop == self._stop:
            self._stop = ""
            self._goes.clear()
            self._halted.set()
        assert self._goes.wait(LIMIT_S), f"{self.name} was left standing at {stop}"
        if self.off:
            raise LogWriteFailed(f"{self.name} is off")

    def come_back(self) -> None:
        """So that it can be closed, whatever a test that failed has left it in."""
        self._stop = ""
        if self._away and not self.off:
            self.rejoin()

    def close(self) -> None:
        self.come_back()
        self.namespace.close()
        self._commits.close()
        self.session.close()


class _MachinesCommits(CommitThread):
    """Its thread is on that machine."""

    def __init__(self, machine: StruckMachine) -> None:
        super().__init__()
        self._machine = machine

    def _run(self) -> None:
        _here.machine = self._machine
        super()._run()


class StruckProxy(StruckMachine):
    """A proxy on a machine, which looks at the others every so many seconds (0: never)."""

    def __init__(self, name: str, ensemble: MemoryEnsemble, path: str, clock: Clock, balance_s: float = 0) -> None:
        super().__init__(name, ensemble, path, clock)
        config = ProxyConfig(balance_s=balance_s)
        proxy = ProxyDescriptor(name=name, address=name)
        self.service = ProxyService(self.namespace, self.session, proxy, config, clock)
        self._asking = threading.Lock()
        self._silent = False
        self._asked: set[Future[list[pa.Buffer]]] = set()
        self.service.announce()

    def ask(self, kind: str, body: bytes) -> list[pa.Buffer]:
        """What it answers. Raises ProxyUnreachable once nobody hears from it."""
        with self._asking:
            if self._silent:
                raise ProxyUnreachable(f"{self.name} does not answer")
            answer = self.run(lambda: [pa.py_buffer(said) for said in self.service.handle(kind, pa.py_buffer(body))])
            self._asked.add(answer)
        try:
            return answer.result()
        finally:
            with self._asking:
                self._asked.discard(answer)

    def silence(self) -> None:
        with self._asking:
            self._silent = True
            for answer in self._asked:
                with suppress(InvalidStateError):  # it has just come
                    answer.set_exception(ProxyUnreachable(f"{self.name} does not answer any more"))

    def rejoin(self) -> None:
        with self._asking:
            self._silent = False
        super().rejoin()

    def end(self) -> None:
        """In order: it hands its logs over."""
        self.run(self.service.close).result(LIMIT_S)
        self.silence()

    def close(self) -> None:
        self.come_back()
        if self.off:
            self.service.writes.close()
            self.service.reads.close()
        else:
            self.service.close()
        super().close()


class ReachedProxies(ProxyTransport):
    """Carries what clients ask."""

    def __init__(self, proxies: dict[str, StruckProxy]) -> None:
        self._proxies = proxies

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        assert timeout_s > 0
        proxy = self._proxies.get(address)
        if proxy is None:
            raise ProxyUnreachable(f"{address} does not answer yet: it was announced, and is being started")
        return proxy.ask(kind, body)

    def close(self) -> None:
        """There is nothing to close."""


def client_of(place: ProxiedPlace, proxies: dict[str, StruckProxy]) -> ProxiedNamespace:
    """Somebody who is patient."""
    config = ProxyClientConfig(reads="proxy", call_timeout_s=LIMIT_S, patience_s=LIMIT_S)
    transport = ReachedProxies(proxies)
    return place.stack.enter_context(
        ProxiedNamespace.open(PATH, registry=place.session(), client=config, transport=transport)
    )
