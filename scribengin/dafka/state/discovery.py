"""How roles find each other: what a role makes of the tower's frames, and what a tower makes of a role's."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from scribengin.dafka.state.instructions import (
    Connect,
    DisconnectPeer,
    DiscoveryInstruction,
    SayTowersSilent,
    SendBeacon,
)
from scribengin.dafka.wire import Beacon, PeerBeacon

PEERS_MAX = 10_000
"""Of one role."""
_BEACONS_LOST = 2
"""A tower of which so many beacons of the role itself do not come back is thought to be away."""
_LOOPBACK = "127.0.0.1"


class DiscoveryState:
    """The peers of one role, as the towers tell of them. A peer that several towers tell of is one peer. `allowed`: the
    fingerprints of the keys that a peer may have; "" stands for no key.

    At one endpoint there is one peer. Who comes to where another one was is connected to in its place: that one has
    ended, and its port is another's now. Only its coming counts, and no later beacon: who merely says to be there takes
    no turns with who is. Where the newer one goes first, the older one is connected to again.

    A tower tells a role its own beacon, too. So where nothing is heard at all, no tower is there, and the silence of a
    peer says nothing: nobody is left then. Once a tower tells again, all have as long as before to be heard of.
    """

    def __init__(
        self, address: str, *, interval_s: float = 1.0, timeout_s: float = 4.0, allowed: Collection[str] = ("",)
    ) -> None:
        self._address = address
        self._allowed = allowed
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._untold_max_s = max(timeout_s / 2, _BEACONS_LOST * interval_s)
        self._told_s = 0.0
        """When a tower has told of anybody last."""
        self._due_s: float | None = None
        self._silent_at_s: float | None = None
        self._peers: dict[str, PeerBeacon] = {}
        self._seen_s: dict[str, float] = {}
        self._at: dict[str, dict[str, None]] = {}
        """By endpoint, who says to be there: in the order in which they came."""
        self._connected: dict[str, str] = {}
        """By endpoint, who of them is connected to."""

    @property
    def peers(self) -> dict[str, PeerBeacon]:
        """Those that it is connected to, by their addresses. Any thread may ask."""
        known = dict(self._peers)
        return {one: peer for one, peer in known.items() if self._connected.get(peer.endpoint) == one}

    def start(self, now_s: float) -> list[DiscoveryInstruction]:
        """The role can be connected to. It says so now, and again every interval."""
        self._due_s = now_s + self._interval_s
        self._silent_at_s = now_s + self._timeout_s
        return [SendBeacon()]

    def welcomed(self) -> list[DiscoveryInstruction]:
        """A tower has greeted: it knows nothing of this role yet."""
        self._silent_at_s = None
        return self._beacon()

    def peer(self, peer: PeerBeacon, now_s: float) -> list[DiscoveryInstruction]:
        """A tower tells where somebody is. Whoever is new does not know this role either: it is told at once."""
        self._silent_at_s = None
        if self._is_untold(now_s):
            self._seen_s = dict.fromkeys(self._seen_s, now_s)
        self._told_s = now_s
        if peer.address == self._address or peer.fingerprint not in self._allowed:
            return []
        before = self._peers.get(peer.address)
        if before is None and len(self._peers) >= PEERS_MAX:
            return []
        self._seen_s[peer.address] = now_s
        if before == peer:
            return [] if peer.endpoint in self._connected else [self._connect(peer)]
        left = [] if before is None else self._left([before.address])
        self._peers[peer.address] = peer
        self._at.setdefault(peer.endpoint, {})[peer.address] = None
        older = self._connected.pop(peer.endpoint, None)
        displaced = [] if older is None else [DisconnectPeer(older, peer.endpoint)]
        return [*left, *displaced, self._connect(peer), *self._beacon()]

    def unreached(self, address: str) -> None:
        """It could not be connected to just now: that is tried again when it is told of next."""
        peer = self._peers.get(address)
        if peer is not None and self._connected.get(peer.endpoint) == address:
            del self._connected[peer.endpoint]

    def tick(self, now_s: float) -> list[DiscoveryInstruction]:
        """Time has passed."""
        done: list[DiscoveryInstruction] = []
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._interval_s
            done.append(SendBeacon())
        if not self._is_untold(now_s):
            done += self._left_silent(now_s)
        if self._silent_at_s is not None and now_s >= self._silent_at_s:
            self._silent_at_s = None
            done.append(SayTowersSilent())
        return done

    def _is_untold(self, now_s: float) -> bool:
        return now_s - self._told_s > self._untold_max_s

    def _left_silent(self, now_s: float) -> list[DiscoveryInstruction]:
        silent = [address for address, seen_s in self._seen_s.items() if now_s - seen_s > self._timeout_s]
        for address in silent:
            del self._seen_s[address]
        return self._left(silent)

    def _connect(self, peer: PeerBeacon) -> Connect:
        self._connected[peer.endpoint] = peer.address
        return Connect(*peer)

    def _left(self, addresses: Iterable[str]) -> list[DiscoveryInstruction]:
        """They are there no more. Where one of them was connected to, the last of the others who say to be there is."""
        gone: list[DisconnectPeer] = []
        for address in addresses:
            endpoint = self._peers.pop(address).endpoint
            del self._at[endpoint][address]
            if self._connected.get(endpoint) == address:
                del self._connected[endpoint]
                gone.append(DisconnectPeer(address, endpoint))
            if not self._at[endpoint]:
                del self._at[endpoint]
        others = [self._at[one.endpoint] for one in gone if one.endpoint in self._at]
        return [*gone, *(self._connect(self._peers[next(reversed(there))]) for there in others)]

    def _beacon(self) -> list[DiscoveryInstruction]:
        return [SendBeacon()] if self._due_s is not None else []


def endpoint_of(beacon: Beacon, seen_from: str, tower_host: str | None, fingerprint: str = "") -> PeerBeacon:
    """Where a tower says that a role is. `seen_from`: the host that its beacon came from. `tower_host`: the tower's own
    address for other machines, which a role on its machine has, too; None: it has loopback only, and says so.
    `fingerprint`: of the key that its beacon came with."""
    host = beacon.host or seen_from
    if host == _LOOPBACK and tower_host is not None:
        host = tower_host
    return PeerBeacon(beacon.address, f"tcp://{host}:{beacon.port}", fingerprint)
