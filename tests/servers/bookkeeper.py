"""Three bookies from jars for the whole run, on the ZooKeeper that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin.log.store.bookkeeper.nodes import leave
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_registry.embedded import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def bookkeeper(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[BookKeeperServers]:
    """Bookies for the whole run, with the client's jars where the log store looks for them: use a place of your own.
    Whoever stops one starts it again."""
    folder = tmp_path_factory.mktemp("bookkeeper")
    with BookKeeperServers(folder, zookeeper.hosts) as servers, pytest.MonkeyPatch.context() as environment:
        environment.setenv(JARS_VARIABLE, ":".join(map(str, servers.jars)))
        yield servers
    leave(zookeeper.hosts)  # which may go now
