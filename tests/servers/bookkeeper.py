"""Three bookies from jars: for the whole run, on the ZooKeeper that all tests share, or for one module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin.log.store.bookkeeper.nodes import leave
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_registry.embedded import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def bookkeeper(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[BookKeeperServers]:
    """Bookies for the whole run: leave them running, and use a place of your own."""
    with _served(tmp_path_factory.mktemp("bookkeeper"), zookeeper.hosts) as servers:
        yield servers


@pytest.fixture(scope="module")
def own_bookkeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookKeeperServers]:
    """Bookies for one module, which may kill them, on a ZooKeeper of their own."""
    folder = tmp_path_factory.mktemp("own-bookkeeper")
    with EmbeddedZooKeeper(folder / "zookeeper") as zookeeper, _served(folder / "bookies", zookeeper.hosts) as servers:
        yield servers


@contextmanager
def _served(folder: Path, zookeeper: str) -> Iterator[BookKeeperServers]:
    """With the client's jars where the log store looks for them."""
    with BookKeeperServers(folder, zookeeper) as servers, pytest.MonkeyPatch.context() as environment:
        environment.setenv(JARS_VARIABLE, ":".join(map(str, servers.jars)))
        yield servers
    leave(zookeeper)  # which may go now
