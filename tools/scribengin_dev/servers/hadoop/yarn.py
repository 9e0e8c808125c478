"""YARN: a ResourceManager and NodeManagers, each a process of its own, on HDFS or without. They are on the loopback
interface, or on machines."""

from __future__ import annotations

import getpass
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Self

from scribengin.base.jvm import CONF_VARIABLE, OPTIONS_VARIABLE
from scribengin.base.process.lifetime import PATIENCE_VARIABLE
from scribengin.errors import ServerDown
from scribengin_dev.servers.hadoop.daemons import HadoopDaemons
from scribengin_dev.servers.hadoop.hadoop import (
    LOCALHOST,
    application_jars,
    ask,
    ask_json,
    copied_configuration,
    core_settings,
    daemon,
    write_site,
)
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.host import Host
from scribengin_dev.servers.java_server import JavaServer, ports_of

QUEUES = ("default", "second")
"""The queues of a cluster. Either may take what the other leaves."""
LABEL = "fast"
"""The one node label that the queues may use. No node has it until `label_node`."""

_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_SCHEDULER = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
_CALCULATOR = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
RUN_VARIABLE = "SCRIBENGIN_TEST_RUN"
"""What a run of tests marks its processes with, so that it finds those that it has left behind: as in tools/dev.py."""
PASSED_ON = (
    *("JAVA_HOME", CONF_VARIABLE, "PATH", "LANG", "LC_ALL"),
    *("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", OPTIONS_VARIABLE),  # of the JVMs of `spark-submit`, and of ours
    *(RUN_VARIABLE, PATIENCE_VARIABLE),
)
"""What containers have from who starts the cluster: a NodeManager gives them nothing else of its environment."""
_LOOK_S = 0.02
_HEAP_MB = 384
_PORTS_OF_RESOURCE_MANAGER = 5
_PORTS_OF_NODE = 4
_STATES = "NEW,RUNNING,UNHEALTHY,LOST,REBOOTED,SHUTDOWN,DECOMMISSIONING,DECOMMISSIONED"


class YarnServers(HadoopDaemons):
    """A ResourceManager and `nodes` NodeManagers with their data in `folder`, on `hdfs` or on this machine's files.

    With `hosts` there is a NodeManager on each of these, and the ResourceManager on `head`; their data is in the hosts'
    folders. `settings` override those of yarn-site.xml. Started again there, they have their ports, and have forgotten
    their applications. A node that died is LOST after about 10 s; its containers live on as orphans, which `stop` ends.
    Not thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        hdfs: HdfsServers | None = None,
        nodes: int = 2,
        settings: Mapping[str, object] | None = None,
        head: Host = LOCALHOST,
        hosts: Sequence[Host] = (),
    ) -> None:
        super().__init__(folder)
        self.hdfs = hdfs
        self._head = head
        self._hosts = hosts or [LOCALHOST] * nodes
        self.nodes = len(self._hosts)
        self._settings = dict(settings or {})

    @property
    def web_url(self) -> str:
        """`http://host:port` of the ResourceManager's pages, its REST below it. Known once it was started."""
        assert self._ports, "YARN was not started yet"
        return f"http://{self._head.address}:{self._ports[4]}"

    def start(self, nodes: int | None = None) -> Self:
        super().start(nodes)
        try:
            self._tell("add-node-labels", {"nodeLabelInfo": [{"name": LABEL, "exclusivity": "false"}]})
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop them, and what containers they have left behind; their data stays. Idempotent."""
        super().stop()
        while pids := self.container_processes():  # again and again: what is killed may just have started another
            for pid in pids:
                _kill(pid)
            Event().wait(_LOOK_S)

    def kill_node(self, number: int) -> None:
        """Kill a NodeManager with SIGKILL. Its containers do not notice."""
        self._kill(number)

    def start_node(self, number: int) -> None:
        """Start a NodeManager again and wait until it is in use. Raises ServerDown."""
        self._start_again(number)

    def node_id(self, number: int) -> str:
        """`host:port` of a NodeManager, as YARN's clients see it."""
        port = self._ports[_PORTS_OF_RESOURCE_MANAGER + _PORTS_OF_NODE * number]
        return f"{self._hosts[number].name}:{port}"

    def label_node(self, number: int, label: str = LABEL) -> None:
        """Give a node the label, or none for "". A labelled node is for containers that ask for the label; what is left
        of it may be lent to others, but not to masters. Raises ServerDown."""
        names = [label] if label else []
        self._tell("replace-node-to-labels", {"nodeToLabels": [{"nodeId": self.node_id(number), "labels": names}]})

    def node_states(self) -> dict[str, str]:
        """What the ResourceManager believes of each node, by its id: RUNNING, LOST, SHUTDOWN and so on."""
        answer = _unwrapped(ask_json(f"{self.web_url}/ws/v1/cluster/nodes?states={_STATES}"), "nodes")
        return {str(node["id"]): str(node["state"]) for node in answer.get("node", [])}

    def container_outputs(self, name: str) -> list[Path]:
        """Where containers, running or ended, have written a file of that name, as `stderr`."""
        folders = [self._node_folder(number) / "logs" for number in range(self.nodes)]
        return sorted(path for folder in folders for path in folder.glob(f"application_*/*/{name}"))

    def unpacked(self, archive: str) -> list[Path]:
        """Where nodes have unpacked an archive of that name for containers of this user."""
        places = [self._node_folder(number) / f"local/usercache/{getpass.getuser()}" for number in range(self.nodes)]
        return sorted(path for place in places for path in place.glob(f"filecache/*/{archive}"))

    def container_processes(self, number: int | None = None) -> list[int]:
        """The processes of containers, of one node or of all: orphans of a dead NodeManager among them."""
        places = [self._node_folder(n) for n in (range(self.nodes) if number is None else [number])]
        return [pid for pid, place in _working_places() if any(place.is_relative_to(p / "local") for p in places)]

    def _node_folder(self, number: int) -> Path:
        return self._hosts[number].place(self.folder) / f"nodemanager-{number}"

    def _id_of(self, server: JavaServer) -> str:
        return self.node_id(self._nodes.index(server))

    def _prepare(self) -> None:
        self._ports = ports_of(self.folder, _PORTS_OF_RESOURCE_MANAGER + _PORTS_OF_NODE * self.nodes)
        if self.hdfs is not None:
            copied_configuration(self.hdfs.conf_directory, self.conf_directory)
        file_system = self.hdfs.url if self.hdfs is not None else "file:///"
        write_site(self.conf_directory / "core-site.xml", core_settings(self.folder, file_system))
        write_site(self.conf_directory / "yarn-site.xml", self._site())
        write_site(self.conf_directory / "capacity-scheduler.xml", _scheduler_settings())
        place = self._head.place(self.folder)
        configuration = copied_configuration(self.conf_directory, place / "conf-resourcemanager")
        name = "resourcemanager"
        self._leader = daemon(name, _RESOURCE_MANAGER, configuration, heap_mb=_HEAP_MB, host=self._head)
        self._nodes = [self._node(number) for number in range(self.nodes)]

    def _node(self, number: int) -> JavaServer:
        name, host = f"nodemanager-{number}", self._hosts[number]
        first = _PORTS_OF_RESOURCE_MANAGER + _PORTS_OF_NODE * number + 1
        localizer, web, collector = self._ports[first : first + _PORTS_OF_NODE - 1]
        own: dict[str, object] = {
            "yarn.nodemanager.address": self.node_id(number),
            "yarn.nodemanager.hostname": host.address,
            "yarn.nodemanager.localizer.address": f"{host.address}:{localizer}",
            "yarn.nodemanager.webapp.address": f"{host.address}:{web}",
            "yarn.nodemanager.collector-service.address": f"{host.address}:{collector}",
            "yarn.nodemanager.local-dirs": self._node_folder(number) / "local",
            "yarn.nodemanager.log-dirs": self._node_folder(number) / "logs",
        }
        configuration = copied_configuration(self.conf_directory, host.place(self.folder) / f"conf-{name}")
        write_site(configuration / "yarn-site.xml", {**self._site(), **own})
        return daemon(name, _NODE_MANAGER, configuration, heap_mb=_HEAP_MB, host=host)

    def _site(self) -> dict[str, object]:
        clients, scheduler, nodes, admin, web = self._ports[:_PORTS_OF_RESOURCE_MANAGER]
        head, place = self._head.address, self._head.place(self.folder)
        aggregated = "/yarn-logs" if self.hdfs is not None else self.folder / "yarn-logs"
        return {
            "yarn.resourcemanager.hostname": head,
            "yarn.resourcemanager.address": f"{head}:{clients}",
            "yarn.resourcemanager.scheduler.address": f"{head}:{scheduler}",
            "yarn.resourcemanager.resource-tracker.address": f"{head}:{nodes}",
            "yarn.resourcemanager.admin.address": f"{head}:{admin}",
            "yarn.resourcemanager.webapp.address": f"{head}:{web}",
            "yarn.nodemanager.remote-app-log-dir": aggregated,
            "yarn.node-labels.fs-store.root-dir": (place / "node-labels").as_uri(),
            "yarn.node-attribute.fs-store.root-dir": (place / "node-attributes").as_uri(),
            # The configuration directory first: or a master would look for the ResourceManager at 0.0.0.0. It is that
            # of the container's own machine, as in Hadoop's default. Machines do not see each other's directories.
            "yarn.application.classpath": ",".join(map(str, ["$HADOOP_CONF_DIR", *application_jars()])),
            **_SETTINGS,
            **self._settings,
        }

    def _readiness(self, server: JavaServer) -> Callable[[], bool]:
        return self._accepts if server is self._leader else partial(self._is_running, self._id_of(server))

    def _accepts(self) -> bool:
        """Whether a client is given an application's id, as before a submission."""
        answer = ask(f"{self.web_url}/ws/v1/cluster/apps/new-application", method="POST")
        return answer is not None and b"application_" in answer

    def _tell(self, what: str, body: dict[str, Any]) -> None:
        """Administer the cluster over REST."""
        url = f"{self.web_url}/ws/v1/cluster/{what}?user.name={getpass.getuser()}"
        if ask(url, method="POST", body=json.dumps(body).encode()) is None:
            raise ServerDown(f"YARN refused {what} {body}: look into the logs in {self.folder}")

    def _is_running(self, node: str) -> bool:
        return self.node_states().get(node) == "RUNNING"


_SETTINGS: dict[str, object] = {
    "yarn.resourcemanager.scheduler.class": _SCHEDULER,
    "yarn.resourcemanager.am.max-attempts": 2,
    "yarn.resourcemanager.am.global.max-attempts": 20,
    "yarn.cluster.max-application-priority": 10,
    "yarn.scheduler.minimum-allocation-mb": 128,
    "yarn.scheduler.maximum-allocation-mb": 4096,
    "yarn.scheduler.maximum-allocation-vcores": 8,
    "yarn.nodemanager.resource.memory-mb": 6144,
    "yarn.nodemanager.resource.cpu-vcores": 16,
    # What is dead is found out in seconds, so that tests need not wait for minutes.
    "yarn.nm.liveness-monitor.expiry-interval-ms": 10_000,
    "yarn.resourcemanager.nm.liveness-monitor.interval-ms": 1_000,
    # A master has so long to start (YARN's own limit): its node unpacks an environment of 700 MB first.
    "yarn.am.liveness-monitor.expiry-interval-ms": 600_000,
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 500,  # more often is what an idle YARN computes most for
    "yarn.resourcemanager.connect.retry-interval.ms": 500,
    "yarn.client.nodemanager-connect.max-wait-ms": 5_000,
    "yarn.client.nodemanager-connect.retry-interval-ms": 500,
    "yarn.nodemanager.recovery.enabled": False,  # a NodeManager that was killed forgets its containers: orphans
    "yarn.nodemanager.pmem-check-enabled": True,
    "yarn.nodemanager.resource.memory.enforced": False,  # by cgroups, which would make the check look away
    "yarn.nodemanager.vmem-check-enabled": False,
    "yarn.nodemanager.container-monitor.interval-ms": 1500,  # each time it reads about all processes of the machine
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
    "yarn.nodemanager.disk-health-checker.min-healthy-disks": 0,
    "yarn.nodemanager.env-whitelist": ",".join(PASSED_ON),
    "yarn.nodemanager.admin-env": "MALLOC_ARENA_MAX=2",
    "yarn.log-aggregation-enable": True,
    "yarn.log-aggregation.retain-seconds": -1,
    "yarn.node-labels.enabled": True,
}


def _scheduler_settings() -> dict[str, object]:
    capacities = dict(zip(QUEUES, (70, 30), strict=True))
    settings: dict[str, object] = {
        "root.queues": ",".join(QUEUES),
        "root.accessible-node-labels": "*",
        f"root.accessible-node-labels.{LABEL}.capacity": 100,
        "maximum-am-resource-percent": 1.0,
        "resource-calculator": _CALCULATOR,
        "node-locality-delay": -1,
        "per-node-heartbeat.maximum-container-assignments": 1,  # so that containers spread over the nodes
        # By itself it looks for room every 5 ms, also when nobody wants any: half of what an idle YARN computes.
        "schedule-asynchronously.scheduling-interval-ms": 200,
    }
    for queue, capacity in capacities.items():
        settings[f"root.{queue}.capacity"] = capacity
        settings[f"root.{queue}.maximum-capacity"] = 100
        settings[f"root.{queue}.user-limit-factor"] = 10
        settings[f"root.{queue}.state"] = "RUNNING"
        settings[f"root.{queue}.accessible-node-labels"] = "*"
        settings[f"root.{queue}.accessible-node-labels.{LABEL}.capacity"] = capacity
    return {f"yarn.scheduler.capacity.{name}": value for name, value in settings.items()}


def _unwrapped(answer: dict[str, Any], root: str) -> dict[str, Any]:
    """Without the root element, which some builds of Hadoop leave out and others write."""
    inner = answer.get(root, answer)
    return inner if isinstance(inner, dict) else {}


def _working_places() -> Iterator[tuple[int, Path]]:
    """The processes of this machine whose working directory can be seen."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), Path(os.readlink(entry / "cwd"))
            except OSError:
                continue  # it has ended, or is somebody else's


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
