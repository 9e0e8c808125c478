"""What the engine asks of a registry: nodes with versions, ephemeral nodes, watches, one transaction over many nodes.

Every change that matters is a compare-and-set: `set`, `delete` and the operations of `commit` take the version that was
read, and raise `VersionConflict` when somebody else was faster. That is the only fencing primitive of the whole engine.

The mistake this contract invites: treating a lost connection as a failure. A write whose reply was lost *may have been
applied*; it raises `OutcomeUnknown`, and nothing may be retried or undone until `sync()` and a read have settled it.
Reads are retried by the implementation and raise only `RegistryUnreachable` or `SessionLost`.

Not promised: that a watch fires once for each change. A watch says "look again"; it fires at least once after a change,
also after the session was re-established, and several changes may share one event. A watch fires at most once per
registration, as ZooKeeper's do; set it again by reading again. Nor that it fires at once when another session made the
change. But a write returns after the watches of its own session that it fired: whoever goes by them is not behind what
was written.

The other mistake: a watch that nobody waits for any more. It is kept, with all that it refers to, until its node
changes, and that may be never. Take it back with `unwatch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Self

ANY_VERSION = -1
"""Whatever the version is: nothing is compared."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as it was read. `owner_session` is 0 for a persistent node, else the session that keeps it."""

    data: bytes
    version: int
    created_ms: int
    modified_ms: int
    owner_session: int
    children_count: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Look again at `path`. `session` means that the session changed state and any node may have changed."""

    kind: Literal["created", "deleted", "changed", "children", "session"]
    path: str


class SessionState(Enum):
    """CONNECTED; SUSPENDED (no server just now, ephemeral nodes still stand); LOST (they are gone); CLOSED (by us)."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


Watch = Callable[[WatchEvent], None]
"""Called on a thread of the registry's own, never the caller's. It must return at once and never call the registry."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`. Its parent must exist, or be created by an earlier operation of the same transaction."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Set the data of `path`, if its version is `version`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete `path`, if its version is `version`."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail the transaction unless the version of `path` is `version`."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
"""A part of a transaction."""


class Registry(ABC):
    """A session with the registry. Thread-safe. Paths are absolute and slash-separated."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The servers, as in `host:port,host:port/chroot`."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The id of the current session; it changes after `SessionState.LOST`."""

    @property
    @abstractmethod
    def session_timeout_s(self) -> float:
        """How long the session outlives its connection, as it was asked for; a server's limits may change it."""

    @property
    @abstractmethod
    def state(self) -> SessionState:
        """The state of the session just now."""

    @abstractmethod
    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` at every change of state, under the same rules as a `Watch`."""

    @abstractmethod
    def off_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` no more, and keep nothing of it; a call that is on its way may still come.

        Nothing happens if it does not listen.
        """

    @abstractmethod
    def get(self, path: str, watch: Watch | None = None) -> Node:
        """The node. Raises NodeMissing. A read that raises sets no watch."""

    @abstractmethod
    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None. The watch is set in both cases: it also fires when the node is created."""

    def find_all(self, paths: Sequence[str]) -> list[Node | None]:
        """As `find` for each of them, not at one moment; asked for together where the registry can."""
        return [self.find(path) for path in paths]

    @abstractmethod
    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of the children, sorted. Raises NodeMissing."""

    @abstractmethod
    def unwatch(self, watch: Watch) -> None:
        """Take `watch` back wherever it was set, and keep nothing of it; one that fires just now may still be called.

        Asks no server. Nothing happens if it was never set, or has fired.
        """

    @abstractmethod
    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False
    ) -> str:
        """Create a node and return its path. Raises NodeExists, NodeMissing (the parent), OutcomeUnknown."""

    @abstractmethod
    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Set the data, return the new version. Raises NodeMissing, VersionConflict, OutcomeUnknown."""

    @abstractmethod
    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        """Delete a node. Raises NodeMissing, NodeNotEmpty, VersionConflict, OutcomeUnknown.

        With `recursive`, children first, and a node that vanishes meanwhile is fine.
        """

    @abstractmethod
    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations or none, in order, and return the version of each node afterwards (-1: deleted).

        Raises the error of the first operation that failed (NodeMissing, NodeExists, NodeNotEmpty, VersionConflict)
        with its `path`; then nothing was applied. Raises OutcomeUnknown when the reply was lost: all or nothing was.
        """

    @abstractmethod
    def sync(self, path: str = "/") -> None:
        """Return once this session's server has seen all that was committed before the call."""

    @abstractmethod
    def close(self) -> None:
        """End the session: its ephemeral nodes vanish at once. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ProtectedRegistry(Registry):
    """A session of a registry that knows users: what one has created, nobody else may change."""

    @property
    @abstractmethod
    def has_user(self) -> bool:
        """Whether the session is somebody's, so that what it creates is theirs."""

    @abstractmethod
    def is_open(self, path: str) -> bool:
        """Whether anybody may change the node, or what stands right below it. False for one that is not there."""

    @abstractmethod
    def protect(self, path: str) -> int:
        """Make the session's user the owner of `path` and of all below it that anybody may change now: how many that
        were. Raises RegistryError (the session is nobody's), NotAuthorised."""
