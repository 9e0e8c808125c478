"""BookKeeper: bookies, each a process that makes every entry durable before it answers, on a ZooKeeper.

DistributedLog's client is in the same class path: `distributedlog_uri` is a namespace for it on these bookies.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ServerDown
from scribengin_dev.servers.host import THIS_HOST, Host
from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_dev.servers.java_server import (
    JavaServer,
    java_command,
    listens,
    ports_of,
    run_tool,
    settings_text,
)
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing
from scribengin_registry.opening import connect

_BOOKIES = 3
_START_TIMEOUT_S = 240.0
_HEAP_MB = 384
_DIRECT_MEMORY_MB = 256
_TOOL_HEAP_MB = 256
_SHELL = "org.apache.bookkeeper.bookie.BookieShell"


class BookKeeperServers:
    """Three bookies with their data in `folder`. `zookeeper` is `host:port` of a running server. With `hosts` there is
    one on each of these, with its data in the host's folder.

    Started again there with the same ZooKeeper, they have their ports and their ledgers. Not thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        zookeeper: str,
        *,
        settings: Mapping[str, object] | None = None,
        hosts: Sequence[Host] = (THIS_HOST,) * _BOOKIES,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.zookeeper = zookeeper
        self._settings = dict(settings or {})
        self._hosts = hosts
        self._jars: list[Path] = []
        self._ports: list[int] = []
        self._bookies: list[JavaServer] = []

    @property
    def jars(self) -> list[Path]:
        """Their class path: BookKeeper's and DistributedLog's clients are in it, too. Raises as `jars_of`."""
        self._jars = self._jars or jars_of("bookkeeper")
        return self._jars

    @property
    def root(self) -> str:
        """The node of ZooKeeper below which everything of these bookies lies."""
        remembered = self.folder / "root"
        if not remembered.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            remembered.write_text(f"/bookkeeper-{uuid.uuid4().hex[:12]}")
        return remembered.read_text()

    @property
    def pids(self) -> list[int]:
        """The processes of the bookies that run."""
        return [bookie.pid for bookie in self._bookies if bookie.pid is not None]

    @property
    def addresses(self) -> list[str]:
        """Those of the bookies, as `host:port`, in the order of their numbers."""
        return [self._address(port, host) for port, host in zip(self._ports, self._hosts, strict=True)]

    @property
    def metadata_uri(self) -> str:
        """Where ledgers are described, as BookKeeper's clients want it."""
        return f"zk+hierarchical://{self.zookeeper}{self.root}/ledgers"

    def start(self) -> BookKeeperServers:
        """Start them and wait until all can be written to. Raises ArtifactUnavailable, ServerDown, JavaMissing."""
        if len(self.pids) == len(self._hosts):
            return self
        with connect(self.zookeeper, auth="") as registry:  # the servers are nobody, and write below
            if registry.find(f"{self.root}/ledgers") is None:
                self._format(registry)
            if not self.pids:  # else those that run have their ports
                self._ports = ports_of(self.folder, len(self._hosts))
                self._bookies = [self._bookie(number, port) for number, port in enumerate(self._ports)]
            deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_TIMEOUT_S
            try:
                for bookie in self._bookies:
                    bookie.start()
                for bookie, port in zip(self._bookies, self._ports, strict=True):
                    left_s = max(1.0, deadline_s - SYSTEM_CLOCK.monotonic_s())
                    bookie.await_answer(partial(self._answers, registry, port, bookie.host), left_s)
            except ServerDown:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop them; their data stays. Idempotent."""
        for bookie in self._bookies:
            bookie.stop()

    def kill(self, number: int) -> None:
        """End one bookie (0, 1, 2, ...) as a crash would; its data stays, and `start` brings it back. Idempotent."""
        self._bookies[number].kill()

    def start_bookie(self, number: int) -> None:
        """Start one of them again, and wait until it can be written to. Raises ServerDown."""
        self._bookies[number].start()
        with connect(self.zookeeper, auth="") as registry:
            answers = partial(self._answers, registry, self._ports[number], self._hosts[number])
            self._bookies[number].await_answer(answers, _START_TIMEOUT_S)

    def log_location(self, name: str) -> str:
        """A place on these bookies for a namespace of our own logs, as `log bind` takes it."""
        return f"bk://{self.zookeeper}{self.root}/{name}?ledgers={self.root}/ledgers"

    def distributedlog_uri(self, namespace: str) -> str:
        """A DistributedLog namespace on these bookies, made when it is not there yet. Raises ServerDown."""
        path = f"{self.root}/{namespace}"
        uri = f"distributedlog-bk://{self.zookeeper}{path}"
        if not self._is_bound(path):
            words = ["org.apache.distributedlog.admin.DistributedLogAdmin", "bind", "-c", "-l", f"{self.root}/ledgers"]
            for option in ("-dlzr", "-dlzw", "-bkzr", "-s"):  # ZooKeeper's hosts: for readers and writers, of both
                words += [option, self.zookeeper]
            self._run("org.apache.distributedlog.tools.Tool", [*words, "-i", "true", "-r", "true", uri], "bind")
            if not self._is_bound(path):  # the tool says so, and ends as if all were well
                raise ServerDown(f"{uri} could not be bound to its bookies: look into the logs in {self.folder}")
        return uri

    def __enter__(self) -> BookKeeperServers:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _is_bound(self, path: str) -> bool:
        with connect(self.zookeeper, auth="") as registry:
            node = registry.find(path)
        return node is not None and bool(node.data)

    def _format(self, registry: Registry) -> None:
        if registry.find(self.root) is None:
            registry.create(self.root, parents=True)
        configuration = self._configuration("format", 0, THIS_HOST)
        self._run(_SHELL, ["-conf", str(configuration), "initnewcluster"], "the formatting of BookKeeper's metadata")

    def _bookie(self, number: int, port: int) -> JavaServer:
        name, host = f"bookie-{number}", self._hosts[number]
        configuration = self._configuration(name, port, host)
        command = java_command(
            "org.apache.bookkeeper.server.Main",
            ["--conf", str(configuration)],
            jars=self.jars,
            heap_mb=_HEAP_MB,
            folder=configuration.parent,
        )
        command[1:1] = [f"-XX:MaxDirectMemorySize={_DIRECT_MEMORY_MB}m"]
        return JavaServer(name, configuration.parent, command, host)

    def _configuration(self, name: str, port: int, host: Host) -> Path:
        place = host.place(self.folder)
        settings: dict[str, object] = {
            "metadataServiceUri": self.metadata_uri,
            "bookiePort": port,
            "listeningInterface": "lo" if host is THIS_HOST else "eth0",
            "advertisedAddress": host.address,
            "allowLoopback": "true",
            "useHostNameAsBookieID": "false",
            "journalDirectories": place / name / "journal",
            "ledgerDirectories": place / name / "ledgers",
            "indexDirectories": place / name / "ledgers",
            "journalSyncData": "true",
            "journalWriteData": "true",
            "journalPreAllocSizeMB": 4,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "diskUsageLwmThreshold": 0.98,
            "autoRecoveryDaemonEnabled": "false",
            "httpServerEnabled": "false",
            "enableStatistics": "false",
            **self._settings,
        }
        path = place / f"{name}.conf"
        path.write_text(settings_text(settings), encoding="utf-8")
        return path

    def _run(self, main: str, arguments: list[str], what: str) -> None:
        command = java_command(main, arguments, jars=self.jars, heap_mb=_TOOL_HEAP_MB, folder=self.folder)
        run_tool(what, command, folder=self.folder)

    @staticmethod
    def _address(port: int, host: Host) -> str:
        return f"{host.address}:{port}"

    def _answers(self, registry: Registry, port: int, host: Host) -> bool:
        """Whether clients find this bookie, and it listens: a bookie that was killed is to be found for a while yet."""
        try:
            if self._address(port, host) not in registry.children(f"{self.root}/ledgers/available"):
                return False
        except NodeMissing:
            return False
        return listens(port, host)
