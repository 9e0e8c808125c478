"""Dataflows on a real YARN: submitted by processes of their own (a JVM is for life), looked at through the registry and
the ResourceManager's REST."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.yarn.client.applications import tag_of
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hadoop import ask
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.errors import NodeMissing
from tests.integration.cluster import TIMEOUT_S, Cluster, Flow, running_cluster
from tests.servers.jvms import QUICK

_SUBMIT = """
import sys
from pathlib import Path
from scribengin.dataflow.config import DataflowConfig
from scribengin.operations.submit.submit import submit
from scribengin_registry.opening import connect
hosts, home, config = sys.argv[1:]
with connect(hosts) as registry:
    print(submit(registry, DataflowConfig.model_validate_json(config), Path(home)).id)
"""


_SUBMIT_PROGRAM = """
import sys
from pathlib import Path
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.skein.applications import SkeinApplications
from scribengin.launcher.skein.spec import WorkerSize
from scribengin.launcher.yarn.client.applications import YarnApplications
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.client.applications import pause
from scribengin.launcher.yarn.shipping.shipping import Shipping
launcher, attempts, home, *program = sys.argv[1:]
yarn = YarnConfig(attempts=int(attempts))
kit = Shipping(yarn, Path(home)).kit(None)
worker = WorkerSize(512, 1)
with SkeinApplications(yarn, kit, worker) if launcher == "skein" else YarnApplications(yarn, kit) as applications:
    argv = [sys.executable, *program]
    master = applications.launch(ContainerRequest("here:1", Path(program[0]).stem, "master", argv, 512))
    while applications.poll(master) is None:
        pause()
    print(applications.poll(master).reason)
"""
LOOPBACK = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.yarn.am.extraJavaOptions": QUICK,
    # No task starts before both executors are there, however slow the machine is.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
"""Of Spark, where a driver and its executors are all on this machine."""
_CACHE = "XDG_CACHE_HOME"
_PROGRAM_TIMEOUT_S = 840.0
_NOT_ENDED = "states=NEW,SUBMITTED,ACCEPTED,RUNNING"


def verdict_of(
    launcher: str, program: str, yarn: YarnServers, registry_hosts: str, folder: Path, attempts: int, *more: str
) -> str:
    """The last words of a program that was the master of an application: one beside the launcher's tests, and `more`
    for it."""
    place = Path(__file__).with_name("launcher") / program
    words = [launcher, str(attempts), str(folder), str(place), registry_hosts, str(folder), *more]
    done = subprocess.run(
        [sys.executable, "-c", _SUBMIT_PROGRAM, *words],
        env={**os.environ, "HADOOP_CONF_DIR": str(yarn.conf_directory)},
        capture_output=True,
        text=True,
        timeout=_PROGRAM_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass
class YarnFlow(Flow):
    """A dataflow whose master is an application of `yarn`."""

    yarn: YarnServers

    patience_s = 3 * TIMEOUT_S  # Spark starts in several containers at once, beside the servers

    def run(self, *words: str) -> str:
        """What a Python program printed that has the cluster's configuration. Fails unless it succeeds."""
        return self.run_with("", *words)

    def run_with(self, said: str, *words: str) -> str:
        """The same of a program that reads `said`."""
        done = subprocess.run(
            [sys.executable, *words],
            env=self.environment(),
            input=said,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def command(self, *words: str) -> str:
        """The same of the command line."""
        return self.run("-m", "scribengin_tools", *words, "--registry", self.cluster.registry.hosts)

    def environment(self) -> dict[str, str]:
        """As whoever submits has it."""
        return {
            **os.environ,
            "HADOOP_CONF_DIR": str(self.yarn.conf_directory),
            "SCRIBENGIN_HOME": str(self.cluster.home),
        }

    def applications(self) -> list[dict[str, Any]]:
        """What the ResourceManager says of this dataflow's applications, oldest first."""
        tag = tag_of(self.cluster.registry.hosts, self.config.name)
        found = _applications(self.yarn, f"applicationTags={tag}")
        return sorted(found, key=lambda app: int(app["startedTime"]))

    def processes(self, module: str = "") -> list[int]:
        """The pids of this dataflow's processes, those that run `module` (`scribengin.master`, `scribengin.worker`)."""
        hosts = self.cluster.registry.hosts
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if hosts in words and self.config.name in words and (not module or words[1:3] == ["-m", module]):
                found.append(process.pid)
        return found

    def wait_for_process(self, look: Callable[[], list[int]], what: str) -> int:
        """Wait until `look` finds exactly one process. A fork shows its parent's command line until it runs its own."""
        found: list[int] = []

        def alone() -> bool:
            found[:] = look()
            return len(found) == 1

        self.wait(alone, what)
        return found[0]

    def master_pid(self) -> int:
        """The process of the master, once there is one."""
        return self.wait_for_process(lambda: self.processes("scribengin.master"), "one master's process")

    def worker_pids(self) -> dict[str, int]:
        """The pids of the workers that take tasks; not of one that the master is just removing."""
        found = {}
        for name in self.ready_workers():
            with suppress(NodeMissing):
                found[name] = self.view.worker(name).pid
        return found

    def wait_for_event(self, *words: str) -> None:
        """Wait until one line of the history has all these words."""

        def told() -> bool:
            return any(all(word in event.message for word in words) for event in self.view.history().events)

        self.wait(told, f"an event with {words}")

    def words(self) -> str:
        """What YARN says, and the ends of the outputs that it keeps."""
        logs = self.yarn.container_outputs("stderr")
        ours = [str(app["id"]) for app in self.applications()]
        ends = [f"--- {log}\n{log.read_text()[-2000:]}" for log in logs if any(name in str(log) for name in ours)]
        return "\n".join([json.dumps(self.applications(), indent=1), *ends])


def submit_on_yarn(
    cluster: Cluster, servers: YarnServers, *, yarn: Mapping[str, Any] | None = None, **config: Any
) -> YarnFlow:
    """Submit a dataflow. Its containers have the cache of this run, where Spark finds its classes."""
    section = dict(yarn or {})
    section["environment"] = {_CACHE: os.environ[_CACHE], **section.get("environment", {})}
    values = {"launcher": "yarn", "yarn": section, **config}
    flow = YarnFlow(cluster, DataflowConfig.parse(values, source="the test"), servers)
    flow.run("-c", _SUBMIT, cluster.registry.hosts, str(cluster.home), flow.config.model_dump_json())
    return flow


def executors(worker_pid: int) -> list[psutil.Process]:
    """Those of the driver that is that worker's JVM, which they call by its port."""
    ports = set()
    for child in psutil.Process(worker_pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a Python worker of Spark, say, that has ended meanwhile
            ports |= {one.laddr.port for one in child.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    drivers = tuple(f"CoarseGrainedScheduler@localhost:{port}" for port in ports)
    return [
        process
        for process in psutil.process_iter(["cmdline", "name"])
        if process.info["name"] == "java" and any(word.endswith(drivers) for word in process.info["cmdline"] or [])
    ]


@contextmanager
def yarn_cluster(yarn: YarnServers, zookeeper_hosts: str, directory: Path) -> Iterator[Cluster]:
    """A cluster of its own; applications that still run in it at the end are killed."""
    before = {str(app["id"]) for app in _applications(yarn, _NOT_ENDED)}
    with running_cluster(zookeeper_hosts, directory) as cluster:
        try:
            yield cluster
        finally:
            for app in _applications(yarn, _NOT_ENDED):
                if str(app["id"]) not in before:
                    url = f"{yarn.web_url}/ws/v1/cluster/apps/{app['id']}/state"
                    ask(url, method="PUT", body=b'{"state": "KILLED"}')


def _applications(yarn: YarnServers, query: str) -> list[dict[str, Any]]:
    """Asked again until the ResourceManager answers: no answer is not the same as no application."""
    answers: list[bytes] = []

    def answered() -> bool:
        answer = ask(f"{yarn.web_url}/ws/v1/cluster/apps?{query}")
        answers.extend([] if answer is None else [answer])
        return bool(answers)

    wait_until(answered, TIMEOUT_S, "the ResourceManager to tell its applications")
    told = json.loads(answers[0])
    return list(told.get("apps", told).get("app", []))
