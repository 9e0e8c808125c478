"""A dataflow whose config is edited under load: the load, and what its commit logs said meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.registry import paths
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster, Flow, running_cluster, start

LOGS = ("in/0", "in/1", "in/2", "in/3")
LOOK_S = 0.02
_PERIOD_S = 0.2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a registry of its own."""
    with (
        EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server,
        running_cluster(server.hosts, tmp_path_factory.mktemp("cluster")) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster) -> Flow:
    """A dataflow over four logs, with one worker."""
    for log in LOGS:
        cluster.append(log, 10)
    return start(
        cluster,
        name="flow",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"out": {"kind": "log", "log": "out"}},
        sql="SELECT payload FROM src",
        workers=1,
        round={"records_max": 50},
        session_timeout_s=60,  # nobody is killed here, and a machine may stand still
    ).up()


class Commits:
    """What the commit logs of the source streams said while one watched: when each moved, and under which generations;
    and by the last look, its generation and how many rounds there have been, whoever did them."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.moved_s: dict[str, list[float]] = {log: [] for log in LOGS}
        self.generations: dict[str, set[int]] = {log: set() for log in LOGS}
        self.generation: dict[str, int] = {}
        self.rounds: dict[str, int] = {}

    def look(self) -> None:
        """Look once."""
        for log in LOGS:
            path = paths.commit_log(self._flow.view.paths.source_stream("src", log))
            found = CommitLog.from_bytes(self._flow.cluster.registry.get(path).data, path=path)
            self.generations[log].add(found.generation)
            self.generation[log] = found.generation
            if self.rounds.get(log) != found.round:
                self.rounds[log] = found.round
                self.moved_s[log].append(SYSTEM_CLOCK.monotonic_s())

    def gaps(self, log: str) -> list[float]:
        """The seconds between its commits."""
        at = self.moved_s[log]
        return sorted(later - earlier for earlier, later in itertools.pairwise(at))


@contextmanager
def steady_load(cluster: Cluster, *logs: str) -> Iterator[None]:
    """Every log (or each of these) gets some records, again and again, while this lasts."""
    over = threading.Event()

    def append() -> None:
        while not over.wait(_PERIOD_S):
            for log in logs or LOGS:
                cluster.append(log, 5)

    appending = threading.Thread(target=append)
    appending.start()
    try:
        yield
    finally:
        over.set()
        appending.join()


def watched(flow: Flow, commits: Commits, condition: Callable[[], object], what: str) -> None:
    """Look at the commits until something holds."""

    def seen() -> object:
        commits.look()
        return condition() or threading.Event().wait(LOOK_S)

    flow.wait(seen, what)


def at_least(count: int, commits: Commits) -> bool:
    return all(len(moved) >= count for moved in commits.moved_s.values())


def accepted(flow: Flow) -> bool:
    """Whether the last edit is in force."""
    return flow.status.config_version == flow.view.config().version and flow.status.config_error is None
