"""The chain that is soaked, from logs over logs into files, and where it runs: a ZooKeeper of its own behind a proxy
that can cut it off, and processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import DEFAULT_NAMESPACE, LogNamespace
from scribengin.operations.chain.config import ChainConfig, full_name
from scribengin.operations.lifecycle import is_running, kill_containers, masters
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin_dev.harness.installation import registry_user
from scribengin_registry.contract import Registry
from scribengin_registry.election import Election
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NodeMissing
from scribengin_registry.opening import connect

CHAIN = "soak"
KEYS = ("first", "last")
"""The dataflows, in the order in which records flow; their number is that of the schedule's acts."""
STREAMS = 4
LOGS = tuple(f"in/{number}" for number in range(STREAMS))
SESSION_TIMEOUT_S = 8.0
_NAMESPACE = DEFAULT_NAMESPACE
_SESSION_OF_OURS_S = 60.0


def chain_config(files: Path) -> ChainConfig:
    """Two dataflows: `in/*` to `mid/*`, a log each stream, and from there into files."""
    common = {
        "sql": "SELECT payload FROM src",
        "round": {"records_max": 1000},
        "session_timeout_s": SESSION_TIMEOUT_S,
        "tasks": STREAMS,
    }
    ends = (
        ("in/*", {"kind": "log", "log": "mid"}),
        ("mid/*", {"kind": "hdfs", "path": str(files), "merge_age_s": 5.0}),
    )
    flows = {
        key: {
            "name": full_name(CHAIN, key),
            "sources": {"src": {"kind": "log", "logs": logs}},
            "sinks": {"out": sink},
            **common,
        }
        for key, (logs, sink) in zip(KEYS, ends, strict=True)
    }
    between = {"in": {"streams": STREAMS}, "mid": {"streams": STREAMS}}
    return ChainConfig.parse({"name": CHAIN, "logs": between, "dataflows": flows}, source="the soak")


@dataclass(frozen=True, slots=True)
class SoakPlace:
    """Where the chain runs. `registry` is for looking and is never cut off; all that is launched has `cut_off`, which
    goes through the `proxy`."""

    server: EmbeddedZooKeeper
    proxy: ChaosProxy
    registry: Registry
    cut_off: Registry
    namespace: LogNamespace
    launcher: LocalLauncher
    home: Path

    def flows(self) -> list[SoakFlow]:
        """The dataflows of the chain."""
        return [SoakFlow(self, full_name(CHAIN, key)) for key in KEYS]

    def end_processes(self) -> None:
        """Kill everything that still runs of the chain."""
        for key in KEYS:
            kill_containers(self.cut_off.hosts, full_name(CHAIN, key), self.home)

    def last_words(self) -> str:
        """The ends of the outputs of what ran last."""
        words = []
        for key in KEYS:
            for container in self.launcher.all_containers(full_name(CHAIN, key))[-4:]:
                ended = self.launcher.poll(container)
                said = self.launcher.log_tail(container, "stderr")
                words.append(f"--- {container.name} of {key} ({f'ended: {ended.reason}' if ended else 'runs'})\n{said}")
        return "\n".join(words)


@dataclass(frozen=True, slots=True)
class SoakFlow:
    """One dataflow of the chain, as its operator and its machine see it."""

    place: SoakPlace
    name: str

    @property
    def view(self) -> DataflowView:
        """It as it stands in the registry, whatever is cut off."""
        return DataflowView(self.place.registry, self.name)

    def ready_workers(self) -> list[str]:
        """The workers that live and take tasks, by name."""
        found = []
        for name in self.view.workers():
            report = self.view.report(name)
            if report is not None and report.spark_ready and not report.leaving and self.view.lives(name):
                found.append(name)
        return sorted(found)

    def containers(self) -> list[ContainerDescriptor]:
        """What runs of it now."""
        return self.place.launcher.containers(self.place.cut_off.hosts, self.name)

    def leader(self) -> str | None:
        """The master that leads."""
        return Election(self.place.registry, self.view.paths.master, "soak").leader()

    def container(self, name: str) -> ContainerDescriptor | None:
        """The container of that name, if it runs."""
        return next((one for one in self.containers() if one.name == name), None)

    def is_whole(self) -> bool:
        """Whether all that its config asks for is there: masters, workers of the config in force, every task at work,
        and nothing else."""
        view = self.view
        try:
            status, accepted, config = view.status(), view.accepted(), view.config_in_force().value
            ready = self.ready_workers()
            fresh = all(view.worker(name).config_version >= accepted.workers_since for name in ready)
            containers = [container.name for container in self.containers()]
            return (
                is_running(status)
                and status.config_error is None
                and status.config_version == accepted.version == self.place.registry.get(view.paths.config).version
                and status.tasks_total == config.tasks
                and len(ready) == config.workers
                and fresh
                and len(containers) == config.workers + 2
                and masters(view) == 2
            )
        except NodeMissing:
            return False  # a worker went between two looks


@contextmanager
def soak_place(directory: Path) -> Iterator[SoakPlace]:
    """Start everything below `directory`; at the end nothing of it runs any more. Raises JavaMissing, ServerFailed."""
    home = directory / "home"
    with EmbeddedZooKeeper(directory / "zookeeper") as server, ExitStack() as opened:
        opened.enter_context(registry_user(directory / "credentials"))
        proxy = opened.enter_context(ChaosProxy(server.hosts))
        registry = opened.enter_context(connect(server.hosts, session_timeout_s=_SESSION_OF_OURS_S))
        cut_off = opened.enter_context(connect(proxy.address, session_timeout_s=_SESSION_OF_OURS_S))
        LogNamespace.bind(_NAMESPACE, directory / "logs", registry=registry)
        namespace = opened.enter_context(LogNamespace.open(_NAMESPACE, registry=registry))
        launcher = opened.enter_context(LocalLauncher(home))
        place = SoakPlace(server, proxy, registry, cut_off, namespace, launcher, home)
        opened.callback(place.end_processes)
        yield place
