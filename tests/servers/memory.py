"""What is held in memory for tests that are about nothing of a server's: a call takes microseconds instead of
milliseconds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory_disk import MemoryDisk
from scribengin.testing.memory_registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory_segments import MEMORY_STORE
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers


@pytest.fixture
def memory_registry() -> Iterator[MemoryRegistry]:
    """A session of an ensemble of its own."""
    with MemoryEnsemble().connect() as session:
        yield session


@dataclass(frozen=True)
class LogPlace:
    """A place for a namespace in one of the stores, and a registry for it."""

    registry: MemoryRegistry
    location: Path | MemoryDisk | str
    """A directory, a disk, or a URL of HDFS or BookKeeper."""

    def bound(self, *logs: str, config: LogConfig | None = None) -> LogNamespace:
        """A new namespace there, at `/logs`, that holds the logs."""
        if isinstance(self.location, Path):
            return bound_namespace(self.registry, self.location, *logs, config=config)
        if isinstance(self.location, str):
            store = self.location.partition("://")[0]
            return bound_namespace(self.registry, self.location, *logs, config=config, store=store)
        return bound_namespace(self.registry, self.location.name, *logs, config=config, store=MEMORY_STORE)


_SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("hdfs", "bk")]


@pytest.fixture(params=["files", "memory", *_SERVERS])
def log_place(request: pytest.FixtureRequest, memory_registry: MemoryRegistry, tmp_path: Path) -> LogPlace:
    """A place in each of the stores there are. HDFS and BookKeeper are started for it."""
    if request.param == "hdfs":
        servers: HdfsServers = request.getfixturevalue("hdfs")
        return LogPlace(memory_registry, f"{servers.url}/logs-{uuid.uuid4().hex}")
    if request.param == "bk":
        bookies: BookKeeperServers = request.getfixturevalue("bookkeeper")
        return LogPlace(memory_registry, bookies.log_location(f"logs-{uuid.uuid4().hex}"))
    return LogPlace(memory_registry, tmp_path / "store" if request.param == "files" else MemoryDisk("disk of a test"))
