"""A TCP proxy in front of a real ZooKeeper server that does what networks do: lose a reply, stall, break.

    with ChaosProxy(server_hosts) as proxy, connect(f"{proxy.address}/chroot") as registry:
        proxy.drop_next_reply()
        registry.commit(...)            # is applied, and raises OutcomeUnknown

It knows just enough of ZooKeeper's protocol (frames with a length, requests with a number and a type) to lose the reply
of one certain request, whatever heartbeats pass beside it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from scribengin.base.threads import background

LOOPBACK = "127.0.0.1"
_CONNECT_TIMEOUT_S = 5.0
_TYPE_OF_WRITE = frozenset({1, 2, 5, 7, 14, 15, 19, 20, 21})
"""create, delete, setData, setACL, multi, and create's and delete's younger kinds."""
_TYPE_OF_TRANSACTION = 14

Request = Callable[[bytes], bool]
"""Whether a request, as the bytes of its frame without the length, is meant."""


def any_write(frame: bytes) -> bool:
    """A request that changes something."""
    return _request_type(frame) in _TYPE_OF_WRITE


def any_transaction(frame: bytes) -> bool:
    """A transaction of several operations: what `Registry.commit` sends."""
    return _request_type(frame) == _TYPE_OF_TRANSACTION


class ChaosProxy:
    """Forwards connections to `target` (`host:port`) until told otherwise. Any thread may call it."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._changed = threading.Condition()
        self._paused = self._refusing = self._closed = False
        self._held = 0
        self._drop_request: Request | None = None
        self._drop_reply: Request | None = None
        self._ignoring = False
        self._links: list[_Link] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        """`host:port`, for clients."""
        background("chaos-proxy", self._accept).start()

    @property
    def held(self) -> int:
        """How many frames wait for `heal` or `cut` at the moment."""
        return self._held

    def drop_next_reply(self, to: Request = any_write) -> None:
        """Let the next such request through, and break the connection in place of its reply. Clients may reconnect."""
        with self._changed:
            self._drop_reply = to

    def drop_next_request(self, to: Request = any_write) -> None:
        """Break the connection in place of the next such request: the server never sees it. Clients may reconnect."""
        with self._changed:
            self._drop_request = to

    def ignore_next_connection(self) -> None:
        """Accept the next connection and never answer it, as a server may that is just starting."""
        with self._changed:
            self._ignoring = True

    def pause(self) -> None:
        """Forward nothing more, in both directions, until `heal`: connections stay open, and silent."""
        with self._changed:
            self._paused = True

    def cut(self) -> None:
        """Break all connections, lose what was held, and refuse new ones until `heal`."""
        with self._changed:
            self._refusing = True
            self._paused = False
            self._break_all()

    def heal(self) -> None:
        """Forward again, what was held first, and accept again."""
        with self._changed:
            self._refusing = self._paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """Break everything for good. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._break_all()
            self._listener.shutdown(socket.SHUT_RDWR)  # close() alone would leave accept() waiting
            self._listener.close()

    def __enter__(self) -> ChaosProxy:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _break_all(self) -> None:
        links, self._links = self._links, []
        for link in links:
            link.close()
        self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._ignored(client):
                continue
            try:
                server = socket.create_connection(self._target, timeout=_CONNECT_TIMEOUT_S)
            except OSError:
                client.close()  # as the network does when the server is away
                continue
            server.settimeout(None)
            link = _Link(client, server)
            with self._changed:
                if self._refusing or self._closed:
                    link.close()
                    continue
                self._links.append(link)
            for pump in (self._pump_requests, self._pump_replies):
                background("chaos-proxy", partial(pump, link)).start()

    def _ignored(self, client: socket.socket) -> bool:
        """Whether nobody is to answer this connection, which then stays open."""
        with self._changed:
            ignored, self._ignoring = self._ignoring, False
            if ignored:
                self._links.append(_Link(client, client))
            return ignored

    def _pump_requests(self, link: _Link) -> None:
        greeting = _read_frame(link.client)  # it opens the session, and is no request: it has no number and no type
        alive = greeting is not None and self._passed_pause(link) and _send_frame(link.server, greeting)
        while alive:
            frame = _read_frame(link.client)
            alive = frame is not None and self._passed_pause(link) and self._forward_request(link, frame)
        link.close()

    def _forward_request(self, link: _Link, frame: bytes) -> bool:
        with self._changed:
            if self._drop_request is not None and self._drop_request(frame):
                self._drop_request = None
                return False
            if self._drop_reply is not None and self._drop_reply(frame):
                self._drop_reply = None
                link.unanswered = frame[:4]
        return _send_frame(link.server, frame)

    def _pump_replies(self, link: _Link) -> None:
        while (frame := _read_frame(link.server)) is not None and self._passed_pause(link):
            if frame[:4] == link.unanswered or not _send_frame(link.client, frame):
                break
        link.close()

    def _passed_pause(self, link: _Link) -> bool:
        """Hold a frame back for as long as the proxy is paused: whether it may go on then."""
        with self._changed:
            self._held += 1
            self._changed.wait_for(lambda: link.closed or not self._paused)
            self._held -= 1
            return not link.closed


@dataclass(slots=True, eq=False)
class _Link:
    """One client's connection and its other half. `unanswered` is the number of the request whose reply gets lost."""

    client: socket.socket
    server: socket.socket
    unanswered: bytes = b""
    closed: bool = False

    def close(self) -> None:
        """Break both halves, also under a thread that reads from them."""
        self.closed = True
        for half in (self.client, self.server):
            try:
                half.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the other side was quicker
            finally:
                half.close()


def _request_type(frame: bytes) -> int:
    """The type in a request's header (number, type); 0 for what is too short to have one."""
    return int(struct.unpack_from(">i", frame, 4)[0]) if len(frame) >= 8 else 0


def _read_frame(source: socket.socket) -> bytes | None:
    """The next frame without its length, None when the connection has ended."""
    header = _read_exactly(source, 4)
    return None if header is None else _read_exactly(source, int(struct.unpack(">i", header)[0]))


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = source.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _send_frame(target: socket.socket, frame: bytes) -> bool:
    """Whether the connection took it."""
    try:
        target.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return False
    return True
