"""How long kazoo waits for one server, so that a session outlives a server that does not answer.

kazoo shares a session's time out among the servers that it has a name for, and waits that long for an answer to its
greeting; for the connection itself it waits as long as the whole session. So one server that is gone without a word
costs the session, though the others live, or though the same one would answer the next greeting: ZooKeeper forgets
connections that it accepts while it starts.
"""

from __future__ import annotations

from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_GREETINGS_IN_SESSION = 3
_CONNECTIONS_IN_SESSION = 6
"""A silent server is noticed after two thirds of a session: one that cannot be reached must leave some of the last."""


def listed_servers(servers: str) -> str:
    """`servers` (`host:port,...`) as kazoo is to have them: so often that a session has time for three greetings."""
    count = servers.count(",") + 1
    return ",".join([servers] * -(-_GREETINGS_IN_SESSION // count))


class ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with a limit of its own for a connection to be made: a sixth of a session, in seconds."""

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = session_timeout_s / _CONNECTIONS_IN_SESSION

    def create_connection(self, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """As kazoo's own, which names its limit by `timeout`, in seconds."""
        limit_s = self._connect_timeout_s if timeout is None else min(timeout, self._connect_timeout_s)
        return super().create_connection(*args, timeout=limit_s, **options)
