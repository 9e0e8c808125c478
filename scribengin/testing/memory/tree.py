"""The tree of a registry in memory: nodes, versions, transactions. No sessions, no watches, no threads: pure.

It does what ZooKeeper's does, down to what is easily got wrong: a version begins at 0 and begins there again for a node
that was deleted and made anew; a sequence number counts all the children that a node ever had; an ephemeral node has no
children; of a failing transaction nothing is applied, and its first failing operation is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from scribengin_registry.client.limits import parent_of
from scribengin_registry.contract import ANY_VERSION, Check, Create, Delete, Node, Operation, Set
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NotAuthorised,
    RegistryError,
    VersionConflict,
)

_SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What happened to a node: who watches it, or its parent, is told."""

    kind: Literal["created", "deleted", "changed"]
    path: str


@dataclass(slots=True)
class _Record:
    data: bytes
    user: str | None
    owner_session: int
    created_ms: int
    modified_ms: int
    version: int = 0
    created_children: int = 0
    children: set[str] = field(default_factory=set)
    node: Node | None = None
    """As whoever reads it is given it; made anew once something of it has changed."""

    def copy(self) -> _Record:
        """The same once more."""
        return _Record(
            self.data,
            self.user,
            self.owner_session,
            self.created_ms,
            self.modified_ms,
            self.version,
            self.created_children,
            set(self.children),
        )


class MemoryTree:
    """Nodes by their paths. For one thread at a time."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {"/": _Record(b"", None, 0, 0, 0)}

    def find(self, path: str) -> Node | None:
        """The node, or None."""
        record = self._records.get(path)
        if record is None:
            return None
        if record.node is None:
            record.node = Node(
                data=record.data,
                version=record.version,
                created_ms=record.created_ms,
                modified_ms=record.modified_ms,
                owner_session=record.owner_session,
                children_count=len(record.children),
            )
        return record.node

    def children(self, path: str) -> list[str]:
        """The names of the children, sorted. Raises NodeMissing."""
        return sorted(self._record("list", path).children)

    def next_sequential(self, path: str) -> str:
        """`path` with the number that its parent gives to the next child. Raises NodeMissing."""
        parent = self._records.get(parent_of(path))
        if parent is None:
            raise _missing("create", path)
        return f"{path}{parent.created_children:0{_SEQUENCE_DIGITS}}"

    def copy(self) -> MemoryTree:
        """The same once more."""
        made = MemoryTree()
        made._records = {path: record.copy() for path, record in self._records.items()}
        return made

    def paths(self) -> list[str]:
        """Every node."""
        return list(self._records)

    def ephemerals(self, session_id: int) -> list[str]:
        """What goes with a session."""
        return [path for path, record in self._records.items() if record.owner_session == session_id]

    def apply(
        self, operations: Sequence[Operation], *, session_id: int, user: str | None, now_ms: int
    ) -> tuple[list[int], list[TreeChange]]:
        """Apply all or none, in order: the versions afterwards, as `Registry.commit` returns them, and what changed."""
        kept: dict[str, _Record | None] = {}
        versions: list[int] = []
        changes: list[TreeChange] = []
        try:
            for operation in operations:
                versions.append(self._apply(operation, kept, changes, session_id, user, now_ms))
        except RegistryError:
            for path, record in kept.items():
                if record is None:
                    self._records.pop(path, None)
                else:
                    self._records[path] = record
            raise
        return versions, changes

    def _apply(
        self,
        operation: Operation,
        kept: dict[str, _Record | None],
        changes: list[TreeChange],
        session_id: int,
        user: str | None,
        now_ms: int,
    ) -> int:
        path = operation.path
        match operation:
            case Create(_, data, ephemeral):
                self._create(path, _Record(data, user, session_id if ephemeral else 0, now_ms, now_ms), user, kept)
                changes.append(TreeChange("created", path))
                return 0
            case Set(_, data, version):
                record = self._checked("set", path, version)
                _refuse_stranger("set", path, record, user)
                self._keep(path, kept)
                record = self._records[path]
                record.data = data
                record.modified_ms = now_ms
                record.version += 1
                changes.append(TreeChange("changed", path))
                return record.version
            case Delete(_, version):
                self._delete(path, version, user, kept)
                changes.append(TreeChange("deleted", path))
                return -1
            case Check(_, version):
                return self._checked("check", path, version).version

    def _create(self, path: str, record: _Record, user: str | None, kept: dict[str, _Record | None]) -> None:
        parent = self._records.get(parent_of(path))
        if parent is None:
            raise _missing("create", path)
        if path in self._records:
            raise NodeExists(f"cannot create {path}: it exists already; read it, or choose another name", path=path)
        _refuse_stranger("create", path, parent, user)
        if parent.owner_session:
            raise RegistryError(f"cannot create {path}: its parent is ephemeral and cannot have children", path=path)
        self._keep(parent_of(path), kept)
        self._keep(path, kept)
        parent = self._records[parent_of(path)]
        parent.children.add(path.rpartition("/")[2])
        parent.created_children += 1
        self._records[path] = record

    def _delete(self, path: str, version: int, user: str | None, kept: dict[str, _Record | None]) -> None:
        record = self._checked("delete", path, version)
        _refuse_stranger("delete", path, self._records[parent_of(path)], user)
        if record.children:
            raise NodeNotEmpty(f"cannot delete {path}: it has children; delete them first", path=path)
        self._keep(parent_of(path), kept)
        self._keep(path, kept)
        self._records[parent_of(path)].children.discard(path.rpartition("/")[2])
        del self._records[path]

    def _record(self, act: str, path: str) -> _Record:
        record = self._records.get(path)
        if record is None:
            raise _missing(act, path)
        return record

    def _checked(self, act: str, path: str, version: int) -> _Record:
        record = self._record(act, path)
        if version not in (ANY_VERSION, record.version):
            raise VersionConflict(
                f"cannot {act} {path}: somebody else changed it since it was read; read it again", path=path
            )
        return record

    def _keep(self, path: str, kept: dict[str, _Record | None]) -> None:
        """Remember a record as it is before the transaction touches it, and put a copy in its place."""
        if path in kept:
            return
        record = self._records.get(path)
        kept[path] = record
        if record is not None:
            self._records[path] = record.copy()


def _missing(act: str, path: str) -> NodeMissing:
    return NodeMissing(f"cannot {act} {path}: there is no such node, or no parent for it; create that first", path=path)


def _refuse_stranger(act: str, path: str, record: _Record, user: str | None) -> None:
    """A node that a user made is changed by that user alone; a child is made and deleted by whom its parent lets."""
    if record.user not in (None, user):
        raise NotAuthorised(
            f"cannot {act} {path}: this user has no right to; set SCRIBENGIN_REGISTRY_AUTH to the user who created it "
            "(`scribengin sandbox` has printed the line for what is its own)",
            path=path,
        )
