"""Bookies and HDFS for logs of ours: started when a benchmark first wants them, with a namespace on each.

All that touches a namespace there runs in processes of its own: it takes a JVM, and a process that has one must not
fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from scribengin.errors import ServerDown, ServerError
from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.bench.peers.distributedlog import DistributedLogPeer
from scribengin_dev.bench.peers.peers import Peers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

_DATA_NODES = 3
_DIRECTORY = "/logs"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store of ours that runs. `namespace` is the URI, `guarantee` what an acknowledgement means, `hdfs` the cluster
    (None: another store)."""

    namespace: str
    guarantee: str
    hdfs: str | None = None

    def job(self, job: str, log: str, **more: object) -> Job:
        """What a process does to a log there."""
        return {"system": "log", "namespace": self.namespace, "job": job, "log": log, **more}

    def of_hdfs(self, job: str, **more: object) -> Job:
        """What a process does with HDFS itself, and the files of our logs there."""
        return {"system": "hdfs", "url": self.hdfs, "job": job, "directory": _DIRECTORY, **more}


@dataclass(frozen=True, slots=True)
class _Started:
    """Where logs go on a store that runs, for `bind`; the rest as in StorePlace."""

    location: str
    guarantee: str
    hdfs: str | None = None


@dataclass
class StorePlaces:
    """All of them, below one directory. They end with the block."""

    folder: Path
    zookeeper: str
    peers: Peers
    _stack: ExitStack = field(default_factory=ExitStack)
    _found: dict[str, StorePlace] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """The stores that could not be started, and why."""

    def get(self, store: str) -> StorePlace | None:
        """The store, running, with a namespace on it. None: it cannot be had here, and `missing` says why. Raises
        ServerError (the namespace was not bound)."""
        if store not in self._found and store not in self.missing:
            try:
                server = _STARTED[store](self)
            except ServerError as error:
                self.missing[store] = str(error).splitlines()[0]
            else:
                namespace = self._bound(store, server.location)
                self._found[store] = StorePlace(namespace, server.guarantee, server.hdfs)
        return self._found.get(store)

    def __enter__(self) -> StorePlaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _on_bookies(self) -> _Started:
        """On the bookies that DistributedLog has, too."""
        peer = self.peers.get("distributedlog")
        if not isinstance(peer, DistributedLogPeer):
            raise ServerDown(f"bookies {self.peers.missing['distributedlog']}")
        self._stack.enter_context(_jars_known(peer.servers.jars))
        return _Started(
            peer.servers.log_location("ours"),
            "three bookies of this machine, three copies, all with an fsync before the ack",
        )

    def _on_hdfs(self) -> _Started:
        servers = self._stack.enter_context(HdfsServers(self.folder / "hdfs", data_nodes=_DATA_NODES))
        return _Started(
            f"{servers.url}{_DIRECTORY}",
            f"HDFS on this machine, {_DATA_NODES} copies, hsync on all of them before the ack",
            servers.url,
        )

    def _bound(self, store: str, location: str) -> str:
        namespace = f"distributedlog://{self.zookeeper}/bench-{store}"
        run_job({"system": "log", "job": "bind", "namespace": namespace, "store": store, "location": location})
        return namespace


@contextmanager
def _jars_known(jars: list[Path]) -> Iterator[None]:
    """Where the log store looks for BookKeeper's client, in the processes that are started meanwhile."""
    before = os.environ.get(JARS_VARIABLE)
    os.environ[JARS_VARIABLE] = os.pathsep.join(map(str, jars))
    try:
        yield
    finally:
        del os.environ[JARS_VARIABLE]
        if before is not None:
            os.environ[JARS_VARIABLE] = before


_STARTED: Mapping[str, Callable[[StorePlaces], _Started]] = {
    "bk": StorePlaces._on_bookies,
    "hdfs": StorePlaces._on_hdfs,
}
STORES = tuple(_STARTED)
