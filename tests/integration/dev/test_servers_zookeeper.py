"""Three ZooKeepers: one session goes on while the leader is killed, and comes back."""

from __future__ import annotations

import pytest

from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.zookeeper import ZooKeeperServers
from scribengin_registry.contract import ProtectedRegistry
from scribengin_registry.errors import OutcomeUnknown
from scribengin_registry.opening import connect


@pytest.mark.full
def test_a_session_outlives_the_leader_of_three(zookeeper_quorum: ZooKeeperServers) -> None:
    with connect(zookeeper_quorum.hosts, session_timeout_s=30.0) as session:
        session.create("/before", b"1", ephemeral=True)
        killed = zookeeper_quorum.leader()
        zookeeper_quorum.kill(killed)
        assert len(zookeeper_quorum.pids) == 2
        write_through_the_election(session)
        assert session.get("/before").data == b"1"  # ephemeral: it is still the same session
        assert zookeeper_quorum.leader() != killed
        zookeeper_quorum.start_server(killed)
        assert len(zookeeper_quorum.pids) == 3
        with connect(zookeeper_quorum.hosts.split(",")[killed]) as there:
            there.sync("/after")
            assert there.get("/after").data == b"2"


def write_through_the_election(session: ProtectedRegistry) -> None:
    """Create /after; a connection that broke leaves it open whether it was."""

    def written() -> bool:
        try:
            if session.find("/after") is None:
                session.create("/after", b"2")
        except OutcomeUnknown:
            return False
        return True

    wait_until(written, timeout_s=60)
