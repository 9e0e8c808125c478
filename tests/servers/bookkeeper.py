"""Three bookies for the tests of a module, from jars, on the ZooKeeper that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_registry.embedded import EmbeddedZooKeeper


@pytest.fixture(scope="module")
def bookkeeper(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[BookKeeperServers]:
    """Bookies that the tests of one module share, below a node of their own."""
    with BookKeeperServers(tmp_path_factory.mktemp("bookkeeper"), zookeeper.hosts) as servers:
        yield servers
