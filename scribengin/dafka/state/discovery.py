"""How roles find each other: what a role makes of the tower's frames, and what a tower makes of a role's."""

from __future__ import annotations

from scribengin.dafka.state.instructions import Connect, DisconnectPeer, DiscoveryInstruction, SendBeacon
from scribengin.dafka.wire import Beacon, PeerBeacon

_PEERS_MAX = 10_000
_LOOPBACK = "127.0.0.1"


class DiscoveryState:
    """The peers of one role, as the towers tell of them. A peer that several towers tell of is one peer."""

    def __init__(self, address: str, *, interval_s: float = 1.0, timeout_s: float = 4.0) -> None:
        self._address = address
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._due_s: float | None = None
        self._peers: dict[str, str] = {}
        self._seen_s: dict[str, float] = {}

    def start(self, now_s: float) -> list[DiscoveryInstruction]:
        """The role can be connected to. It says so now, and again every interval."""
        self._due_s = now_s + self._interval_s
        return [SendBeacon()]

    def welcomed(self) -> list[DiscoveryInstruction]:
        """A tower has greeted: it knows nothing of this role yet."""
        return [SendBeacon()] if self._due_s is not None else []

    def peer(self, peer: PeerBeacon, now_s: float) -> list[DiscoveryInstruction]:
        """A tower tells where somebody is. Whoever is new does not know this role either: it is told at once."""
        if peer.address == self._address:
            return []
        before = self._peers.get(peer.address)
        if before is None and len(self._peers) >= _PEERS_MAX:
            return []
        self._seen_s[peer.address] = now_s
        if before == peer.endpoint:
            return []
        self._peers[peer.address] = peer.endpoint
        gone = [DisconnectPeer(peer.address, before)] if before is not None else []
        return [*gone, Connect(*peer), *self.welcomed()]

    def tick(self, now_s: float) -> list[DiscoveryInstruction]:
        """Time has passed."""
        done: list[DiscoveryInstruction] = []
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._interval_s
            done.append(SendBeacon())
        silent = [address for address, seen_s in self._seen_s.items() if now_s - seen_s > self._timeout_s]
        for address in silent:
            del self._seen_s[address]
            done.append(DisconnectPeer(address, self._peers.pop(address)))
        return done


def endpoint_of(beacon: Beacon, seen_from: str, tower_host: str | None) -> PeerBeacon:
    """Where a tower says that a role is. `seen_from`: the host that its beacon came from. `tower_host`: the tower's own
    address for other machines, which a role on its machine has, too; None: it has loopback only, and says so."""
    host = beacon.host or seen_from
    if host == _LOOPBACK and tower_host is not None:
        host = tower_host
    return PeerBeacon(beacon.address, f"tcp://{host}:{beacon.port}")
