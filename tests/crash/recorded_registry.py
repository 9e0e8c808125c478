"""A registry session that keeps a record of what it changed, for tests that cut the power at any moment.

It is the real thing underneath. What is kept is the tree as it would be after a power failure: a transaction that
returned is durable, and ephemeral nodes end with their session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scribengin_registry.contract import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    Registry,
    SessionState,
    Set,
    Watch,
)


@dataclass(frozen=True)
class RegistryTree:
    """All persistent nodes and their data, as they are after a change."""

    nodes: dict[str, bytes]


class RecordedRegistry(Registry):
    """Passes everything on, and calls `changed` with the tree after every change; `before` may raise."""

    def __init__(
        self,
        inner: Registry,
        changed: Callable[[RegistryTree], None] = lambda _tree: None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._inner, self.changed, self._before = inner, changed, before
        self._nodes: dict[str, tuple[bytes, bool]] = {}
        self._order = threading.Lock()
        """Held over a change and its record: the record has whole transactions, in the order of the registry's own."""

    @property
    def hosts(self) -> str:
        return self._inner.hosts

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def session_timeout_s(self) -> float:
        return self._inner.session_timeout_s

    @property
    def state(self) -> SessionState:
        return self._inner.state

    @property
    def tree(self) -> RegistryTree:
        """The persistent nodes just now."""
        return RegistryTree({path: data for path, (data, ephemeral) in self._nodes.items() if not ephemeral})

    def restore(self, nodes: dict[str, bytes]) -> None:
        """Make the tree `nodes`, in one transaction; what else this session made goes."""
        gone = [Delete(path) for path in sorted(self._nodes, reverse=True)]
        self.commit([*gone, *(Create(path, nodes[path]) for path in sorted(nodes))])

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._inner.on_session(listener)

    def off_session(self, listener: Callable[[SessionState], None]) -> None:
        self._inner.off_session(listener)

    def get(self, path: str, watch: Watch | None = None) -> Node:
        return self._inner.get(path, watch)

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._inner.find(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._inner.children(path, watch)

    def unwatch(self, watch: Watch) -> None:
        self._inner.unwatch(watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False
    ) -> str:
        assert not sequential, "nothing here needs it"
        with self._order:
            self._before()
            made = self._inner.create(path, data, ephemeral=ephemeral, parents=parents)
            for at, letter in enumerate(path):
                if letter == "/" and at:
                    self._nodes.setdefault(path[:at], (b"", False))
            self._apply([Create(path, data, ephemeral)])
            return made

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        with self._order:
            self._before()
            set_version = self._inner.set(path, data, version)
            self._apply([Set(path, data)])
            return set_version

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        with self._order:
            self._before()
            self._inner.delete(path, version, recursive=recursive)
            self._apply([Delete(each) for each in self._nodes if each == path or each.startswith(f"{path}/")])

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        with self._order:
            self._before()
            versions = self._inner.commit(operations)
            self._apply(operations)
            return versions

    def sync(self, path: str = "/") -> None:
        self._inner.sync(path)

    def close(self) -> None:
        self._inner.close()

    def _apply(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Create):
                self._nodes[operation.path] = (operation.data, operation.ephemeral)
            elif isinstance(operation, Set):
                self._nodes[operation.path] = (operation.data, self._nodes[operation.path][1])
            elif isinstance(operation, Delete):
                del self._nodes[operation.path]
        self.changed(self.tree)
