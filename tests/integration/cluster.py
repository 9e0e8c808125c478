"""A cluster for tests: a chroot of the shared ZooKeeper, a log namespace, dataflows as processes, and what they
delivered."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import ContainerDescriptor, tail_of_log
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import LogNamespace
from scribengin.operations.submit.submit import submit
from scribengin.testing.waiting import WaitedInVain, wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, VersionConflict
from scribengin_registry.opening import connect
from tests.stalls import output_awaited

TIMEOUT_S = 180.0
"""A limit, not an expectation: it must hold on a machine that is busy with other things."""

_LOOK_S = 1.0


@dataclass
class Cluster:
    """One place to run dataflows in. `appended` counts what was written into each log, for comparison."""

    registry: Registry
    namespace: LogNamespace
    home: Path
    launcher: LocalLauncher
    appended: dict[str, int] = field(default_factory=dict)

    def append(self, log: str, count: int) -> None:
        """Append `count` more records to a log, each `{"log": its name, "n": its number}`."""
        if log not in self.appended:
            self.namespace.create(log)
        first = self.appended.get(log, 0)
        payloads = [json.dumps({"log": log, "n": n}).encode() for n in range(first, first + count)]
        with self.namespace.open_writer(log) as writer:
            writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)
        self.appended[log] = first + count

    def seal(self, log: str) -> None:
        """Nothing will ever be appended to the log again."""
        with self.namespace.open_writer(log) as writer:
            writer.mark_end_of_stream()

    def expected(self, *logs: str) -> Counter[tuple[str, int]]:
        """Every record of these logs, once."""
        return Counter((log, n) for log in logs for n in range(self.appended[log]))


@dataclass
class Flow:
    """One dataflow that runs in a cluster."""

    cluster: Cluster
    config: DataflowConfig

    patience_s: ClassVar[float] = TIMEOUT_S

    @property
    def view(self) -> DataflowView:
        return DataflowView(self.cluster.registry, self.config.name)

    @property
    def status(self) -> DataflowStatus:
        return self.view.status()

    def edit(self, **changes: Any) -> None:
        """Edit the config as an operator does."""
        while True:
            config = self.view.config()
            try:
                self.view.set_config(config.value.model_copy(update=changes), config.version)
            except VersionConflict:
                continue
            return

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait, and if it is in vain, say what the processes have said. A condition that finds a node gone which it
        has just seen, as of a worker that is removed meanwhile, does not hold yet."""

        def holds() -> object:
            try:
                return condition()
            except NodeMissing:
                return False

        try:
            wait_until(holds, self.patience_s, what)
        except WaitedInVain as error:
            raise WaitedInVain(f"{error}\n{self.status.model_dump_json(indent=1)}\n{self.words()}") from None

    def wait_for_state(self, state: str) -> None:
        """Wait until the status says so."""
        self.wait(lambda: self.status.state == state, f"{self.config.name} to be {state}")

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers have started Spark and every task has one."""
        self.wait(lambda: len(self.ready_workers()) == count, f"{count} workers")
        self.wait(lambda: not self.status.tasks_unassigned and self.spread() <= 1, "all tasks to be placed evenly")

    def up(self) -> Self:
        """Itself, once it runs with all its workers: what comes next need not wait for that."""
        self.wait_for_workers(self.config.workers)
        self.wait_for_state("running")
        return self

    def wait_until_replaced(self, victim: str, workers: int) -> None:
        """Wait until others are at work in place of a worker that was killed, which is one of them as long as its
        generation stands."""
        self.wait(lambda: victim not in self.ready_workers(), f"{victim} to be missed")
        self.wait_for_workers(workers)

    def spread(self) -> int:
        """How many more tasks the fullest worker has than the emptiest."""
        counts = [
            len(self.view.assignments(worker, executor))
            for worker in self.ready_workers()
            for executor in self.view.worker(worker).executors
        ]
        return max(counts) - min(counts) if counts else 0

    def ready_workers(self) -> list[str]:
        """The workers that take tasks, oldest first."""
        found = []
        for name in self.view.workers():
            report = self.view.report(name)
            if report is not None and report.spark_ready and self.view.lives(name):
                found.append(name)
        return sorted(found, key=lambda name: int(name.removeprefix("worker-")))

    def containers(self) -> list[ContainerDescriptor]:
        """What runs of it now."""
        return self.cluster.launcher.containers(self.cluster.registry.hosts, self.config.name)

    def master(self) -> str:
        """Who leads, once it has somebody behind it."""
        self.wait(lambda: len([c for c in self.containers() if c.name.startswith("master-")]) == 2, "two masters")
        return self.view.placement_head().value.master

    def kill_master(self) -> None:
        """SIGKILL the leader, as its machine would."""
        leader = self.master()
        for container in self.containers():
            if container.name == leader:
                self.cluster.launcher.kill(container)

    def delivered(self) -> dict[str, Counter[tuple[str, int]]]:
        """What readers of each sink see, by sink."""
        environment = Environment(
            registry=self.cluster.registry, clock=SYSTEM_CLOCK, dataflow=self.config.name, nodes=STREAM_NODES
        )
        found: dict[str, Counter[tuple[str, int]]] = {}
        with OpenedDataflow(self.config, environment) as resources:
            count = len(self.view.tasks())
            for name, streams in resources.sink_streams(count).items():
                batches = [batch for stream in streams for batch in resources.sinks[name].committed(stream)]
                found[name] = Counter(_record(p) for batch in batches for p in batch.column("payload").to_pylist())
        return found

    def wait_until_delivered(self, *logs: str) -> None:
        """Wait until everything appended to `logs` has come out of every sink; then it is there exactly once."""
        want = self.cluster.expected(*logs)

        def all_there() -> bool:
            there = all(found.total() >= want.total() for found in self.delivered().values())
            return there or threading.Event().wait(_LOOK_S)  # a look reads everything: leave the machine to the others

        with output_awaited():
            self.wait(all_there, f"{want.total()} records")
        for sink, found in self.delivered().items():
            assert found == want, f"{sink}: {found - want} too often, {want - found} missing"

    def words(self) -> str:
        """The last words of all its processes."""
        return "\n".join(
            f"--- {c.name} {self.cluster.launcher.poll(c)}\n{tail_of_log(self.cluster.launcher.logs(c).stderr, 40)}"
            for c in self.cluster.launcher.all_containers(self.config.name)
        )


def start(cluster: Cluster, **config: Any) -> Flow:
    """Submit a dataflow."""
    flow = Flow(cluster, DataflowConfig.parse(config, source="the test"))
    submit(cluster.registry, flow.config, cluster.home)
    return flow


@contextmanager
def running_cluster(zookeeper_hosts: str, directory: Path) -> Iterator[Cluster]:
    """A cluster of its own; whatever still runs in it at the end is killed."""
    chroot = f"cluster-{uuid.uuid4().hex[:12]}"
    hosts = f"{zookeeper_hosts}/{chroot}"
    with connect(hosts, session_timeout_s=30) as registry, LocalLauncher(directory / "home") as launcher:
        LogNamespace.bind("/logs", directory / "logs", registry=registry)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            try:
                yield Cluster(registry, namespace, directory / "home", launcher)
            finally:
                _kill_all(launcher, hosts, directory / "home")
    with connect(zookeeper_hosts) as cleaner:
        try:
            cleaner.delete(f"/{chroot}", recursive=True)
        except NodeMissing:
            return


def _kill_all(launcher: LocalLauncher, hosts: str, home: Path) -> None:
    """Until nothing is left: a master may launch another one while this one is killed."""
    flows = [path.name for path in (home / "containers").glob("*")]
    while running := [container for flow in flows for container in launcher.containers(hosts, flow)]:
        for container in running:
            launcher.kill(container)


def _record(payload: bytes) -> tuple[str, int]:
    value = json.loads(payload)
    return value["log"], value["n"]
