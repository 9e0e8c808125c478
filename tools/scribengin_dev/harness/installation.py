"""Everything the demo and the benchmarks run on: an embedded ZooKeeper, a log namespace on the local disk, and
dataflows as processes or on a YARN of their own. What was started here is stopped at the end, by its own identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Literal

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.jvm import CONF_VARIABLE
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import DataflowState, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowError
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import DEFAULT_NAMESPACE, LogNamespace
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.submit import submit_chain
from scribengin.operations.lifecycle import set_desired_state
from scribengin.operations.submit.submit import submit
from scribengin_dev.harness.containers import DemoContainers, LocalContainers, YarnContainers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.machines import Machines
from scribengin_registry.contract import Registry
from scribengin_registry.credentials import own_credentials
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import AUTH_VARIABLE, connect

NAMESPACE = DEFAULT_NAMESPACE
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation of its own. `store` is where logs are, `home` where containers and packages go, and `machines`
    are those that it is spread over."""

    registry: Registry
    namespace: LogNamespace
    store: str
    home: Path
    containers: DemoContainers
    clock: Clock
    machines: Machines | None = None
    _submitted: list[str] = field(default_factory=list)

    def submit(self, config: DataflowConfig) -> DataflowView:
        """Start a dataflow. Raises what `submit` raises."""
        self._submitted.append(config.name)  # first: what a submit leaves behind that fails half way is cleared, too
        submit(self.registry, config, self.home)
        return DataflowView(self.registry, config.name)

    def submit_chain(self, chain: ChainConfig) -> None:
        """Start the dataflows of a chain. Raises what `submit_chain` raises."""
        self._submitted.extend(flow.name for flow in chain.dataflows.values())
        submit_chain(self.registry, chain, self.home)

    def desire(self, dataflow: str, state: Literal["running", "paused", "stopped"]) -> None:
        """Ask a dataflow's master for a state."""
        set_desired_state(DataflowView(self.registry, dataflow), state)

    def await_state(self, dataflow: str, *states: DataflowState, timeout_s: float) -> DataflowStatus:
        """Wait until the dataflow is in one of `states`. Raises DataflowError when it fails, or does not get there."""
        what = f"{dataflow} to be {' or '.join(states)}"
        self.wait_until(lambda: self.check(dataflow).state in states, timeout_s, what)
        return self.check(dataflow)

    def check(self, dataflow: str) -> DataflowStatus:
        """The dataflow's status. Raises DataflowError if it has failed, with its error."""
        status = DataflowView(self.registry, dataflow).status()
        if status.state in ("failed", "killed"):
            raise DataflowError(f"dataflow '{dataflow}' is {status.state}: {status.error}\n{self.last_words(dataflow)}")
        return status

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Look until `condition` holds. Raises DataflowError, naming `what`, after `timeout_s`."""
        deadline_s = self.clock.monotonic_s() + timeout_s
        while not condition():
            if self.clock.monotonic_s() > deadline_s:
                words = "\n".join(self.last_words(dataflow) for dataflow in self._submitted)
                raise DataflowError(f"waited {timeout_s:g} s in vain for {what}\n{words}")
            Event().wait(_LOOK_S)

    def last_words(self, dataflow: str) -> str:
        """The ends of the logs of all containers of a dataflow."""
        return self.containers.last_words(dataflow)

    def end_processes(self) -> None:
        """Kill every container that still runs."""
        for dataflow in self._submitted:
            self.containers.end(dataflow)


@contextmanager
def embedded_place(
    directory: Path, clock: Clock = SYSTEM_CLOCK, launcher: str = "local", say: Callable[[str], None] = lambda _: None
) -> Iterator[Installation]:
    """Start everything below `directory`, and stop it at the end. `say` hears what takes a while.

    Raises JavaMissing, ServerFailed, ServerDown, ArtifactUnavailable.
    """
    home, store = directory / "home", directory / "logs"
    with ExitStack() as opened:
        server = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        opened.enter_context(registry_user(directory / "credentials"))
        registry = opened.enter_context(connect(server.hosts))
        LogNamespace.bind(NAMESPACE, store, registry=registry)
        namespace = opened.enter_context(LogNamespace.open(NAMESPACE, registry=registry))
        containers: DemoContainers
        if launcher == "local":
            local = opened.enter_context(LocalLauncher(home))
            containers = LocalContainers(registry.hosts, home, directory / "files", local)
        else:
            containers = opened.enter_context(_on_yarn(directory, launcher, say))
        place = Installation(registry, namespace, str(store), home, containers, clock)
        opened.callback(place.end_processes)
        yield place


@contextmanager
def registry_user(credentials: Path, *, on_machines: bool = False) -> Iterator[None]:
    """Make this process, and all that it launches, the registry's user: the nodes that they make are closed to all
    others of this machine. On machines nobody else has that file."""
    before = os.environ.get(AUTH_VARIABLE)
    reference = own_credentials(credentials)
    os.environ[AUTH_VARIABLE] = credentials.read_text(encoding="ascii").strip() if on_machines else reference
    try:
        yield
    finally:
        del os.environ[AUTH_VARIABLE]
        if before is not None:
            os.environ[AUTH_VARIABLE] = before


@contextmanager
def _on_yarn(directory: Path, launcher: str, say: Callable[[str], None]) -> Iterator[DemoContainers]:
    """HDFS and YARN with two nodes; this process, and those that it starts, find them where Hadoop's clients look."""
    say("starting HDFS (its jars are fetched the first time: 57 MB)")
    with HdfsServers(directory / "hdfs") as hdfs:
        say(f"HDFS at {hdfs.url}; starting YARN with two nodes")
        with YarnServers(directory / "yarn", hdfs=hdfs) as yarn:
            say(f"YARN at {yarn.web_url}, HADOOP_CONF_DIR={yarn.conf_directory}")
            os.environ[CONF_VARIABLE] = str(yarn.conf_directory)
            yield YarnContainers(launcher, hdfs, yarn)
