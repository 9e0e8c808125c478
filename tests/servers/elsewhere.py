"""Logs in a directory, used as from another machine: so the tests of logs hold for who reads and writes them there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from scribengin.log import LogConfig, LogNamespace
from scribengin.proxy import NamespaceElsewhere, ProxyClientConfig, ProxyServer
from scribengin.testing.log_samples import bound_namespace
from scribengin_registry.contract import Registry

PATH = "/logs"


class FilesElsewhere:
    """A directory, and once a namespace is bound to it a proxy through which all of it is done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def bound(self, registry: Registry, *logs: str, config: LogConfig | None = None) -> LogNamespace:
        """A new namespace at `/logs` that holds the logs."""
        bound_namespace(registry, self._directory, *logs, config=config).close()
        self._stack.enter_context(ProxyServer(PATH, registry))
        found = NamespaceElsewhere.find(PATH, registry, client=ProxyClientConfig(patience_s=10))
        assert found is not None
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()
