"""The registry's nodes of proxies: which there are, and which log is whose. Below the namespace's node:

    proxies/servers/<proxy>     ephemeral: its address, and whether it takes more logs
    proxies/owners/<log>        ephemeral: the proxy that writes the log

An owner's node says whom to ask. What is safe is the log's own epoch, whatever stands here.
"""

from __future__ import annotations

from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, node_name
from scribengin.errors import LogBusy
from scribengin_registry.compare_and_set import LookAgain, win_race
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing


class ProxyDescriptor(Descriptor):
    """A proxy that runs."""

    name: str
    address: str
    """Where clients reach it: `grpc://host:port`, or `grpc+tls://host:port`."""
    takes_more: bool = True
    """Whether it takes logs that are nobody's. Not while it ends, nor in the node of an owner."""
    logs: int = 0
    """How many it writes, as of its last look at the others. 0 in the node of an owner, as is `load`."""
    load: float = 0.0
    """How much it does for them, in bytes a second."""
    logs_max: int | None = None
    """How many it may write. None: it does not say."""


class ProxyNodes:
    """The nodes of one namespace. Thread-safe."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._servers = f"{namespace}/proxies/servers"
        self._owners = f"{namespace}/proxies/owners"

    def announce(self, proxy: ProxyDescriptor) -> None:
        """Let clients find the proxy, as long as this session lives, or tell them what is new of it."""
        path = f"{self._servers}/{proxy.name}"

        def attempt() -> None:
            node = self._registry.find(path)
            if node is not None:
                with failpoint("proxy.server_set"):
                    self._registry.set(path, proxy.to_bytes(), node.version)
                return
            with failpoint("proxy.server_create"):
                self._registry.create(path, proxy.to_bytes(), ephemeral=True, parents=True)

        win_race(attempt, registry=self._registry)

    def withdraw(self, proxy: ProxyDescriptor) -> None:
        """Nobody finds the proxy any more. Idempotent."""
        path = f"{self._servers}/{proxy.name}"

        def attempt() -> None:
            if self._registry.find(path) is not None:
                with failpoint("proxy.server_delete"):
                    self._registry.delete(path)

        win_race(attempt, registry=self._registry)

    def servers(self) -> list[ProxyDescriptor]:
        """All proxies, by name."""
        try:
            names = self._registry.children(self._servers)
        except NodeMissing:
            return []
        paths = [f"{self._servers}/{name}" for name in names]
        nodes = zip(paths, self._registry.find_all(paths), strict=True)
        return [ProxyDescriptor.from_bytes(node.data, path=path) for path, node in nodes if node is not None]

    def owner(self, log: str) -> ProxyDescriptor | None:
        """Whose the log is, if it is a proxy's."""
        path = self._owner_path(log)
        node = self._registry.find(path)
        return None if node is None else ProxyDescriptor.from_bytes(node.data, path=path)

    def claim(self, log: str, proxy: ProxyDescriptor) -> ProxyDescriptor:
        """Make the log that proxy's if it is nobody's. Whose it is then."""
        path = self._owner_path(log)

        def attempt() -> ProxyDescriptor:
            found = self.owner(log)
            if found is not None:
                return found
            try:
                with failpoint("proxy.owner_create"):
                    self._registry.create(path, proxy.to_bytes(), ephemeral=True, parents=True)
            except NodeExists:
                raise LookAgain from None
            return proxy

        return win_race(
            attempt,
            registry=self._registry,
            exhausted=lambda: LogBusy(f"log '{log}' changes its proxy again and again; try again"),
        )

    def release(self, log: str, proxy: ProxyDescriptor) -> None:
        """The log is not that proxy's any more. Idempotent; nothing happens if it is another's."""
        path = self._owner_path(log)

        def attempt() -> None:
            node = self._registry.find(path)
            if node is not None and ProxyDescriptor.from_bytes(node.data, path=path).name == proxy.name:
                with failpoint("proxy.owner_delete"):
                    self._registry.delete(path, node.version)

        win_race(attempt, registry=self._registry)

    def _owner_path(self, log: str) -> str:
        return f"{self._owners}/{node_name(log)}"
