"""A cluster on machines: one that leads (ZooKeeper, NameNode, ResourceManager), and workers with a NodeManager, a
DataNode and a bookie each.

A fourth bookie stands beside the leaders. With it a log on BookKeeper begins new segments, with three copies of each
entry, while any one of three machines is gone.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.host import Host
from scribengin_dev.servers.machines import Machines, NamespaceMachine
from scribengin_dev.servers.zookeeper import ZooKeeperServers

HEAD = "head"
SILENCE_MS = 10_000
"""So long clients and DataNodes wait for one that says nothing: a machine that is gone does not even refuse."""
_SILENCE = {
    "dfs.client.socket-timeout": SILENCE_MS,
    "dfs.datanode.socket.write.timeout": SILENCE_MS,
    "dfs.client.datanode-restart.timeout": 5,
    "ipc.client.connect.timeout": SILENCE_MS,
    "ipc.client.connect.max.retries.on.timeouts": 2,
}


class MachineRoom:
    """Machines with their data in `folder`, and a ZooKeeper. What else runs there is started when it is asked for.

    What is in `hidden` (default: `folder`) no machine sees. Not thread-safe.
    """

    def __init__(self, folder: Path | str, workers: int, *, hidden: Path | str | None = None) -> None:
        self.folder = Path(folder).absolute()
        names = [HEAD, *(f"machine-{number}" for number in range(1, workers + 1))]
        self.machines = Machines(self.folder / "machines", names, hidden=hidden or folder)
        self._stack = ExitStack()

    @property
    def head(self) -> NamespaceMachine:
        """The one that leads."""
        return self.machines[HEAD]

    @property
    def workers(self) -> list[NamespaceMachine]:
        """All others."""
        return self.machines.all[1:]

    def __enter__(self) -> Self:
        with self._stack as opened:
            opened.enter_context(self.machines)
            self.zookeeper = ZooKeeperServers(self.folder / "zookeeper", servers=1, host=self.head.host)
            opened.enter_context(self.zookeeper)
            self._stack = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_hdfs(self) -> HdfsServers:
        """A DataNode on each worker. Raises ServerDown."""
        servers = HdfsServers(self.folder / "hdfs", settings=_SILENCE, head=self.head.host, hosts=self._hosts)
        return self._stack.enter_context(servers)

    def start_yarn(self, hdfs: HdfsServers) -> YarnServers:
        """A NodeManager on each worker. Raises ServerDown."""
        servers = YarnServers(self.folder / "yarn", hdfs=hdfs, head=self.head.host, hosts=self._hosts)
        return self._stack.enter_context(servers)

    def start_bookies(self, *, beside_head: bool = True) -> BookKeeperServers:
        """One on each worker, and one beside the leaders. Raises ServerDown."""
        hosts = [*self._hosts, self.head.host] if beside_head else self._hosts
        return self._stack.enter_context(BookKeeperServers(self.folder / "bookies", self.zookeeper.hosts, hosts=hosts))

    @property
    def _hosts(self) -> list[Host]:
        return [machine.host for machine in self.workers]
