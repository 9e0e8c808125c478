"""The session of a process with the ZooKeeper of bookies: one for all namespaces, until that ZooKeeper goes."""

from __future__ import annotations

import pytest

from scribengin.log.store.bookkeeper import nodes
from scribengin.log.store.bookkeeper.nodes import SegmentNodes, leave
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
