"""The session of a process with the ZooKeeper of bookies: one for all namespaces, until that ZooKeeper goes."""

from __future__ import annotations

import pytest

from scribengin.log.store.bookkeeper import nodes
from scribengin.log.store.bookkeeper.nodes import SegmentLedgers, SegmentNodes, leave
from scribengin.log.store.contract import SegmentName
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_registry.contract import SessionState

HOSTS = "bookies:2181"


def test_a_session_is_shared_and_ends_with_its_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = MemoryEnsemble()
    made: list[MemoryRegistry] = []

    def connect(hosts: str) -> MemoryRegistry:
        assert hosts == HOSTS
        made.append(ensemble.connect())
        return made[-1]

    monkeypatch.setattr(nodes, "connect", connect)
    token = SegmentNodes(HOSTS, "/a").mark()
    assert SegmentNodes(HOSTS, "/b").token() is None
    assert [session.state for session in made] == [SessionState.CONNECTED]
    leave("other:2181")
    leave(HOSTS)
    leave(HOSTS)
    assert [session.state for session in made] == [SessionState.CLOSED]
    assert SegmentNodes(HOSTS, "/a").token() == token
    assert [session.state for session in made] == [SessionState.CLOSED, SessionState.CONNECTED]
    leave(HOSTS)


def test_what_others_have_made_is_there_though_its_server_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is not seen would not be fenced, and a file that is not seen not be set aside."""
    ensemble = MemoryEnsemble()
    follower = ensemble.follower()
    monkeypatch.setattr(nodes, "connect", lambda hosts: ensemble.connect(follower=follower if hosts == HOSTS else None))
    others, ours = SegmentNodes("leader:2181", "/a"), SegmentNodes(HOSTS, "/a")
    assert ours.logs() == []
    token = others.mark()
    assert ours.token() == token
    for number in range(1, 4):
        name, ledgers = SegmentName(f"log-{number}", 1, 7), SegmentLedgers(log=number, tail=9)
        others.make_log(name.directory)
        others.announce(name)
        others.add(name, ledgers)
        assert ours.announced(name.directory) == (7, 1)
        others.announce(name._replace(segment=2))
        assert ours.find(name) == ledgers
        others.add(name._replace(segment=2), ledgers)
        assert len(ours.names(name.directory)) == 2
        others.add(name._replace(segment=3), ledgers)
        ours.move(name._replace(segment=3), name._replace(segment=4))
        assert others.find(name._replace(segment=4)) == ledgers
        assert len(ours.logs()) == number
    for hosts in (HOSTS, "leader:2181"):
        leave(hosts)
