"""What is held in memory for tests that are about nothing of a server's: a call takes microseconds instead of
milliseconds."""

from __future__ import annotations

import sys
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from scribengin.log import CommitThread, LogConfig, LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.contract import Registry, SessionState
from tests.servers.elsewhere import FilesElsewhere
from tests.servers.read_by_proxy import ReadByProxy


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    """A registry of the test's own."""
    return MemoryEnsemble()


@pytest.fixture
def memory_registry(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    """A session of it."""
    with ensemble.connect() as session:
        yield session


@pytest.fixture(name="registry")
def registry_in_memory(request: pytest.FixtureRequest) -> Registry:
    """For folders whose tests are seldom about anything of ZooKeeper's: what they call `registry` is in memory. A test
    that has an address of its own (`registry_hosts`), for a process or a command, has ZooKeeper's there."""
    addressed = "registry_hosts" in request.fixturenames
    found: Registry = request.getfixturevalue("registry" if addressed else "memory_registry")
    return found


@contextmanager
def threads_of_sessions_end() -> Iterator[None]:
    """Sessions that were opened meanwhile, and are not closed in the end, are those of processes that a test has had
    die. No thread of theirs stays: a run of all tests has had thousands of them, each with all that it knew."""
    begun: list[weakref.ref[MemoryRegistry]] = []
    begin, run = MemoryRegistry.begin, MemoryRegistry._run

    def noted(session: MemoryRegistry) -> None:
        begun.append(weakref.ref(session))
        begin(session)

    def runs(session: MemoryRegistry) -> None:
        with suppress(SystemExit):  # pytest would warn of it
            run(session)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemoryRegistry, "begin", noted)
        patched.setattr(MemoryRegistry, "_run", runs)
        yield
    for session in filter(None, (ref() for ref in begun)):
        if session.state is not SessionState.CLOSED:
            session._actions.put(sys.exit)  # nobody hears of anything


@pytest.fixture(autouse=True)
def no_thread_of_a_session_left() -> Iterator[None]:
    """After each test."""
    with threads_of_sessions_end():
        yield


@dataclass(frozen=True)
class LogPlace:
    """A place for a namespace in one of the stores, and a registry for it."""

    registry: MemoryRegistry
    location: Path | MemoryDisk | ReadByProxy | FilesElsewhere | str
    """A directory, a disk, one behind a proxy, a directory elsewhere, or a URL of HDFS or BookKeeper."""
    commit_thread: CommitThread | None = None
    """What all writers on a disk write on; None: each on a thread of its own."""

    def bound(self, *logs: str, config: LogConfig | None = None) -> LogNamespace:
        """A new namespace there, at `/logs`, that holds the logs."""
        if isinstance(self.location, Path):
            return bound_namespace(self.registry, self.location, *logs, config=config)
        if isinstance(self.location, str):
            store = self.location.partition("://")[0]
            return bound_namespace(self.registry, self.location, *logs, config=config, store=store)
        if isinstance(self.location, ReadByProxy | FilesElsewhere):
            return self.location.bound(self.registry, *logs, config=config)
        return bound_namespace(
            self.registry,
            self.location.name,
            *logs,
            config=config,
            store=MEMORY_STORE,
            commit_thread=self.commit_thread,
        )


_ELSEWHERE = pytest.param("elsewhere", marks=pytest.mark.full)
SERVED_STORES = ("hdfs", "bk")
"""Those of `log_place` that need servers."""
_SERVED = [pytest.param(name, marks=pytest.mark.servers) for name in SERVED_STORES]


@pytest.fixture(params=["files", "memory", "memory, one thread", "memory, read by proxy", _ELSEWHERE, *_SERVED])
def log_place(request: pytest.FixtureRequest, memory_registry: MemoryRegistry, tmp_path: Path) -> Iterator[LogPlace]:
    """A place in each of the stores there are. HDFS and BookKeeper are started for it."""
    if request.param == "hdfs":
        servers: HdfsServers = request.getfixturevalue("hdfs")
        servers.start()  # the files on HDFS may be done (order.py)
        yield LogPlace(memory_registry, f"{servers.url}/logs-{uuid.uuid4().hex}")
    elif request.param == "bk":
        bookies: BookKeeperServers = request.getfixturevalue("bookkeeper")
        yield LogPlace(memory_registry, bookies.log_location(f"logs-{uuid.uuid4().hex}"))
    elif request.param == "memory, one thread":
        with CommitThread() as commit_thread:
            yield LogPlace(memory_registry, MemoryDisk("disk of a test"), commit_thread)
    elif request.param == "elsewhere":
        with FilesElsewhere(tmp_path / "store") as elsewhere:
            yield LogPlace(memory_registry, elsewhere)
    elif request.param == "memory, read by proxy":
        with ReadByProxy() as location:
            yield LogPlace(memory_registry, location)
    else:
        on_files = request.param == "files"
        yield LogPlace(memory_registry, tmp_path / "store" if on_files else MemoryDisk("disk of a test"))
