"""A registry in memory, for tests and simulations: sessions, watches and outages as a ZooKeeper ensemble has them.

It passes the contract suite that the real one passes (`tests/contract/registry/test_registry.py`).
Random histories on both are compared (`tests/property/test_memory_registry.py`). It is never what a user runs:
nothing of it outlives the process.

`MemoryEnsemble` is the servers: it holds the tree, knows the sessions, and can be told to lose sight of one
(`suspend`, `resume`), to expire it, or to lose requests and replies (`lose`). `MemoryRegistry` is one session. Most ask
the leader; who asks a `Follower` sees what that has heard of.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Transaction:
    """What the leader has applied."""

    operations: tuple[Operation, ...]
    session_id: int
    user: str | None
    now_ms: int


class Follower:
    """A server that applies what the leader has applied, in that order, but later: its sessions read what it has.

    As ZooKeeper's do, it answers no write, no `sync` and no new session before it has all that came before
    (<https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkGuarantees>). Its watches fire when it
    applies what they watch. For whoever holds the ensemble's lock.
    """

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self._waiting: deque[_Transaction] = deque()

    @property
    def behind(self) -> int:
        """How many transactions it has not applied yet."""
        return len(self._waiting)

    def hear(self, transaction: _Transaction) -> None:
        """The leader has applied that."""
        self._waiting.append(transaction)

    def apply_next(self) -> list[TreeChange]:
        """Apply the first of those that wait: what changed."""
        made = self._waiting.popleft()
        _, changes = self.tree.apply(made.operations, session_id=made.session_id, user=made.user, now_ms=made.now_ms)
        return changes


class MemoryEnsemble:
    """The servers of a registry in memory. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.lock = threading.RLock()
        self.tree = MemoryTree()
        self.clock = clock
        self.lose: Callable[[str, str], Loss | None] = lambda _act, _path: None
        """Called with every write (what, and which path) that reaches this point: what becomes of it."""
        self._followers: list[Follower] = []
        self._sessions: dict[int, MemoryRegistry] = {}
        self._sessions_made = 0

    def follower(self) -> Follower:
        """One more server, which has all that the leader has. It gets further when it is told to (`catch_up`)."""
        with self.lock:
            made = Follower()
            made.tree = self.tree.copy()
            self._followers.append(made)
            return made

    def catch_up(self, follower: Follower) -> None:
        """That server applies what it has not applied yet, and tells who watches there."""
        with self.lock:
            while follower.behind:
                self._tell(follower, follower.apply_next())

    def connect(
        self,
        chroot: str = "/",
        *,
        session_timeout_s: float = 10.0,
        user: str | None = None,
        dispatch: Dispatch | None = None,
        follower: Follower | None = None,
    ) -> MemoryRegistry:
        """Open a session that sees what is below `chroot`, which is made if it is missing. Watches are called through
        `dispatch`, by default on a thread of the session's own. It asks the leader unless a follower is given."""
        registry = MemoryRegistry(
            self,
            checked_path(chroot),
            session_timeout_s=session_timeout_s,
            user=user,
            dispatch=dispatch,
            follower=follower,
        )
        registry.begin()
        return registry

    def enter(self, registry: MemoryRegistry) -> int:
        """A new session: its id."""
        with self.lock:
            self._sessions_made += 1
            self._sessions[self._sessions_made] = registry
            registry.catch_up()
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
            now_ms = self.clock.now_ms()
            versions, changes = self.tree.apply(operations, session_id=session_id, user=user, now_ms=now_ms)
            for follower in self._followers:
                follower.hear(_Transaction(tuple(operations), session_id, user, now_ms))
            self._tell(None, changes)
            return versions

    def _tell(self, server: Follower | None, changes: Sequence[TreeChange]) -> None:
        sessions = [session for session in self._sessions.values() if session.follower is server]
        for change in changes:
            fires = _fires(change)
            for session in sessions:
                session.tell(fires)

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


_Fires = tuple[What, EventKind, str]
"""Watches of what, what they are told, and of which node."""


def _fires(change: TreeChange) -> list[_Fires]:
    """The watches that a change fires, in order."""
    path = change.path
    if change.kind == "changed":
        return [("node", "changed", path)]
    around: list[_Fires] = [("node", change.kind, path), ("children", "children", parent_of(path))]
    return [("children", "deleted", path), *around] if change.kind == "deleted" else around


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
        follower: Follower | None,
    ) -> None:
        self.follower = follower
        """The server that it asks; None is the leader."""
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
        self.catch_up()

    @property
    def hosts(self) -> str:
        return f"memory:0{self._chroot}"

    def get(self, path: str, watch: Watch | None = None) -> Node:
        def look(at: str) -> Node:
            node = self._tree.find(at)
            if node is None:
                raise NodeMissing(f"cannot read {path}: there is no such node; create it first", path=path)
            return node

        return self._read("read", path, self._watched("node", watch, look))

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._read("look at", path, self._watched("node", watch, self._tree.find))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._read("list", path, self._watched("children", watch, self._tree.children))

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
        below = [replace(one, path=self._at(one.path)) for one in operations] if self._chroot else operations
        return self._write("commit", operations[0].path, lambda _: self._change(below))

    def sync(self, path: str = "/") -> None:
        self._read("sync", path, lambda _: self.catch_up())

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

    def catch_up(self) -> None:
        """Its server gets to where the leader is."""
        if self.follower is not None:
            self._ensemble.catch_up(self.follower)

    def tell(self, fires: Sequence[_Fires]) -> None:
        """Call the watches that a change fires."""
        for what, kind, at in fires:
            for watch in self._watches.take(what, at):
                self._tell(watch, kind, at)

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
        if self._tracker.state is SessionState.CONNECTED:  # as nearly always: nothing to wait for
            with self._ensemble.lock:
                if self._touch:
                    return self._told_of(look, at)
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
            try:
                answer = self._told_of(change, at)
            finally:
                if loss is None:  # who hears no answer may be answered next by a server that has not got so far
                    self.catch_up()
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

    @property
    def _tree(self) -> MemoryTree:
        """What its server has."""
        return self._ensemble.tree if self.follower is None else self.follower.tree

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
        path = checked_path(path)
        return f"{self._chroot}{path}".rstrip("/") if self._chroot else path

    def _watched(self, what: What, watch: Watch | None, look: Callable[[str], _T]) -> Callable[[str], _T]:
        """`look`, which sets the watch unless it raises."""
        if watch is None:
            return look

        def looking(at: str) -> _T:
            with self._watches.joined(what, at, watch):
                return look(at)

        return looking

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
