"""The registry on a ZooKeeper ensemble, through kazoo. Only this folder knows kazoo.

What kazoo does, and what this file makes of it:
- It returns the errors of a transaction as items of its result. Every item is looked at, and the one that really failed
  is told from those that were merely rolled back.
- A write that meets a broken connection ends in ConnectionLoss, whether it was sent or not: OutcomeUnknown. Therefore a
  write is not handed to kazoo before there is a connection; then nothing was sent, and RegistryUnreachable says so.
- It forgets its watches when the connection breaks, and calls each with an event of type NONE. That event is held back
  until the session is either re-established or lost, because only then can anybody look again.
- It keeps every watch until it fires, and takes none back: it is given one for each node (watches.py).
- It has the state LOST only after a server told it that the session expired. Away from all servers it stays SUSPENDED.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    SessionExpiredError,
    WriterNotClosedException,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from scribengin_registry.client.deadline import Deadline
from scribengin_registry.client.limits import checked_operations, checked_path, checked_size, is_host, parent_of
from scribengin_registry.client.session import SessionTracker, TrackedRegistry
from scribengin_registry.client.watches import SharedWatch, WatchTable, What
from scribengin_registry.contract import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    ProtectedRegistry,
    SessionState,
    Set,
    Watch,
    WatchEvent,
)
from scribengin_registry.credentials import AUTH_VARIABLE
from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    RegistryError,
    RegistryUnreachable,
)
from scribengin_registry.references import resolved
from scribengin_registry.threads import background
from scribengin_registry.zookeeper.attempts import ImpatientHandler, limit_greetings
from scribengin_registry.zookeeper.auth import SessionAuth, is_open, parse_auth
from scribengin_registry.zookeeper.errors import BROKEN, BYSTANDER, translated

# A server that is away is an exception or a state for whoever asks, not a line on stderr; the level keeps kazoo from
# writing requests, and with them passwords, to a log that somebody turned up.
_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
_LOG.setLevel(logging.WARNING)

_RECONNECT_DELAY_MAX_S = 1.0
_ASKED_TOGETHER_MAX = 512
_KINDS: dict[str, Literal["created", "deleted", "changed", "children"]] = {
    EventType.CREATED: "created",
    EventType.DELETED: "deleted",
    EventType.CHANGED: "changed",
    EventType.CHILD: "children",
}


def connect(
    hosts: str, *, session_timeout_s: float = 10.0, connect_timeout_s: float = 10.0, auth: str | None = None
) -> ZooKeeperRegistry:
    """As `scribengin_registry.opening.connect`, which everybody else comes through."""
    if "://" in hosts:
        raise _no_registry(hosts, "it is a URL")
    listed, _, chroot = hosts.partition("/")
    servers = ",".join(map(str.strip, listed.split(",")))  # kazoo strips names; not every Python parses " [::1]:2181"
    identity = parse_auth(resolved(os.environ.get(AUTH_VARIABLE, "") if auth is None else auth))
    client = _client(hosts, servers, session_timeout_s, identity)
    registry = ZooKeeperRegistry(client, hosts, session_timeout_s=session_timeout_s)
    if not registry.begin(connect_timeout_s):
        # kazoo's thread may hang in connect() for a while: whoever waits for an answer need not.
        background("registry-give-up", registry.close).start()
        raise RegistryUnreachable(
            f"no ZooKeeper server answered at {servers} within {connect_timeout_s:g} s: check the address and that the "
            "server runs (`scribengin sandbox` starts one)"
        )
    try:
        if identity.sasl is not None:
            registry.find("/")  # kazoo calls itself connected before the server has believed it
        registry.enter_chroot(checked_path(f"/{chroot.strip('/')}"))
    except BaseException:
        registry.close()
        raise
    return registry


def _client(hosts: str, servers: str, session_timeout_s: float, auth: SessionAuth) -> KazooClient:
    handler = ImpatientHandler(session_timeout_s)
    retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=_RECONNECT_DELAY_MAX_S, sleep_func=handler.sleep_func)
    try:
        _refuse_misnamed(servers)
        client = KazooClient(
            hosts=servers,
            timeout=session_timeout_s,
            handler=handler,
            default_acl=auth.acl,
            auth_data=auth.data,
            sasl_options=auth.sasl,
            connection_retry=retry,
            logger=_LOG,
        )
        limit_greetings(client, session_timeout_s)
        return client
    except ValueError as error:
        raise _no_registry(hosts, str(error)) from error


def _refuse_misnamed(servers: str) -> None:
    """kazoo looks for servers on a thread of its own, which a name that is none ends; of an address it passes over what
    belongs to other kinds of URLs, and takes port 0 for the usual one. Raises ValueError."""
    for server in servers.split(","):
        if odd := next((char for char in server if char in "@?#" or not char.isprintable()), None):
            raise ValueError(f"{odd!a} is part of no address")
        parts = urlsplit(f"//{server}")
        if not parts.hostname:
            raise ValueError("a host is missing")
        if not is_host(parts.hostname):
            raise ValueError(f"no host is called '{parts.hostname}'")
        if parts.port == 0:
            raise ValueError("no server has port 0")


def _no_registry(hosts: str, why: str) -> RegistryError:
    return RegistryError(f"'{hosts}' does not name a registry ({why}): write host:port,host:port/path")


@dataclass(frozen=True, slots=True)
class _KazooWatch:
    """A `SharedWatch` as kazoo calls it. Equal ones are one registration, as kazoo keeps sets."""

    tracker: SessionTracker
    watches: WatchTable
    shared: SharedWatch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type in _KINDS:
            self._fire(_KINDS[event.type])
        else:
            self.tracker.when_settled(partial(self._fire, "session"))

    def _fire(self, kind: Literal["created", "deleted", "changed", "children", "session"]) -> None:
        self.watches.fire(self.shared, WatchEvent(kind, self.shared.path))


class ZooKeeperRegistry(TrackedRegistry, ProtectedRegistry):
    """A session with a ZooKeeper ensemble; `connect` makes one.

    Without a connection, reads and writes wait for one as long as a session and a connection may take, then raise
    RegistryUnreachable. In the state LOST a write raises SessionLost: wait for CONNECTED, which is a new session.
    """

    def __init__(self, client: KazooClient, hosts: str, *, session_timeout_s: float) -> None:
        self._client = client
        self._hosts = hosts
        self._session_timeout_s = session_timeout_s
        self._limit_s = 2 * session_timeout_s
        self._closing = threading.Lock()
        self._closed = False
        self._watches = WatchTable()
        self._tracker = SessionTracker(lambda action: client.handler.dispatch_callback(Callback("session", action, ())))
        client.add_listener(self._on_kazoo_state)

    @property
    def hosts(self) -> str:
        return self._hosts

    def get(self, path: str, watch: Watch | None = None) -> Node:
        data, stat = self._look("read", "node", path, watch, self._client.get_async)
        return _node(data, stat)

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        try:
            return self.get(path, watch)
        except NodeMissing:
            pass
        if self._look("look at", "node", path, watch, self._client.exists_async) is None:
            return None
        try:
            return self.get(path)  # it appeared between the two; the watch is set since before this look
        except NodeMissing:
            return None

    def find_all(self, paths: Sequence[str]) -> list[Node | None]:
        deadline = Deadline(self._limit_s)
        found: list[Node | None] = []
        for start in range(0, len(paths), _ASKED_TOGETHER_MAX):
            part = paths[start : start + _ASKED_TOGETHER_MAX]
            self._tracker.await_usable(deadline)
            for path, asked in [(path, self._client.get_async(checked_path(path))) for path in part]:
                try:
                    found.append(_node(*_answer(asked, deadline)))
                except (*BROKEN, KazooException):  # not there, or the connection broke: that is found out one by one
                    found.append(self.find(path))
        return found

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(self._look("list", "children", path, watch, self._client.get_children_async))

    def unwatch(self, watch: Watch) -> None:
        self._watches.unwatch(watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False
    ) -> str:
        checked_size("create", path, len(data))
        try:
            created: str = self._write(
                "create",
                path,
                lambda: self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequential),
            )
        except NodeMissing:
            if not parents:
                raise
            self._create_all(parent_of(path))
            return self.create(path, data, ephemeral=ephemeral, sequential=sequential)
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        checked_size("set", path, len(data))
        stat = self._write("set", path, lambda: self._client.set_async(path, data, version))
        return int(stat.version)

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        if recursive:
            self._delete_below(path, version)
        self._write("delete", path, lambda: self._client.delete_async(path, version))

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []
        checked_operations(operations)
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation)
        results = self._write("commit", operations[0].path, transaction.commit_async)
        return self._versions(operations, results)

    def sync(self, path: str = "/") -> None:
        self._read("sync", path, lambda: self._client.sync_async(path))

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._tracker.move(SessionState.CLOSED)
            try:
                self._client.stop()
                self._client.close()
            except WriterNotClosedException:
                pass  # kazoo's thread hangs in a connection that is going nowhere; the server will expire the session

    def begin(self, timeout_s: float) -> bool:
        """Whether a server has answered in time, if only to refuse who we say we are: the next request raises that."""
        live = self._client.start_async()
        return Deadline(timeout_s).wait(lambda within_s: live.wait(within_s) or self._tracker.is_refused)

    def enter_chroot(self, chroot: str) -> None:
        """Create `chroot` if it is missing, and see everything below it from now on. Before anything else is done."""
        if chroot != "/":
            self._create_all(chroot)
            self._client.chroot = chroot

    @property
    def has_user(self) -> bool:
        return self._client.default_acl is not None

    def is_open(self, path: str) -> bool:
        try:
            acls, _stat = self._read("look at the rights on", path, lambda: self._client.get_acls_async(path))
        except NodeMissing:
            return False
        return any(is_open(acl) for acl in acls)

    def protect(self, path: str) -> int:
        if not self.has_user:
            raise RegistryError(f"the session is nobody's, so nothing can be theirs: set {AUTH_VARIABLE}")
        count = 0
        if self.is_open(path):
            rights = self._client.default_acl
            self._write("protect", path, lambda: self._client.set_acls_async(path, rights))
            count += 1
        try:
            below = self.children(path)
        except NodeMissing:
            return count  # it vanished meanwhile
        for name in below:
            child = f"{path.rstrip('/')}/{name}"
            if child == "/zookeeper":  # the servers' own
                continue
            with suppress(NodeMissing):
                count += self.protect(child)
        return count

    def _create_all(self, path: str) -> None:
        if path == "/" or self._read("look at", path, lambda: self._client.exists_async(path)) is not None:
            return
        self._create_all(parent_of(path))
        try:
            self.create(path)
        except NodeExists:
            return  # somebody else was as quick

    def _delete_below(self, path: str, version: int) -> None:
        """Delete what stands below `path`, once it is sure that `path` itself may go."""
        if version not in (ANY_VERSION, self.get(path).version):
            raise translated(BadVersionError(), "delete", path)
        for name in self.children(path):
            try:
                self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
            except NodeMissing:
                continue  # it vanished meanwhile

    def _on_kazoo_state(self, state: str) -> None:
        """Called on the connection's thread."""
        if state == KazooState.CONNECTED:
            self._tracker.move(SessionState.CONNECTED, self._client.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._tracker.move(SessionState.SUSPENDED)
        elif self._client.client_state == KeeperState.AUTH_FAILED:  # it will not be for long: kazoo closes the client
            self._tracker.refuse()
        else:
            self._tracker.move(SessionState.LOST)

    def _look(self, act: str, what: What, path: str, watch: Watch | None, ask: Callable[..., IAsyncResult]) -> Any:
        """What `ask` brings for `path`; `watch` is set unless it raises."""
        if watch is None:
            return self._read(act, path, lambda: ask(path))
        with self._watches.joined(what, path, watch) as shared:
            watcher = _KazooWatch(self._tracker, self._watches, shared)
            return self._read(act, path, lambda: ask(path, watch=watcher))

    def _read(self, act: str, path: str, send: Callable[[], Any]) -> Any:
        """The answer to a request that may be repeated, asked for until the limit."""
        checked_path(path)
        deadline = Deadline(self._limit_s)
        while True:
            state = self._tracker.await_usable(deadline)
            self._refuse_unusable(state, act, path, deadline)
            try:
                return _answer(send(), deadline)
            except BROKEN:
                continue
            except KazooException as error:
                raise translated(error, act, path) from error

    def _write(self, act: str, path: str, send: Callable[[], Any]) -> Any:
        """The answer to a request that must not be repeated, sent only under the session that stood when we began."""
        checked_path(path)
        deadline = Deadline(self._limit_s)
        session_id = self._tracker.session_id
        state = self._tracker.await_settled(deadline)
        if not self._tracker.is_refused and (state is SessionState.LOST or self._tracker.session_id != session_id):
            raise translated(SessionExpiredError(), act, path)
        self._refuse_unusable(state, act, path, deadline)
        try:
            answer = _answer(send(), deadline)
        except (*BROKEN, RuntimeError) as error:  # RuntimeError: kazoo could not make sense of the reply
            raise OutcomeUnknown(
                f"the connection broke while asking to {act} {path}: it may or may not have been done; sync and read",
                path=path,
            ) from error
        except KazooException as error:
            raise translated(error, act, path) from error
        self._tracker.await_told(deadline)  # the server tells of a write before it answers, kazoo on another thread
        return answer

    def _refuse_unusable(self, state: SessionState, act: str, path: str, deadline: Deadline) -> None:
        if state is SessionState.CLOSED:
            raise translated(ConnectionClosedError(), act, path)
        if self._tracker.is_refused:
            raise translated(AuthFailedError(), act, path)
        if state is not SessionState.CONNECTED or deadline.passed:
            raise RegistryUnreachable(
                f"cannot {act} {path}: no ZooKeeper server at {self._hosts} answered within {self._limit_s:g} s; check "
                "that it runs",
                path=path,
            )

    def _versions(self, operations: Sequence[Operation], results: Sequence[object]) -> list[int]:
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, KazooException) and not isinstance(result, BYSTANDER):
                raise translated(result, type(operation).__name__.lower(), operation.path)
        if any(isinstance(result, KazooException) for result in results):
            raise RegistryError(f"the transaction on {operations[0].path} failed, and ZooKeeper does not say why")
        return [_version(operation, result) for operation, result in zip(operations, results, strict=True)]


def _answer(result: IAsyncResult, deadline: Deadline) -> Any:
    """What the request brought. Raises what kazoo raises for it: KazooTimeoutError when there is nothing in time."""
    deadline.wait(result.wait)
    error = result.exception
    if error is None:
        return result.get(block=False)
    # One of our own: kazoo's stands in results that refer to themselves. If it were raised, they would have its
    # traceback, and so the frames of all who called, with all that these hold, until garbage is collected.
    raise type(error)(*error.args)


def _node(data: bytes | None, stat: ZnodeStat) -> Node:
    return Node(
        data=data or b"",
        version=stat.version,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        owner_session=stat.ephemeralOwner,
        children_count=stat.numChildren,
    )


def _add(transaction: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral):
            transaction.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _version(operation: Operation, result: Any) -> int:
    match operation:
        case Create():
            return 0
        case Set():
            return int(result.version)
        case Delete():
            return -1
        case Check(_, version):
            return version
