"""How long a connection to the page may take for its request, and how many there may be.

Whoever only connects, or says half a request and no more, takes a place from those who have something to ask. So a
request has a deadline, and where all places are taken, the connection goes that has waited longest: one that asks at
once is always let in, however many there are that do not.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from scribengin.base.clock import SYSTEM_CLOCK

CONNECTIONS_MAX = 256
"""With what may wait to be accepted besides, well below the 1,024 descriptors that a process usually has."""
BACKLOG = 128
REQUEST_S = 20.0
"""From the connection, or the answer before, until the whole of a request is here."""


class BoundedConnection(H11Protocol):
    """One connection. While it is owed nothing, neither answer nor stream, it may be closed in favour of another."""

    _since_s = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take a place, from another if need be."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > CONNECTIONS_MAX:
            waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each.waits]
            min(waiting, key=lambda each: each._since_s).transport.abort()  # this one waits, too

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        super().data_received(data)
        if not self.waits:
            self._forget_deadline()

    def on_response_complete(self) -> None:
        """The request was answered: the next one has as long."""
        self._await_request()
        super().on_response_complete()
        if not self.waits:  # the next one had come already
            self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """The place is free."""
        self._forget_deadline()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether there is no whole request that is still to be answered; or nobody who takes the answer."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def _await_request(self) -> None:
        self._forget_deadline()
        self._since_s = SYSTEM_CLOCK.monotonic_s()
        self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
