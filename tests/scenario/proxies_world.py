"""Proxies and clients without sockets: services over one registry and one disk in memory, senders that number their
records, and a network between them that tells of every message, and can lose one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from scribengin.errors import ProxyUnreachable, ScribenginError
from scribengin.log import CommitThread, LogNamespace
from scribengin.log.format.records import Record, body_of_records
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.config import ProxyClientConfig, ProxyConfig
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.proxy.service import ProxyService
from scribengin.proxy.state.resend import Lost, NotSent, SenderState, Sent
from scribengin.proxy.wire.answers import Answer, AskDone, MovedTo, Refused, TryAgain, Written, decode_answer
from scribengin.proxy.wire.requests import WRITE, AskRequest, WriteRequest, decode_ask, decode_write
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

PATIENCE_S = 0.1


def shown_request(kind: str, body: bytes) -> str:
    """A request in a few words."""
    if kind == WRITE:
        request = decode_write(pa.py_buffer(body))
        return f"write {request.log}: {_numbers(request)} of {_name_of(request.sender)}, answered {request.answered}"
    asked = decode_ask(pa.py_buffer(body))
    fields = "".join(f" {name}={value}" for name, value in asked.fields.items())
    return f"{asked.op} {asked.log}{fields}"


def shown_answer(answer: Answer) -> str:
    """An answer in a few words."""
    match answer:
        case Written(runs):
            return "written: " + ", ".join(f"{run.records} at {'/'.join(map(str, run.first))}" for run in runs)
        case MovedTo(address):
            return f"moved to {address}"
        case TryAgain(why, maybe_written):
            return f"try again: {type(why).__name__}{', some may be written' if maybe_written else ''}"
        case Refused(error):
            return f"refused: {type(error).__name__}"
        case AskDone(said):
            return "done" + "".join(f" {name}={value}" for name, value in said.items())


def _numbers(request: WriteRequest) -> str:
    last = request.number + request.records.num_rows - 1
    return str(last) if last == request.number else f"{request.number}-{last}"


def _name_of(sender: bytes) -> str:
    return sender.rstrip(b".").decode()


class TellingTransport(ProxyTransport):
    """Carries messages of one client, and tells of them."""

    def __init__(self, world: ProxiesWorld, client: str) -> None:
        self._world = world
        self._client = client

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        world = self._world
        if self._lost(address, "request"):
            world.told.append(f"{self._client} -> {address}: {shown_request(kind, body)} ... is lost")
            raise ProxyUnreachable("the request was lost")
        world.told.append(f"{self._client} -> {address}: {shown_request(kind, body)}")
        messages = world.services[address].handle(kind, pa.py_buffer(body))
        answer = [pa.py_buffer(message) for message in messages]
        line = f"{address} -> {self._client}: {shown_answer(decode_answer(answer))}"
        if address in world.dying:
            world.kill(address)
        if self._lost(address, "answer"):
            world.told.append(f"{line} ... is lost")
            raise ProxyUnreachable("the answer was lost")
        world.told.append(line)
        return answer

    def close(self) -> None:
        return

    def _lost(self, address: str, what: str) -> bool:
        if self._world.lose == what:
            self._world.lose = None
            return True
        return address in self._world.cut


@dataclass
class Client:
    """Somebody who writes logs through proxies: for each, the next sender and what it has sent."""

    name: str
    delivery: ProxyDelivery
    states: dict[str, SenderState] = field(default_factory=dict)
    records: int = 0


class ProxiesWorld:
    """The proxies, their clients, and the time."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ensemble = MemoryEnsemble()
        self._disk = MemoryDisk(f"disk {id(self)}")
        self.clock = ManualClock()
        self._registry = self._session()
        self.namespace = self._stack.enter_context(bound_namespace(self._registry, self._disk.name, store=MEMORY_STORE))
        self.services: dict[str, ProxyService] = {}
        self._sessions: dict[str, MemoryRegistry] = {}
        self._clients: dict[str, Client] = {}
        self.told: list[str] = []
        self.cut: set[str] = set()
        """Proxies that no client reaches."""
        self.dying: set[str] = set()
        """Proxies that die once they have done what they are asked, and before they say so."""
        self.lose: str | None = None
        """What the network loses next: a request, or an answer."""

    def close(self) -> None:
        """End all of it."""
        for service in self.services.values():
            with suppress(ScribenginError):  # one that was killed has no session any more
                service.close()
        self._stack.close()

    def log(self, name: str) -> None:
        self.namespace.create(name)

    def proxy(self, name: str, **config: object) -> None:
        """A proxy more, whose address is its name."""
        session = self._sessions[name] = self._session()
        thread = self._stack.enter_context(CommitThread())
        namespace = self._stack.enter_context(LogNamespace.open("/logs", registry=session, commit_thread=thread))
        parsed = ProxyConfig.parse({"balance_s": 0, **config}, source="a test")
        service = ProxyService(namespace, session, ProxyDescriptor(name=name, address=name), parsed, self.clock)
        service.announce()
        self.services[name] = service

    def client(self, name: str) -> None:
        config = ProxyClientConfig(patience_s=PATIENCE_S)
        nodes = ProxyNodes(self._registry, self.namespace.path)
        self._clients[name] = Client(name, ProxyDelivery(nodes, TellingTransport(self, name), config, self.clock))

    def writes(self, name: str, log: str, records: int) -> None:
        """The client sends so many records as its next ones."""
        client = self._clients[name]
        state = client.states.setdefault(log, SenderState(partial(self._sender, client, log), PATIENCE_S))
        body = body_of_records(
            [Record(0, None, None, f"{name}{client.records + n}".encode()) for n in range(1, records + 1)]
        )
        client.records += records
        match client.delivery.send(state, log, "", body, txids=False, pause=self._pause(name)):
            case Sent():
                pass
            case NotSent(error):
                self.told.append(f"{name} has not written them: {type(error).__name__}")
            case Lost(error):
                self.told.append(f"{name} does not know, and writes no more: {type(error).__name__}")

    def asks(self, name: str, op: str, log: str, **fields: object) -> None:
        try:
            self._clients[name].delivery.ask(AskRequest(op, log, fields), pause=self._pause(name))
        except ScribenginError as error:
            self.told.append(f"{name} is told {type(error).__name__}")

    def kill(self, proxy: str) -> None:
        """It is gone at once, and its session with it."""
        self.cut.add(proxy)
        self._sessions[proxy].close()

    def end(self, proxy: str) -> None:
        """It hands its logs over, and ends."""
        self.services[proxy].close()
        self.cut.add(proxy)

    def balance(self, proxy: str) -> None:
        """It looks at what the others do, and gives up what is to be theirs."""
        self.told += [f"{proxy} gives {move.log} to {move.to}" for move in self.services[proxy].balancer.look()]

    def steal(self, log: str) -> None:
        """Somebody who is no proxy takes the log, and is gone again. Whoever wrote it has heard of that."""
        self.namespace.open_writer(log, steal=True).close()
        writing = [service for name, service in self.services.items() if name not in self.cut]
        wait_until(lambda: not any(log in service.logs for service in writing), what="its proxy to have lost the log")

    def read(self, log: str) -> None:
        self.told.append(" ".join(payload.decode() for payload in payloads_read(self.namespace, log)))

    def wait(self, seconds: float) -> None:
        self.clock.advance_s(seconds)

    def _session(self) -> MemoryRegistry:
        return self._stack.enter_context(self._ensemble.connect())

    def _sender(self, client: Client, log: str) -> bytes:
        return client.name.encode().ljust(16, b".")

    def _pause(self, client: str) -> Callable[[float], object]:
        def pause(seconds: float) -> None:
            self.told.append(f"{client} waits {seconds:g} s")
            self.clock.advance_s(seconds)

        return pause
