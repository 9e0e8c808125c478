"""The network of `dafka_world` with towers and connections: it splits into sides for a while, and is whole again.

Roles find each other through one tower, as `DiscoveryState` says. Whoever does not hear from a peer for long leaves it,
and one that the tower does not reach leaves everybody. What one side sends to the other is lost, or it is late: a
connection that breaks loses what was under way, and one that stalls delivers it once the network is whole again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scribengin.dafka.state import Connect, DisconnectPeer, DiscoveryState, SendBeacon
from scribengin.dafka.wire import PeerBeacon, Subscription
from tests.scenario.dafka_world import Node, World

TOWER = "T"


@dataclass
class SplitWorld(World):
    """A network whose roles are on the sides that `split` says, and otherwise together. The tower is `TOWER`."""

    sides: dict[str, int] = field(default_factory=dict)
    discoveries: dict[str, DiscoveryState] = field(default_factory=dict)
    _stalls: bool = False
    _stalled: list[tuple[str, str, list[bytes]]] = field(default_factory=list)
    _lives: dict[str, int] = field(default_factory=dict)
    _wanted: dict[tuple[str, str], int] = field(default_factory=dict)
    _connected: set[tuple[str, str]] = field(default_factory=set)
    """(listener, origin): the listener gets what the origin sends, as far as it has subscribed to it."""

    def split(self, sides: Mapping[str, int], *, stalls: bool = False) -> None:
        """Put roles on sides; one that is not named is on side 0. `stalls`: connections between the sides stand still,
        instead of breaking."""
        self.whole()
        self.sides = dict(sides)
        self._stalls = stalls
        if not stalls:
            apart = {link for link in self._connected if self._are_apart(*link)}
            for listener, origin in sorted(apart):
                self._disconnect(listener, origin)
            self._wire = [sent for sent in self._wire if (sent[1], sent[0]) not in apart]

    def whole(self) -> None:
        """Everybody reaches everybody again."""
        self.sides = {}
        self._wire += [sent for sent in self._stalled if (sent[1], sent[0]) in self._connected]
        self._stalled = []
        for link in list(self._wanted):
            self._connect(*link)

    def kill(self, name: str) -> None:
        """The role is gone, with all that it remembered. Nobody is told of it: its beacons stay away."""
        self.producers.pop(name, None)
        self.consumers.pop(name, None)
        gone = {f"{name}w", f"{name}r"} if self.stores.pop(name, None) is not None else {name}
        for listener, origin in sorted(link for link in self._connected if gone & set(link)):
            self._disconnect(listener, origin)
        self._forget(gone)
        for node in gone:
            self.nodes.pop(node, None)
            self.discoveries.pop(node, None)
        self._wanted = {link: life for link, life in self._wanted.items() if link[0] not in gone}

    def run(self, messages_max: int = 1_000_000) -> None:
        """As World's, but nothing passes from side to side."""
        if self._stalls and self.sides:
            held = [sent for sent in self._wire if self._are_apart(sent[0], sent[1])]
            self._stalled += held
            self._wire = [sent for sent in self._wire if not self._are_apart(sent[0], sent[1])]
        super().run(messages_max)

    def pass_time(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass in steps, and carry what is sent meanwhile."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            for name in list(self.discoveries):
                self._discover(name, self.discoveries[name].tick(self.now_s + step_s))
            super().pass_time(step_s, step_s)

    def _are_apart(self, one: str, other: str) -> bool:
        return self._side(one) != self._side(other)

    def _side(self, node: str) -> int:
        return self.sides.get(node if node in self.sides else node.rstrip("wr"), 0)

    def _join(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._lives[node.name] = self._lives.get(node.name, 0) + 1
        discovery = self.discoveries[node.name] = DiscoveryState(node.name)
        self._discover(node.name, discovery.start(self.now_s))

    def _discover(self, name: str, instructions: Iterable[object]) -> None:
        """Do what a role's discovery says, and what those of others make of its beacon."""
        waiting = deque((name, one) for one in instructions)
        while waiting:
            role, instruction = waiting.popleft()
            match instruction:
                case SendBeacon() if not self._are_apart(role, TOWER):
                    beacon = PeerBeacon(role, f"tcp://{role}:{self._lives[role]}")
                    for other, discovery in self.discoveries.items():
                        if not self._are_apart(other, TOWER):
                            waiting += ((other, one) for one in discovery.peer(beacon, self.now_s))
                case Connect(peer):
                    self._wanted[role, peer] = self._lives[peer]
                    self._connect(role, peer)
                case DisconnectPeer(peer):
                    self._leave(role, peer)

    def _connect(self, listener: str, origin: str) -> None:
        """The origin hears what the listener subscribes to, as XPUB sockets do; again, if the connection is another."""
        there = listener in self.nodes and origin in self.nodes
        if not there or (listener, origin) in self._connected or self._are_apart(listener, origin):
            return
        if self._wanted.get((listener, origin)) != self._lives[origin]:
            return  # it tries to reach the life before this one
        self._connected.add((listener, origin))
        for prefix in self.nodes[listener].prefixes:
            self._do(origin, self.nodes[origin].heard(Subscription(True, prefix)))

    def _leave(self, role: str, peer: str) -> None:
        self._wanted.pop((role, peer), None)
        self._disconnect(role, peer)
        if role in self.producers:
            self.producers[role].store_gone(peer)
        if role in self.followers:
            self.followers[role].peer_gone(peer)

    def _disconnect(self, listener: str, origin: str) -> None:
        """The origin hears it, if it is there still."""
        if (listener, origin) in self._connected:
            self._connected.discard((listener, origin))
            if origin in self.nodes and listener in self.nodes:
                self._unheard(self.nodes[listener], self.nodes[origin])

    def _carry(self, origin: str, frames: list[bytes]) -> None:
        for node in self.nodes.values():
            if (node.name, origin) in self._connected and frames[0].startswith(tuple(node.prefixes)):
                self._wait(origin, node.name, frames)
