"""How long kazoo waits for one server, so that a session outlives a server that does not answer.

By itself it waits for the answer to its greeting for as long as the session, shared among the servers that it has a
name for, and for the connection itself as long as the whole session. So one server that is gone without a word costs
the session, though the others live, or though the same one would answer the next greeting: ZooKeeper forgets
connections that it accepts while it starts. kazoo has no settings for either.

A silent server is noticed after two thirds of a session. One that cannot be reached must leave some of the last third.
"""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

_GREETINGS_IN_SESSION = 3
_GREETING_S_MIN = 2.0
"""A new session is written to the disks of most servers before the answer."""
_CONNECTIONS_IN_SESSION = 6
_CONNECTION_S_MIN = 1.0
"""Networks over oceans, and one packet that is sent again."""


def greeting_limit_s(session_timeout_s: float) -> float:
    """How long an answer to a greeting may take."""
    return max(session_timeout_s / _GREETINGS_IN_SESSION, min(session_timeout_s, _GREETING_S_MIN))


def connection_limit_s(session_timeout_s: float) -> float:
    """How long it may take to be connected."""
    return max(session_timeout_s / _CONNECTIONS_IN_SESSION, min(session_timeout_s, _CONNECTION_S_MIN))


class ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with a limit of its own for a connection to be made."""

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._limit_s = connection_limit_s(session_timeout_s)

    def create_connection(self, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """As kazoo's own, which names its limit by `timeout`, in seconds."""
        limit_s = self._limit_s if timeout is None else min(timeout, self._limit_s)
        return super().create_connection(*args, timeout=limit_s, **options)


def limit_greetings(client: KazooClient, session_timeout_s: float) -> None:
    """Have a client that is not started yet wait no longer for the answer to a greeting."""
    limit_s = greeting_limit_s(session_timeout_s)
    connection = client._connection
    ask = connection._invoke

    def asked(timeout: float, request: Any, xid: int | None = None) -> Any:
        """A greeting is the one request that has no number."""
        return ask(min(timeout, limit_s) if xid is None else timeout, request, xid)

    connection._invoke = asked
