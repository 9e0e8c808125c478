"""HDFS with two NameNodes under the name of one service: one is active, and the other takes over when it is told to.

Both have their edits in one directory. There is nobody who looks which of them lives: `fail_over` is what an operator
would do, or Hadoop's own controller.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scribengin_dev.servers.hadoop.hadoop import (
    HOST,
    LOCALHOST,
    copied_configuration,
    core_settings,
    daemon,
    run_client,
    write_site,
)
from scribengin_dev.servers.hadoop.hdfs import (
    HEAP_MB,
    NAME_NODE,
    PORTS_OF_DATA_NODE,
    PORTS_OF_NAME_NODE,
    HdfsServers,
)
from scribengin_dev.servers.java_server import JavaServer, ports_of

_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_PROXY = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_OF_ONE = ("dfs.namenode.rpc-address", "dfs.namenode.http-address", "dfs.namenode.name.dir")
_START_TIMEOUT_S = 240.0


class HdfsPair(HdfsServers):
    """As HdfsServers, with two NameNodes, on the loopback interface. Not thread-safe."""

    def __init__(self, folder: Path | str, *, data_nodes: int = 1) -> None:
        super().__init__(folder, data_nodes=data_nodes)
        self._active = 0

    @property
    def service(self) -> str:
        """Its name. No other pair has that while this one runs: clients keep what they know of a name."""
        assert self._ports, "HDFS was not started yet"
        return f"pair{self._ports[0]}"

    @property
    def url(self) -> str:
        """`hdfs://` and the name of the service: who reads it has `conf_directory` as HADOOP_CONF_DIR."""
        return f"hdfs://{self.service}"

    @property
    def web_url(self) -> str:
        """Of the active NameNode."""
        return self._web_of(self._active)

    @property
    def client_settings(self) -> dict[str, str]:
        """What Hadoop's clients have to know of the service, which have another configuration."""
        return {
            "dfs.nameservices": self.service,
            f"dfs.ha.namenodes.{self.service}": "nn0,nn1",
            f"dfs.client.failover.proxy.provider.{self.service}": _PROXY,
            **{f"dfs.namenode.rpc-address.{self.service}.nn{n}": f"{HOST}:{self._ports_of(n)[0]}" for n in range(2)},
        }

    def fail_over(self) -> None:
        """Kill the active NameNode with SIGKILL, and have the other one be active. Raises ServerDown."""
        self._name_nodes()[self._active].kill()
        self._active = 1 - self._active
        self._activate()

    def start_name_node(self) -> None:
        """Start the one again that was killed; it stands by. Raises ServerDown."""
        number = 1 - self._active
        server = self._name_nodes()[number]
        server.start()
        server.await_answer(partial(self._serves_at, number), _START_TIMEOUT_S)

    def await_ready(self) -> None:
        """As HdfsServers: one of them is active then."""
        for number, server in enumerate(self._name_nodes()):
            if server.pid is not None:
                server.await_answer(partial(self._serves_at, number), _START_TIMEOUT_S)
        if self._bean("NameNodeStatus").get("State") != "active":
            self._activate()
        super().await_ready()

    def _activate(self) -> None:
        self.run(_ADMIN, ["-ns", self.service, "-transitionToActive", "--forceactive", f"nn{self._active}"])

    def _prepare(self) -> None:
        self._ports = ports_of(self.folder, 2 * PORTS_OF_NAME_NODE + PORTS_OF_DATA_NODE * self.data_nodes)
        write_site(self.conf_directory / "core-site.xml", core_settings(self.folder, self.url))
        write_site(self.conf_directory / "hdfs-site.xml", self._site())
        configurations = [self._name_node_configuration(number) for number in range(2)]
        if not (self.folder / "name-0" / "current" / "VERSION").is_file():
            run_client(NAME_NODE, ["-format", "-force", "-nonInteractive"], self.folder, configurations[0])
            shutil.copytree(self.folder / "name-0", self.folder / "name-1", dirs_exist_ok=True)
        self._leader, other = (
            daemon(f"namenode-{number}", NAME_NODE, configuration, heap_mb=HEAP_MB, host=LOCALHOST)
            for number, configuration in enumerate(configurations)
        )
        self._nodes = [other, *(self._data_node(number) for number in range(self.data_nodes))]

    def _name_node_configuration(self, number: int) -> Path:
        configuration = copied_configuration(self.conf_directory, self.folder / f"conf-namenode-{number}")
        own = {
            "dfs.ha.namenode.id": f"nn{number}",
            "dfs.namenode.name.dir": (self.folder / f"name-{number}").as_uri(),
        }
        write_site(configuration / "hdfs-site.xml", {**self._site(), **own})
        return configuration

    def _site(self) -> dict[str, object]:
        alone = {name: value for name, value in super()._site().items() if name not in _OF_ONE}
        return {
            **alone,
            **self.client_settings,
            **{f"dfs.namenode.http-address.{self.service}.nn{n}": f"{HOST}:{self._ports_of(n)[1]}" for n in range(2)},
            "dfs.namenode.shared.edits.dir": (self.folder / "edits").as_uri(),
            "dfs.ha.fencing.methods": "shell(/bin/true)",  # the one before is dead
            "dfs.ha.tail-edits.period": 1,
        }

    def _name_nodes(self) -> list[JavaServer]:
        return self._servers()[:2]

    def _ports_of(self, number: int) -> list[int]:
        """Of a NameNode: those of the second one stand behind those of the DataNodes."""
        first = 0 if number == 0 else len(self._ports) - PORTS_OF_NAME_NODE
        return self._ports[first : first + PORTS_OF_NAME_NODE]

    def _web_of(self, number: int) -> str:
        return f"http://{HOST}:{self._ports_of(number)[1]}"

    def _kill(self, number: int) -> None:
        super()._kill(number + 1)

    def _start_again(self, number: int) -> None:
        super()._start_again(number + 1)

    def _readiness(self, server: JavaServer) -> Callable[[], bool]:
        names = [one.name for one in self._name_nodes()]
        if server.name in names:
            return partial(self._serves_at, names.index(server.name))
        return partial(self._stores, sum(name.startswith("datanode") for name in self.pids))

    def _serves_at(self, number: int) -> bool:
        return "Safemode" in self._bean("NameNodeInfo", self._web_of(number))
