"""One ZooKeeper a test run, and for every test a session under a chroot of its own; and three that can be killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scribengin_dev.servers.zookeeper import ZooKeeperServers
from scribengin_registry.contract import ProtectedRegistry
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NodeMissing
from scribengin_registry.opening import connect
from tests.servers.provider import Provider


@pytest.fixture(scope="session")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[EmbeddedZooKeeper | ZooKeeperServers]:
    """A server that all tests share: leave it running, and do not pause it."""
    folder, image = tmp_path_factory.mktemp("zookeeper"), provider.image("zookeeper")
    with ZooKeeperServers(folder, servers=1, image=image) if image else EmbeddedZooKeeper(folder) as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper_quorum(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[ZooKeeperServers]:
    """Three servers for one module, which may kill one of them at a time."""
    with ZooKeeperServers(tmp_path_factory.mktemp("zookeepers"), image=provider.image("zookeeper")) as servers:
        yield servers


@pytest.fixture(scope="session")
def cleaner(zookeeper: EmbeddedZooKeeper) -> Iterator[ProtectedRegistry]:
    """A session that removes what tests have left: to open one costs more than that."""
    with connect(zookeeper.hosts, session_timeout_s=100) as session:
        yield session


@pytest.fixture
def registry_hosts(zookeeper: EmbeddedZooKeeper, cleaner: ProtectedRegistry) -> Iterator[str]:
    """Where `registry` is, for a test that opens sessions of its own; what they left there is removed afterwards."""
    chroot = f"test-{uuid.uuid4().hex[:12]}"
    yield f"{zookeeper.hosts}/{chroot}"
    try:
        cleaner.delete(f"/{chroot}", recursive=True)
    except NodeMissing:
        return  # the test never connected


@pytest.fixture
def registry(registry_hosts: str) -> Iterator[ProtectedRegistry]:
    """A session under a chroot that no other test sees."""
    with connect(registry_hosts, session_timeout_s=100) as session:
        yield session
