"""One ZooKeeper a test run, and for every test a session under a chroot of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NodeMissing
from scribengin_registry.kazoo_registry import ZooKeeperRegistry, connect


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A server that all tests share: leave it running, and do not pause it."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def registry_hosts(zookeeper: EmbeddedZooKeeper) -> Iterator[str]:
    """Where `registry` is, for a test that opens sessions of its own; what they left there is removed afterwards."""
    chroot = f"test-{uuid.uuid4().hex[:12]}"
    yield f"{zookeeper.hosts}/{chroot}"
    with connect(zookeeper.hosts) as cleaner:
        try:
            cleaner.delete(f"/{chroot}", recursive=True)
        except NodeMissing:
            return  # the test never connected


@pytest.fixture
def registry(registry_hosts: str) -> Iterator[ZooKeeperRegistry]:
    """A session under a chroot that no other test sees."""
    with connect(registry_hosts, session_timeout_s=30.0) as session:
        yield session
