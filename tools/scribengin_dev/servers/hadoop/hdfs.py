"""HDFS: a NameNode and DataNodes, each a process of its own, their data in a directory. They are on the loopback
interface, or on machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scribengin_dev.servers.hadoop.daemons import HadoopDaemons
from scribengin_dev.servers.hadoop.hadoop import (
    LOCALHOST,
    ask_json,
    copied_configuration,
    core_settings,
    daemon,
    run_client,
    write_site,
)
from scribengin_dev.servers.host import Host
from scribengin_dev.servers.java_server import JavaServer, ports_of

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
HEAP_MB = 384
PORTS_OF_NAME_NODE = 2
PORTS_OF_DATA_NODE = 3


class HdfsServers(HadoopDaemons):
    """A NameNode and `data_nodes` DataNodes with their data in `folder`; a file has as many copies as there are nodes.

    With `hosts` there is a DataNode on each of these, and the NameNode on `head`; their data is in the hosts' folders.
    `settings` override those of hdfs-site.xml. Started again there, they have their ports and their files. A DataNode
    that died is missed after about 15 s; clients go round it at once. Not thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        data_nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        head: Host = LOCALHOST,
        hosts: Sequence[Host] = (),
    ) -> None:
        super().__init__(folder)
        self._head = head
        self._hosts = hosts or [LOCALHOST] * data_nodes
        self.data_nodes = len(self._hosts)
        self._settings = dict(settings or {})

    @property
    def url(self) -> str:
        """`hdfs://host:port`, as clients want it. Known once it was started."""
        assert self._ports, "HDFS was not started yet"
        return f"hdfs://{self._head.address}:{self._ports[0]}"

    @property
    def web_url(self) -> str:
        """`http://host:port` of the NameNode's pages, WebHDFS below it. Known once it was started."""
        assert self._ports, "HDFS was not started yet"
        return f"http://{self._head.address}:{self._ports[1]}"

    def kill_data_node(self, number: int) -> None:
        """Kill a DataNode with SIGKILL."""
        self._kill(number)

    def start_data_node(self, number: int) -> None:
        """Start a DataNode again and wait until it is in use. Raises ServerDown."""
        self._start_again(number)

    def live_data_nodes(self) -> int:
        """How many DataNodes the NameNode believes in."""
        return int(self._bean("FSNamesystemState").get("NumLiveDataNodes", 0))

    def _prepare(self) -> None:
        """The NameNode's directory is formatted when it is new."""
        self._ports = ports_of(self.folder, PORTS_OF_NAME_NODE + PORTS_OF_DATA_NODE * self.data_nodes)
        write_site(self.conf_directory / "core-site.xml", core_settings(self.folder, self.url))
        write_site(self.conf_directory / "hdfs-site.xml", self._site())
        place = self._head.place(self.folder)
        configuration = copied_configuration(self.conf_directory, place / "conf-namenode")
        if not (place / "name" / "current" / "VERSION").is_file():
            words = ["-format", "-force", "-nonInteractive"]
            run_client(NAME_NODE, words, place, configuration)
        self._nodes = [self._data_node(number) for number in range(self.data_nodes)]
        self._leader = daemon("namenode", NAME_NODE, configuration, heap_mb=HEAP_MB, host=self._head)

    def _data_node(self, number: int) -> JavaServer:
        name, host = f"datanode-{number}", self._hosts[number]
        place = host.place(self.folder)
        first = PORTS_OF_NAME_NODE + PORTS_OF_DATA_NODE * number
        data, web, ipc = self._ports[first : first + PORTS_OF_DATA_NODE]
        own: dict[str, object] = {
            "dfs.datanode.address": f"{host.address}:{data}",
            "dfs.datanode.http.address": f"{host.address}:{web}",
            "dfs.datanode.ipc.address": f"{host.address}:{ipc}",
            "dfs.datanode.data.dir": (place / name).as_uri(),
            "dfs.datanode.hostname": host.address,
        }
        configuration = copied_configuration(self.conf_directory, place / f"conf-{name}")
        write_site(configuration / "hdfs-site.xml", {**self._site(), **own})
        return daemon(name, _DATA_NODE, configuration, heap_mb=HEAP_MB, host=host)

    def _site(self) -> dict[str, object]:
        return {
            "dfs.replication": self.data_nodes,
            "dfs.namenode.rpc-address": f"{self._head.address}:{self._ports[0]}",
            "dfs.namenode.http-address": f"{self._head.address}:{self._ports[1]}",
            "dfs.namenode.name.dir": (self._head.place(self.folder) / "name").as_uri(),
            "dfs.namenode.datanode.registration.ip-hostname-check": False,
            "dfs.permissions.enabled": False,
            "dfs.blocksize": "64m",
            "dfs.namenode.fs-limits.min-block-size": 1024,  # so that tests can have files of many blocks
            "dfs.namenode.safemode.extension": 0,
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 2000,  # a node is dead after twice that and ten heartbeats
            "dfs.namenode.stale.datanode.interval": 4000,
            "dfs.namenode.avoid.read.stale.datanode": True,
            "dfs.namenode.avoid.write.stale.datanode": True,
            "dfs.namenode.replication.interval": 1,
            # Every 10 ms it would look for blocks to delete: a quarter of what an idle NameNode computes.
            "dfs.namenode.block.deletion.unlock.interval.ms": 500,
            # There is no third DataNode to take the place of one that failed: writers go on with those that are left.
            "dfs.client.block.write.replace-datanode-on-failure.enable": False,
            "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
            **self._settings,
        }

    def _readiness(self, server: JavaServer) -> Callable[[], bool]:
        return self._serves if server is self._leader else partial(self._stores, len(self.pids) - 1)

    def _serves(self) -> bool:
        """Whether the NameNode is out of its start."""
        return "Safemode" in self._bean("NameNodeInfo")

    def _stores(self, data_nodes: int) -> bool:
        """Whether so many DataNodes have told of room on their disks, and files can be changed. No file is written: by
        WebHDFS, which nothing else needs, that is an eighth of a start."""
        info = self._bean("NameNodeInfo")
        if info.get("Safemode"):
            return False
        told: Iterable[dict[str, int]] = json.loads(info.get("LiveNodes", "{}")).values()
        return sum(node["remaining"] > 0 for node in told) >= data_nodes

    def _bean(self, name: str, web_url: str | None = None) -> dict[str, Any]:
        """Of a NameNode's pages, by default those of the one that leads."""
        beans = ask_json(f"{web_url or self.web_url}/jmx?qry=Hadoop:service=NameNode,name={name}").get("beans", [])
        return dict(beans[0]) if beans else {}
