"""The daemons of a system of Hadoop's, started, asked and stopped together: what HDFS and YARN have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_dev.servers.hadoop.hadoop import run_client
from scribengin_dev.servers.java_server import JavaServer

_START_TIMEOUT_S = 240.0


class HadoopDaemons(ABC):
    """A daemon that leads and its nodes, with their configuration and data in `folder`. Not thread-safe."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self._ports: list[int] = []
        self._leader: JavaServer | None = None
        self._nodes: list[JavaServer] = []

    @property
    def conf_directory(self) -> Path:
        """What clients have as HADOOP_CONF_DIR: core-site.xml, the site of this system, and of what it stands on."""
        return self.folder / "conf"

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by name: `namenode`, `nodemanager-0` and so on."""
        return {server.name: server.pid for server in self._servers() if server.pid is not None}

    def start(self, nodes: int | None = None) -> Self:
        """Start what does not run, and wait until it can be used: of its nodes the first `nodes` only, or all. What it
        stands on must run. Raises ArtifactUnavailable, ServerDown, JavaMissing."""
        if self._leader is None:
            self._prepare()
        with ExitStack() as failed:
            failed.callback(self.stop)
            for server in self._servers()[: None if nodes is None else 1 + nodes]:
                server.start()
            self.await_ready()
            failed.pop_all()
        return self

    def await_ready(self) -> None:
        """Wait until all nodes that run are in use, and the system serves its clients. Raises ServerDown."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_TIMEOUT_S
        for server in self._servers():
            if server.pid is not None:
                server.await_answer(self._readiness(server), max(1.0, deadline_s - SYSTEM_CLOCK.monotonic_s()))

    def stop(self) -> None:
        """Stop them; their data stays. Idempotent."""
        for server in reversed(self._servers()):
            server.stop()

    def run(self, tool: str, arguments: Sequence[str]) -> str:
        """Run one of Hadoop's tools, by its class, on these servers; what it printed. Raises ServerDown."""
        return run_client(tool, arguments, self.folder, self.conf_directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _prepare(self) -> None:
        """Choose ports, configure all, and make `_leader` and `_nodes`."""

    @abstractmethod
    def _readiness(self, server: JavaServer) -> Callable[[], bool]:
        """The question whether one of them does its work."""

    def _servers(self) -> list[JavaServer]:
        return [self._leader, *self._nodes] if self._leader is not None else []

    def _kill(self, number: int) -> None:
        self._nodes[number].kill()

    def _start_again(self, number: int) -> None:
        self._nodes[number].start()
        self.await_ready()
