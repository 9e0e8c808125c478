"""Logs on a disk in memory, whose every reader asks a proxy: so the tests of logs hold for readers behind proxies."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from scribengin.log import LogConfig, LogNamespace
from scribengin.log.store.contract import IndexKind, SegmentLocation, SegmentName, SegmentStore, SegmentView
from scribengin.log.store.opening import add_store_kind
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig, ProxyServer
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.segments import MemoryKind, MemorySegmentStore
from scribengin_registry.contract import Registry

STORE = "memory-by-proxy"
PATH = "/logs"


class _WrittenHereReadByProxy(MemorySegmentStore):
    """Written on this disk; what is read is asked for at a proxy, but for what has to come from the disk itself."""

    def __init__(self, disk: MemoryDisk, token: str | None, proxied: SegmentStore) -> None:
        super().__init__(disk, token)
        self._proxied = proxied

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        return super().open(name, from_disk=True) if from_disk else self._proxied.open(name)

    def location(self, name: SegmentName) -> SegmentLocation:  # type: ignore[override]  # where it is asked for
        return self._proxied.location(name)

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        return self._proxied.load_index(name, kind)


class ReadByProxy(MemoryKind):
    """A disk, and once a namespace is bound to it a proxy that serves it."""

    def __init__(self) -> None:
        self._disk = MemoryDisk("disk behind a proxy")
        self._stack = ExitStack()
        self._proxied: SegmentStore | None = None
        add_store_kind(STORE, self)

    def open(self, location: str, token: str | None) -> SegmentStore:
        if self._proxied is None:
            return super().open(location, token)
        return _WrittenHereReadByProxy(self._disk, token, self._proxied)

    def bound(self, registry: Registry, *logs: str, config: LogConfig | None = None) -> LogNamespace:
        """A new namespace at `/logs` that holds the logs."""
        LogNamespace.bind(PATH, self._disk.name, registry=registry, store=STORE)
        self._stack.enter_context(ProxyServer(PATH, registry))
        client = ProxyClientConfig(reads="proxy", patience_s=10)
        proxied = self._stack.enter_context(ProxiedNamespace.open(PATH, registry=registry, client=client))
        self._proxied = proxied._store
        return bound_namespace(registry, self._disk.name, *logs, config=config, store=STORE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._proxied = None
        self._stack.close()
