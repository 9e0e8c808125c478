"""A Kafka broker: one process, KRaft, the loopback interface, its data in a directory; and Kafka's own tools.

Several that are one cluster: `kafka_cluster`."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_dev.servers.java_server import JavaServer, java_command, ports_of, run_tool, settings_text
from scribengin_registry.java.process import LOOPBACK

_START_TIMEOUT_S = 120.0
_HEAP_MB = 1024
_TOOL_HEAP_MB = 512
_META, _BOOTSTRAP = "meta.properties", "bootstrap.checkpoint"
_formatted: dict[str, bytes] = {}
"""What the first records of a new broker are, by the image that it runs in."""
_formatting = threading.Lock()
# ApiVersions, version 0, from nobody: every broker answers it, and only once it serves requests.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


class KafkaServer:
    """A broker with its data in `folder`. Started again there, it has its port (if that is free) and its data.

    `settings` override those of server.properties, as in {"log.flush.interval.messages": 1}. With an `image`, it runs
    in a container (see `containers`). Not thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        settings: Mapping[str, object] | None = None,
        image: str = "",
        heap_mb: int = _HEAP_MB,
        cluster_id: str = "",
    ) -> None:
        """`cluster_id`: what it is a broker of, an id of its own for "" (see `new_cluster_id`)."""
        self.folder = Path(folder).absolute()
        self._image = image
        self._heap_mb = heap_mb
        self._cluster_id = cluster_id or new_cluster_id()
        self._settings = dict(settings or {})
        self._jars: list[Path] = []
        self._server: JavaServer | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        """`host:port`, as clients want it. Known once it was started."""
        assert self._port, "the broker was not started yet"
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The broker's process, or None when it does not run."""
        return self._server.pid if self._server is not None else None

    @property
    def jars(self) -> list[Path]:
        """Its class path: Kafka's clients are in it, too. Raises as `jars_of`."""
        self._jars = self._jars or jars_of("kafka")
        return self._jars

    def start(self) -> KafkaServer:
        """Start it and wait until it answers. Raises ArtifactUnavailable, ServerDown, JavaMissing."""
        self.launch()
        self.await_answer()
        return self

    def launch(self) -> None:
        """Start it, unless it runs; it does not answer yet. Raises as `start`."""
        if self.pid is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port, controller = ports_of(self.folder, 2)
        properties = self.folder / "server.properties"
        properties.write_text(settings_text(self._properties(controller)), encoding="utf-8")
        if not (self.folder / "data" / _META).is_file():
            self._format(properties)
        command = self._command("kafka.Kafka", [str(properties)], self._heap_mb)
        if self._image:
            from scribengin_dev.servers.containers import ContainerServer

            self._server = ContainerServer("kafka", self.folder, command, image=self._image)
        else:
            self._server = JavaServer("kafka", self.folder, command)
        self._server.start()

    def await_answer(self) -> None:
        """Wait until it answers, once it was launched. Raises ServerDown."""
        assert self._server is not None, "the broker was not launched yet"
        self._server.await_answer(self._answers, _START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop it; its data stays. Idempotent."""
        if self._server is not None:
            self._server.stop()

    def kill(self) -> None:
        """Kill it with SIGKILL. Idempotent."""
        if self._server is not None:
            self._server.kill()

    def create_topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic. Raises ServerDown when the broker refuses."""
        options = [option for key, value in (settings or {}).items() for option in ("--config", f"{key}={value}")]
        words = ["--create", "--topic", name, "--partitions", str(partitions), *options]
        self.run("org.apache.kafka.tools.TopicCommand", words)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises ServerDown."""
        self.run("org.apache.kafka.tools.TopicCommand", ["--delete", "--topic", name])

    def run(self, tool: str, arguments: Sequence[str], *, stdin: str = "") -> str:
        """Run one of Kafka's tools, by its class, on this broker; what it printed. Raises ServerDown."""
        words = ["--bootstrap-server", self.bootstrap, *arguments]
        return self._run(tool, words, stdin)

    def __enter__(self) -> KafkaServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _properties(self, controller: int) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "offsets.topic.num.partitions": 1,  # 50 take a while to create, and tests have few groups
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            **self._settings,
        }

    def _format(self, properties: Path) -> None:
        """By Kafka's own tool, once in a process. A JVM starts for it, and what it writes is the same of every broker,
        but for the names of things."""
        data = self.folder / "data"
        with _formatting:
            if self._image not in _formatted:
                words = ["format", "--cluster-id", self._cluster_id, "--config", str(properties)]
                self._run("kafka.tools.StorageTool", words)
                _formatted[self._image] = (data / _BOOTSTRAP).read_bytes()
                return
        node = self._properties(0)["node.id"]
        names = {"version": 1, "cluster.id": self._cluster_id, "node.id": node, "directory.id": new_cluster_id()}
        data.mkdir(exist_ok=True)
        (data / _BOOTSTRAP).write_bytes(_formatted[self._image])
        (data / _META).write_text(settings_text(names), encoding="utf-8")

    def _run(self, tool: str, words: Sequence[str], stdin: str = "") -> str:
        name = tool.rpartition(".")[2]
        command = self._command(tool, words, _TOOL_HEAP_MB)
        if self._image:
            from scribengin_dev.servers.containers import run_tool_in_container

            return run_tool_in_container(name, command, image=self._image, folder=self.folder, stdin=stdin)
        return run_tool(name, command, folder=self.folder, stdin=stdin)

    def _command(self, main: str, words: Sequence[str], heap_mb: int) -> list[str]:
        if self._image:
            return ["kafka-run-class.sh", main, *words]
        return java_command(main, words, jars=self.jars, heap_mb=heap_mb, folder=self.folder)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=1.0) as connection:
                connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
                return len(connection.recv(10)) == 10
        except OSError:
            return False


def new_cluster_id() -> str:
    """A random one, as Kafka writes them."""
    first, *rest = uuid.uuid4().bytes
    # Without the first bit it never begins with "-", which Kafka's tool would take for an option.
    return urlsafe_b64encode(bytes((first & 0x7F, *rest))).decode().rstrip("=")
