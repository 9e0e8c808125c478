"""How Dafka's roles find each other: peers that come, move and go; towers on machines that have loopback only."""

from __future__ import annotations

import pytest

from scribengin.dafka.state import Connect, DisconnectPeer, DiscoveryState, SayTowersSilent, SendBeacon, endpoint_of
from scribengin.dafka.wire import Beacon, PeerBeacon

ME, PEER, NEXT = "AA" * 16, "BB" * 16, "CC" * 16
HERE, THERE = "tcp://10.0.0.3:4000", "tcp://10.0.0.3:5000"


def started() -> DiscoveryState:
    state = DiscoveryState(ME, interval_s=1.0, timeout_s=4.0)
    assert state.start(0.0) == [SendBeacon()]
    return state


def tower_tells(state: DiscoveryState, from_s: float, to_s: float) -> None:
    """Each second what a role hears from its tower in any case: its own beacon."""
    now_s = from_s
    while now_s < to_s:
        assert state.peer(PeerBeacon(ME, THERE), now_s) == []
        now_s += 1.0
    assert state.peer(PeerBeacon(ME, THERE), to_s) == []


def test_a_role_says_each_interval_where_it_is() -> None:
    state = started()
    assert [state.tick(now) for now in (0.5, 1.0, 1.5, 2.0)] == [[], [SendBeacon()], [], [SendBeacon()]]


def test_a_new_peer_is_connected_to_and_told_at_once() -> None:
    state = started()
    assert state.peer(PeerBeacon(PEER, HERE), 0.1) == [Connect(PEER, HERE), SendBeacon()]
    assert state.peer(PeerBeacon(PEER, HERE), 0.2) == []
    assert state.peer(PeerBeacon(ME, HERE), 0.2) == []


def test_a_tower_that_greets_is_told_at_once() -> None:
    assert started().welcomed() == [SendBeacon()]
    assert DiscoveryState(ME).welcomed() == []


def test_towers_that_say_nothing_are_told_of_once() -> None:
    def silent(state: DiscoveryState) -> list[float]:
        times = (1.0, 3.9, 4.0, 5.0, 60.0)
        return [now for now in times if any(isinstance(one, SayTowersSilent) for one in state.tick(now))]

    greeted, told = started(), started()
    greeted.welcomed()
    told.peer(PeerBeacon(ME, HERE), 0.1)
    assert [silent(state) for state in (started(), greeted, told)] == [[4.0], [], []]


def test_a_peer_that_is_silent_for_too_long_is_left() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    state.peer(PeerBeacon(PEER, HERE), 3.0)
    tower_tells(state, 3.0, 7.0)
    assert DisconnectPeer(PEER, HERE) not in state.tick(7.0)
    assert DisconnectPeer(PEER, HERE) in state.tick(7.1)
    assert state.peer(PeerBeacon(PEER, HERE), 8.0) == [Connect(PEER, HERE), SendBeacon()]


def test_while_no_tower_tells_of_anybody_nobody_is_left_and_who_has_gone_by_then_is_left_later() -> None:
    state = started()
    for peer in (PeerBeacon(PEER, HERE), PeerBeacon(NEXT, THERE)):
        state.peer(peer, 0.5)
    for now in (2.0, 4.6, 100.0):  # the tower has ended
        assert state.tick(now) == [SendBeacon()]
    assert set(state.peers) == {PEER, NEXT}
    assert state.peer(PeerBeacon(PEER, HERE), 100.5) == []  # one is there again
    tower_tells(state, 100.5, 104.5)
    state.peer(PeerBeacon(PEER, HERE), 104.5)
    assert state.tick(104.5) == [SendBeacon()]
    assert state.tick(104.6) == [DisconnectPeer(NEXT, THERE)]
    assert set(state.peers) == {PEER}


def test_where_beacons_are_hardly_more_often_than_peers_are_left_those_that_are_silent_are_left_all_the_same() -> None:
    state = DiscoveryState(ME, interval_s=1.0, timeout_s=1.5)
    state.start(0.0)
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    tower_tells(state, 0.0, 1.0)
    assert DisconnectPeer(PEER, HERE) in state.tick(1.6)


def test_a_peer_that_is_elsewhere_now_is_followed() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    moved = state.peer(PeerBeacon(PEER, THERE), 1.0)
    assert moved == [DisconnectPeer(PEER, HERE), Connect(PEER, THERE), SendBeacon()]


def test_who_comes_to_where_a_peer_was_is_connected_to_in_its_place_and_stays_so() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    assert state.peer(PeerBeacon(NEXT, HERE), 3.0) == [DisconnectPeer(PEER, HERE), Connect(NEXT, HERE), SendBeacon()]
    assert state.peers == {NEXT: PeerBeacon(NEXT, HERE)}
    state.peer(PeerBeacon(NEXT, HERE), 4.5)
    assert state.tick(4.5) == [SendBeacon()]
    assert state.peers == {NEXT: PeerBeacon(NEXT, HERE)}
    tower_tells(state, 4.5, 8.6)
    assert DisconnectPeer(NEXT, HERE) in state.tick(8.6)
    assert state.peers == {}


def test_who_comes_to_where_a_peer_was_may_have_another_key() -> None:
    known, other = (f"{n:064x}" for n in range(2))
    state = DiscoveryState(ME, allowed={known, other})
    state.peer(PeerBeacon(PEER, HERE, known), 0.0)
    assert state.peer(PeerBeacon(NEXT, HERE, other), 1.0) == [DisconnectPeer(PEER, HERE), Connect(NEXT, HERE, other)]


def test_one_that_only_says_that_it_is_where_a_peer_is_cuts_that_off_neither_by_coming_nor_by_going() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    state.peer(PeerBeacon(NEXT, HERE), 1.0)
    said = [state.peer(PeerBeacon(PEER, HERE), now) for now in (2.0, 3.0, 4.0)]
    assert said == [[], [], []]  # they do not take turns with each beacon
    assert state.tick(5.1) == [SendBeacon(), DisconnectPeer(NEXT, HERE), Connect(PEER, HERE)]
    assert state.peers == {PEER: PeerBeacon(PEER, HERE)}


def test_a_peer_that_moves_away_leaves_its_place_to_who_was_there_before() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    state.peer(PeerBeacon(NEXT, HERE), 1.0)
    moved = state.peer(PeerBeacon(NEXT, THERE), 2.0)
    assert moved == [DisconnectPeer(NEXT, HERE), Connect(PEER, HERE), Connect(NEXT, THERE), SendBeacon()]
    assert state.peer(PeerBeacon(PEER, THERE), 3.0) == [
        DisconnectPeer(PEER, HERE),
        DisconnectPeer(NEXT, THERE),
        Connect(PEER, THERE),
        SendBeacon(),
    ]


def test_of_many_that_say_to_be_in_one_place_only_one_is_connected_to_and_nobody_once_all_are_silent() -> None:
    state = started()
    for number in range(100):
        state.peer(PeerBeacon(f"{number:032X}", HERE), number / 100)
    assert set(state.peers) == {f"{99:032X}"}
    tower_tells(state, 1.0, 5.1)
    assert state.tick(5.1) == [SendBeacon(), DisconnectPeer(f"{99:032X}", HERE)]
    assert state.peers == {}


def test_a_peer_that_could_not_be_connected_to_is_tried_again_at_its_next_beacon() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    state.unreached(PEER)
    assert state.peers == {}
    assert state.peer(PeerBeacon(PEER, HERE), 1.0) == [Connect(PEER, HERE)]
    assert state.peers == {PEER: PeerBeacon(PEER, HERE)}
    assert state.peer(PeerBeacon(PEER, HERE), 2.0) == []
    state.unreached(PEER)
    tower_tells(state, 2.0, 6.1)
    assert state.tick(6.1) == [SendBeacon()]  # nobody is there to be disconnected
    state.unreached(PEER)  # it has gone meanwhile
    assert state.peer(PeerBeacon(PEER, HERE), 7.0) == [Connect(PEER, HERE), SendBeacon()]


def test_who_could_not_be_connected_to_leaves_its_place_to_whoever_says_next_to_be_there() -> None:
    state = started()
    state.peer(PeerBeacon(PEER, HERE), 0.0)
    state.peer(PeerBeacon(NEXT, HERE), 1.0)
    state.unreached(PEER)  # it is not the one that is connected to
    assert set(state.peers) == {NEXT}
    state.unreached(NEXT)
    assert state.peer(PeerBeacon(PEER, HERE), 2.0) == [Connect(PEER, HERE)]
    assert state.peer(PeerBeacon(NEXT, HERE), 2.0) == []


def test_only_peers_whose_keys_are_allowed_are_connected_to() -> None:
    known, other, strange = (f"{n:064x}" for n in range(3))
    state = DiscoveryState(ME, allowed={known, other})
    assert state.peer(PeerBeacon(PEER, HERE, strange), 0.0) == []
    assert state.peer(PeerBeacon(PEER, HERE), 0.0) == []
    assert state.peer(PeerBeacon(PEER, HERE, known), 0.0) == [Connect(PEER, HERE, known)]
    assert state.peers == {PEER: PeerBeacon(PEER, HERE, known)}
    assert state.peer(PeerBeacon(PEER, THERE, strange), 0.0) == []
    with_another_key = state.peer(PeerBeacon(PEER, HERE, other), 0.0)
    assert with_another_key == [DisconnectPeer(PEER, HERE), Connect(PEER, HERE, other)]
    assert started().peer(PeerBeacon(PEER, HERE, known), 0.0) == []


def test_peers_without_number_are_not_connected_to() -> None:
    state = started()
    connected = [state.peer(PeerBeacon(f"{n:032X}", HERE), 0.0) for n in range(10_500)]
    assert sum(map(bool, connected)) == 10_000


@pytest.mark.parametrize(
    ("host", "seen_from", "tower", "expected"),
    [
        ("", "10.0.0.7", "10.0.0.3", "10.0.0.7"),
        ("example.org", "10.0.0.7", "10.0.0.3", "example.org"),
        ("", "127.0.0.1", "10.0.0.3", "10.0.0.3"),
        ("", "127.0.0.1", None, "127.0.0.1"),  # the C tower ends with a segmentation fault
    ],
)
def test_a_tower_says_where_others_reach_a_role(host: str, seen_from: str, tower: str | None, expected: str) -> None:
    assert endpoint_of(Beacon(PEER, host, 4000), seen_from, tower) == PeerBeacon(PEER, f"tcp://{expected}:4000")
    assert endpoint_of(Beacon(PEER, host, 4000), seen_from, tower, "ab").fingerprint == "ab"
