"""How a role finds others, against a plain model of its sockets: peers come, move, take each other's ports and go."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from scribengin.dafka.state import Connect, DisconnectPeer, DiscoveryState
from scribengin.dafka.wire import PeerBeacon

TIMEOUT_S = 4.0
KEYS = ("a" * 64, "b" * 64)
OWN = PeerBeacon("ME", "tcp://10.0.0.1:9", KEYS[0])


class Sockets:
    """One socket for all peers, and one for each: to connect where it is connected to already does nothing."""

    def __init__(self) -> None:
        self.shared: dict[str, str] = {}
        self.by_peer: dict[str, str] = {}

    def act(self, instructions: Iterable[object]) -> set[str]:
        """Do it. Returns who was connected to, and is still."""
        connected = set[str]()
        for one in instructions:
            match one:
                case Connect(address, endpoint, key):
                    self.shared.setdefault(endpoint, key)
                    assert address not in self.by_peer
                    self.by_peer[address] = endpoint
                    connected.add(address)
                case DisconnectPeer(address, endpoint):
                    del self.shared[endpoint]
                    assert self.by_peer.pop(address) == endpoint
                    connected.discard(address)
        return connected

    def fail(self, address: str) -> None:
        """The connection that was just made to it did not come about."""
        del self.shared[self.by_peer.pop(address)]


@pytest.mark.parametrize("seed", range(300))
def test_wherever_a_peer_is_said_to_be_one_of_those_is_connected_to_by_its_key_and_nobody_else(seed: int) -> None:
    chosen = Random(seed)
    state, sockets, now_s = DiscoveryState("ME", timeout_s=TIMEOUT_S, allowed=KEYS), Sockets(), 0.0
    state.start(0.0)
    said: dict[str, tuple[PeerBeacon, float]] = {}
    for _ in range(200):
        now_s += chosen.choice([0.0, 0.1, 0.5, 1.5])
        assert state.peer(OWN, now_s) == []  # a tower tells of everybody
        if chosen.random() < 0.3:
            sockets.act(state.tick(now_s))
            said = {one: (peer, at_s) for one, (peer, at_s) in said.items() if now_s - at_s <= TIMEOUT_S}
        else:
            address = f"P{chosen.randrange(8)}"
            known = said[address][0] if address in said else None
            new = PeerBeacon(address, f"tcp://10.0.0.1:{chosen.randrange(4)}", chosen.choice(KEYS))
            peer = known if known is not None and chosen.random() < 0.7 else new
            said[address] = (peer, now_s)
            for one in sockets.act(state.peer(peer, now_s)):
                if chosen.random() < 0.2:
                    sockets.fail(one)
                    state.unreached(one)
                    said[one] = (said[one][0], now_s)
                    sockets.act(state.peer(*said[one]))  # its next beacon
        check(state, sockets, [peer for peer, _ in said.values()])


def check(state: DiscoveryState, sockets: Sockets, said: list[PeerBeacon]) -> None:
    """`said`: what each of those said last who have not been silent for too long."""
    connected = state.peers.values()
    assert {peer.endpoint for peer in said} == {peer.endpoint for peer in connected} == sockets.shared.keys()
    assert {peer.address: peer.endpoint for peer in connected} == sockets.by_peer
    assert all(peer in said and sockets.shared[peer.endpoint] == peer.fingerprint for peer in connected)
