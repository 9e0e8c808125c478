"""Which proxy a client asks. Pure: told the time.

A log's proxy is the one that a redirect named. Without one it is chosen by consistent hashing (ring.py). One that did
not answer is left out for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.proxy.state.ring import heaviest

AVOIDED_S = 5.0


class ProxyRoutes:
    """Not thread-safe."""

    def __init__(self, avoided_s: float = AVOIDED_S) -> None:
        self._avoided_s = avoided_s
        self._servers: frozenset[str] = frozenset()
        self._owners: dict[str, str] = {}
        self._failed_s: dict[str, float] = {}

    def servers_are(self, addresses: Iterable[str]) -> None:
        """The proxies there are, by the registry."""
        self._servers = frozenset(addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The proxies there are, in order."""
        return tuple(sorted(self._servers))

    def choose(self, log: str, now_s: float) -> str | None:
        """The address to ask; None: no proxy is known."""
        owner = self._owners.get(log)
        if owner is not None and not self._is_avoided(owner, now_s):
            return owner
        well = [address for address in self._servers if not self._is_avoided(address, now_s)]
        if well:
            return heaviest(log, well)
        return min(self._servers, key=lambda address: self._failed_s[address], default=None)

    def moved(self, log: str, address: str) -> None:
        """A proxy has said that this one owns the log."""
        self._owners[log] = address

    def failed(self, address: str, now_s: float) -> None:
        """It did not answer."""
        self._failed_s[address] = now_s
        self._owners = {log: owner for log, owner in self._owners.items() if owner != address}

    def forget(self, log: str) -> None:
        """Whoever owned the log does not, or cannot write it just now."""
        self._owners.pop(log, None)

    def _is_avoided(self, address: str, now_s: float) -> bool:
        failed_s = self._failed_s.get(address)
        return failed_s is not None and now_s - failed_s < self._avoided_s
