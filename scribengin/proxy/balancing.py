"""Gives logs up that another proxy is to write: now and then each proxy tells how much it does, and looks at the
others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.errors import ScribenginError
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.proxy.state.balance import HandOver, LogLoad, ProxyLoad, hand_overs

HAND_OVERS_MAX = 20
"""So many logs are given up at a time: the rest once the others have told what those do."""
_log = logging.getLogger(__name__)


class LogBalancer(ClosedAtExit):
    """Of one proxy. `loads` are its logs, `hand_over` gives one up."""

    def __init__(
        self,
        proxy: ProxyDescriptor,
        nodes: ProxyNodes,
        loads: Callable[[], Iterable[LogLoad]],
        hand_over: Callable[[HandOver], None],
    ) -> None:
        self._proxy = proxy
        self._nodes = nodes
        self._loads = loads
        self._hand_over = hand_over
        self._closed = threading.Event()
        self._working = threading.Lock()
        """Held while it is told what we do: nothing is told of a proxy that is closed."""
        self._thread: threading.Thread | None = None

    def start(self, every_s: float) -> None:
        """Look every so many seconds, on a thread of its own."""
        self._thread = background("proxy-balance", lambda: self._run(every_s))
        self._thread.start()

    def look(self) -> list[HandOver]:
        """Tell what we do, and give up what others are to do. What was given up. Raises what the registry raises."""
        with self._working:
            if self._closed.is_set():
                return []
            ours = list(self._loads())
            load = sum(log.load for log in ours)
            self._nodes.announce(self._proxy.model_copy(update={"logs": len(ours), "load": load}))
        moves = hand_overs(self._proxy.name, ours, self._others_and_us(), HAND_OVERS_MAX)
        for move in moves:
            if not self._closed.is_set():
                self._hand_over(move)
        return moves

    def end(self) -> None:
        """Tell no more, and begin to give nothing up. Whoever is giving a log up may be at it for long: its store may
        be stalled. Idempotent."""
        self._closed.set()
        with self._working:
            pass

    def close(self) -> None:
        """End, and wait for the look that is under way. Idempotent."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def _others_and_us(self) -> list[ProxyLoad]:
        there = [one for one in self._nodes.servers() if one.takes_more]
        return [ProxyLoad(one.name, one.address, one.logs, one.load, one.logs_max) for one in there]

    def _run(self, every_s: float) -> None:
        while not self._closed.wait(every_s):
            try:
                self.look()
            except ScribenginError as error:  # the next look comes; until then all stays where it is
                _log.warning("logs are not balanced just now: %s", error)
