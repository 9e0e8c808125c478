"""A registry in memory, for tests and simulations: sessions, watches and outages as a ZooKeeper ensemble has them.

It passes the contract suite that the real one passes (`tests/contract/registry/test_registry.py`).
Random histories on both are compared (`tests/property/test_memory_registry.py`). It is never what a user runs:
nothing of it outlives the process.

`MemoryEnsemble` is the servers: it holds the tree, knows the sessions, and can be told to lose sight of one
(`suspend`, `resume`), to expire it, or to lose requests and replies (`lose`). `MemoryRegistry` is one session.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.threads import background
from scribengin.testing.memory.tree import MemoryTree, TreeChange
from scribengin_registry.client.deadline import Deadline
from scribengin_registry.client.limits import checked_operations, checked_path, checked_size, parent_of
from scribengin_registry.client.session import Dispatch, SessionTracker, TrackedRegistry
from scribengin_registry.client.watches import WatchTable, What
from scribengin_registry.contract import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    SessionState,
    Set,
    Watch,
    WatchEvent,
)
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryClosed,
    RegistryError,
    RegistryUnreachable,
    SessionLost,
    VersionConflict,
)

# As the real client says it: one that raises ends nothing, and nobody else has to be told.
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
EventKind = Literal["created", "deleted", "changed", "children"]

Loss = Literal["request", "reply"]
"""A write of which the servers never hear, or that is done while nobody hears of it."""


class MemoryEnsemble:
    """The servers of a registry in memory. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.lock = threading.RLock()
        self.tree = MemoryTree()
        self.clock = clock
        self.lose: Callable[[str, str], Loss | None] = lambda _act, _path: None
        """Called with every write (what, and which path) that reaches this point: what becomes of it."""
        self._sessions: dict[int, MemoryRegistry] = {}
        self._sessions_made = 0

    def connect(
        self,
        chroot: str = "/",
        *,
        session_timeout_s: float = 10.0,
        user: str | None = None,
        dispatch: Dispatch | None = None,
    ) -> MemoryRegistry:
        """Open a session that sees what is below `chroot`, which is made if it is missing. Watches are called through
        `dispatch`, by default on a thread of the session's own."""
        registry = MemoryRegistry(
            self, checked_path(chroot), session_timeout_s=session_timeout_s, user=user, dispatch=dispatch
        )
        registry.begin()
        return registry

    def enter(self, registry: MemoryRegistry) -> int:
        """A new session: its id."""
        with self.lock:
            self._sessions_made += 1
            self._sessions[self._sessions_made] = registry
            return self._sessions_made

    def leave(self, session_id: int) -> None:
        """The session is over: what it kept goes, and everybody who watches that is told. Idempotent."""
        with self.lock:
            self._sessions.pop(session_id, None)
            deletions = [Delete(path) for path in self.tree.ephemerals(session_id)]
            for deletion in deletions:
                self.change([deletion], session_id=0, user=None)

    def change(self, operations: Sequence[Operation], *, session_id: int, user: str | None) -> list[int]:
        """Apply a transaction and tell who watches."""
        with self.lock:
            versions, changes = self.tree.apply(
                operations, session_id=session_id, user=user, now_ms=self.clock.now_ms()
            )
            for change in changes:
                for session in list(self._sessions.values()):
                    session.tell(change)
            return versions

    def suspend(self, registry: MemoryRegistry) -> None:
        """No server answers this session any more, and none expires it yet."""
        registry.lose_touch()

    def resume(self, registry: MemoryRegistry) -> None:
        """Servers answer again: the same session if it still stands, a new one if it has expired."""
        registry.find_again()

    def expire(self, registry: MemoryRegistry) -> None:
        """The session ends at the servers. It hears of that once it is in touch with them."""
        self.leave(registry.session_id)
        registry.was_expired()


class MemoryRegistry(TrackedRegistry):
    """A session with a `MemoryEnsemble`; its `connect` makes one. While it is away it is as `ZooKeeperRegistry` is."""

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        chroot: str,
        *,
        session_timeout_s: float,
        user: str | None,
        dispatch: Dispatch | None,
    ) -> None:
        self._ensemble = ensemble
        self._chroot = "" if chroot == "/" else chroot
        self._session_timeout_s = session_timeout_s
        self._user = user
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = background("memory-registry", self._run) if dispatch is None else None
        self._tracker = SessionTracker(self._actions.put if dispatch is None else dispatch)
        self._touch = True
        self._expired = False
        self._watches = WatchTable()

    def begin(self) -> None:
        """Open the session."""
        if self._thread is not None:
            self._thread.start()
        self._tracker.move(SessionState.CONNECTED, self._ensemble.enter(self))
        made = ""
        for name in self._chroot.split("/")[1:]:
            made = f"{made}/{name}"
            try:
                self._ensemble.change([Create(made)], session_id=self.session_id, user=self._user)
            except NodeExists:
                continue

    @property
    def hosts(self) -> str:
        return f"memory:0{self._chroot}"

    def get(self, path: str, watch: Watch | None = None) -> Node:
        def look(at: str) -> Node:
            node = self._ensemble.tree.find(at)
            if node is None:
                raise NodeMissing(f"cannot read {path}: there is no such node; create it first", path=path)
            return node

        return self._read("read", path, self._watched("node", watch, look))

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._read("look at", path, self._watched("node", watch, self._ensemble.tree.find))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._read("list", path, self._watched("children", watch, self._ensemble.tree.children))

    def unwatch(self, watch: Watch) -> None:
        self._watches.unwatch(watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False
    ) -> str:
        checked_size("create", path, len(data))

        def make(at: str) -> str:
            named = self._ensemble.tree.next_sequential(at) if sequential else at
            try:
                self._change([Create(named, data, ephemeral)])
            except RegistryError as error:
                error.path = at  # which number it would have got nobody knows
                raise
            return named.removeprefix(self._chroot)

        try:
            return self._write("create", path, make)
        except NodeMissing:
            if not parents:
                raise
            self._create_all(parent_of(path))
            return self._write("create", path, make)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        checked_size("set", path, len(data))
        return self._write("set", path, lambda at: self._change([Set(at, data, version)])[0])

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        if recursive:
            if version not in (ANY_VERSION, self.get(path).version):
                raise VersionConflict(f"cannot delete {path}: somebody else changed it since it was read", path=path)
            for name in self.children(path):
                try:
                    self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
                except NodeMissing:
                    continue  # it vanished meanwhile
        self._write("delete", path, lambda at: self._change([Delete(at, version)]))

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []
        checked_operations(operations)
        below = [replace(operation, path=self._at(operation.path)) for operation in operations]
        return self._write("commit", operations[0].path, lambda _: self._change(below))

    def sync(self, path: str = "/") -> None:
        self._read("sync", path, lambda _: None)

    def close(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        self._tracker.move(SessionState.CLOSED)
        self._actions.put(lambda: None)  # whoever waits for the next one looks at the state
        if not self._expired:
            self._ensemble.leave(self.session_id)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # -- what the ensemble calls

    def tell(self, change: TreeChange) -> None:
        """Call the watches that this change fires."""
        if change.kind == "deleted":
            self._fire("children", "deleted", change.path)
        self._fire("node", change.kind, change.path)
        if change.kind != "changed":
            self._fire("children", "children", parent_of(change.path))

    def lose_touch(self) -> None:
        """No server answers any more. Watches are forgotten, and told of it once the session's fate is known."""
        self._touch = False
        self._tracker.move(SessionState.SUSPENDED)
        with self._ensemble.lock:
            for path, watch in self._watches.take_all():
                self._tell(watch, "session", path)

    def find_again(self) -> None:
        """Servers answer again."""
        if self.state is SessionState.CLOSED:
            return
        self._touch = True
        if self._expired:
            self._tracker.move(SessionState.LOST)
            self._expired = False
            self._tracker.move(SessionState.CONNECTED, self._ensemble.enter(self))
        else:
            self._tracker.move(SessionState.CONNECTED, self.session_id)

    def was_expired(self) -> None:
        """The session is over at the servers."""
        self._expired = True
        if self._touch:
            self.lose_touch()
            self.find_again()

    # -- how requests go

    def _read(self, act: str, path: str, look: Callable[[str], _T]) -> _T:
        """The answer to a request that may be repeated, waited for until the limit."""
        at = self._at(path)
        deadline = Deadline(2 * self._session_timeout_s)
        while True:
            self._refuse_unusable(self._tracker.await_usable(deadline), act, path, deadline)
            with self._ensemble.lock:
                if self._touch:
                    return self._told_of(look, at)

    def _write(self, act: str, path: str, change: Callable[[str], _T]) -> _T:
        """The answer to a request that must not be repeated, made under the session that stood when it began."""
        at = self._at(path)
        deadline = Deadline(2 * self._session_timeout_s)
        session_id = self.session_id
        state = self._tracker.await_settled(deadline)
        if state is SessionState.LOST or self.session_id != session_id:
            raise SessionLost(f"cannot {act} {path}: the session expired, and nothing was done", path=path)
        self._refuse_unusable(state, act, path, deadline)
        loss = self._ensemble.lose(act, path)
        if loss == "request":
            raise self._unknown(act, path)
        with self._ensemble.lock:
            if not self._touch:
                raise self._unknown(act, path)
            answer = self._told_of(change, at)
        if loss == "reply":
            raise self._unknown(act, path)
        if self._thread is not None:
            self._tracker.await_told(deadline)
        return answer

    def _told_of(self, ask: Callable[[str], _T], at: str) -> _T:
        """What `ask` brings; its errors name paths as this session has them."""
        try:
            return ask(at)
        except RegistryError as error:
            message = str(error).replace(f"{self._chroot}/", "/") if self._chroot else str(error)
            raise type(error)(message, path=error.path.removeprefix(self._chroot)) from error

    def _change(self, operations: Sequence[Operation]) -> list[int]:
        return self._ensemble.change(operations, session_id=self.session_id, user=self._user)

    def _refuse_unusable(self, state: SessionState, act: str, path: str, deadline: Deadline) -> None:
        if state is SessionState.CLOSED:
            raise RegistryClosed(f"cannot {act} {path}: this registry client is closed; connect again", path=path)
        if state is not SessionState.CONNECTED or deadline.passed:
            raise RegistryUnreachable(f"cannot {act} {path}: no server of {self.hosts} answered", path=path)

    def _unknown(self, act: str, path: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the connection broke while asking to {act} {path}: it may or may not have been done; sync and read",
            path=path,
        )

    def _create_all(self, path: str) -> None:
        if path == "/" or self.find(path) is not None:
            return
        self._create_all(parent_of(path))
        try:
            self.create(path)
        except NodeExists:
            return  # somebody else was as quick

    def _at(self, path: str) -> str:
        """`path` as the ensemble has it."""
        return f"{self._chroot}{checked_path(path)}".rstrip("/") or "/"

    def _watched(self, what: What, watch: Watch | None, look: Callable[[str], _T]) -> Callable[[str], _T]:
        """`look`, which sets the watch unless it raises."""

        def looking(at: str) -> _T:
            if watch is None:
                return look(at)
            with self._watches.joined(what, at, watch):
                return look(at)

        return looking

    def _fire(self, what: What, kind: EventKind, at: str) -> None:
        for watch in self._watches.take(what, at):
            self._tell(watch, kind, at)

    def _tell(self, watch: Watch, kind: EventKind | Literal["session"], at: str) -> None:
        event = WatchEvent(kind, at.removeprefix(self._chroot) or "/")
        self._tracker.when_settled(partial(watch, event))

    def _run(self) -> None:
        """Call watches, one after the other, until the session is closed and has told of it."""
        while True:
            action = self._actions.get()
            try:
                action()
            except Exception:  # noqa: BLE001  the thread's outermost loop; the other watches are called all the same
                _LOG.exception("a watch of %s raised", self.hosts)
            if self.state is SessionState.CLOSED and self._actions.empty():
                return
