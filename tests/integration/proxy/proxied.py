"""Proxies and their clients in one process: one registry and one disk in memory, and real sockets between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from scribengin.log import LogConfig, LogNamespace
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig, ProxyConfig, ProxyServer
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "flights/0"
PATH = "/logs"


@dataclass
class ProxiedPlace:
    """Proxies over one namespace, each with a session of its own."""

    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.disk = MemoryDisk(f"disk {id(self)}")
        self.registry = self.session()

    def session(self) -> MemoryRegistry:
        return self.stack.enter_context(self.ensemble.connect())

    def bound(self, *logs: str, config: LogConfig | None = None) -> LogNamespace:
        """The namespace itself, with these logs."""
        return bound_namespace(self.registry, self.disk.name, *logs, config=config, store=MEMORY_STORE)

    def start(self, session: MemoryRegistry | None = None, **config: object) -> ProxyServer:
        """A proxy more."""
        parsed = ProxyConfig.parse(config, source="a test")
        return self.stack.enter_context(ProxyServer(PATH, session or self.session(), parsed))

    def client(self, **config: object) -> ProxiedNamespace:
        """A client with a session of its own."""
        client = ProxyClientConfig.parse(config, source="a test")
        return self.stack.enter_context(ProxiedNamespace.open(PATH, registry=self.session(), client=client))


def proxied_place() -> Iterator[ProxiedPlace]:
    place = ProxiedPlace()
    with place.stack:
        yield place


def batch_of(*payloads: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(list(payloads), pa.binary())], names=["payload"])
