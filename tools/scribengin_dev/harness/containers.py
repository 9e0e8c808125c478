"""Where the demo's masters and workers run: as processes of this machine, or in the containers of a YARN that the demo
starts. What the demo must do to them from outside, as an operator or a failing machine would.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from scribengin.errors import DataflowError
from scribengin.launcher.contract import tail_of_log
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.operations.lifecycle import kill_containers
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers


class DemoContainers(ABC):
    """The containers of the demo's dataflows. `launcher` is what their configs name; `files` is the path or URL of the
    directory for sinks of files, `environment` what the containers need to know beside what they inherit, `memory_mb`
    what workers need (None: as much as their configs say)."""

    memory_mb: int | None = None

    def __init__(self, launcher: str, files: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.launcher = launcher
        self.files = files
        self.environment = dict(environment)

    @abstractmethod
    def kill_leader(self, dataflow: str, leader: str) -> int:
        """Kill the process of the master `leader` with SIGKILL; its pid. Raises DataflowError if it does not run."""

    @abstractmethod
    def last_words(self, dataflow: str) -> str:
        """The ends of the outputs of a dataflow's containers."""

    @abstractmethod
    def end(self, dataflow: str) -> None:
        """Kill what still runs of a dataflow."""


class LocalContainers(DemoContainers):
    """Processes of this machine, below `home`."""

    def __init__(self, registry: str, home: Path, files: Path, launcher: LocalLauncher) -> None:
        super().__init__("local", str(files))
        self._registry = registry
        self._home = home
        self._local = launcher

    def kill_leader(self, dataflow: str, leader: str) -> int:
        found = [one for one in self._local.containers(self._registry, dataflow) if one.name == leader]
        if not found:
            raise _no_master(dataflow)
        self._local.kill(found[-1])
        return found[-1].pid

    def last_words(self, dataflow: str) -> str:
        words = []
        for container in self._local.all_containers(dataflow):
            said = self._local.log_tail(container, "stderr") or self._local.log_tail(container, "stdout")
            ended = self._local.poll(container)
            how = f"ended: {ended.reason}" if ended else "runs"
            words.append(f"--- {container.name} of {dataflow} ({how})\n{said or '(it said nothing)'}")
        return "\n".join(words)

    def end(self, dataflow: str) -> None:
        kill_containers(self._registry, dataflow, self._home)


class YarnContainers(DemoContainers):
    """Containers of NodeManagers; files are on their HDFS."""

    def __init__(
        self,
        launcher: str,
        hdfs: HdfsServers,
        yarn: YarnServers,
        environment: Mapping[str, str] = MappingProxyType({}),
        memory_mb: int | None = None,
    ) -> None:
        super().__init__(launcher, f"{hdfs.url}/demo", environment)
        self.memory_mb = memory_mb
        self._yarn = yarn

    def kill_leader(self, dataflow: str, leader: str) -> int:
        for pid in self._yarn.container_processes():
            words = _words_of(pid)
            if words[1:3] == ["-m", "scribengin.master"] and dataflow in words:
                os.kill(pid, signal.SIGKILL)
                return pid
        raise _no_master(dataflow)

    def last_words(self, dataflow: str) -> str:
        logs = self._yarn.container_outputs("stderr")
        return "\n".join(f"--- {log}\n{tail_of_log(log)}" for log in logs)

    def end(self, dataflow: str) -> None:
        self._yarn.stop()  # with all that runs in its containers; nobody else uses it


def _no_master(dataflow: str) -> DataflowError:
    return DataflowError(f"dataflow '{dataflow}' has no master to kill")


def _words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []  # it has ended meanwhile
