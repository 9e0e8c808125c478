"""A real ZooKeeper server as a child process, from the jars inside PySpark: the registry where there is no ensemble.

It ends with its owner, however that dies (see `process`). One server at a time uses a data directory: its JVM holds a
lock on its own log file for as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import IO

from scribengin_registry.client.deadline import Deadline
from scribengin_registry.errors import NO_ROOM, ServerFailed
from scribengin_registry.java.jars import pyspark_jars
from scribengin_registry.java.process import LOOPBACK, WatchedProcess, free_port, server_port, tail_of
from scribengin_registry.java.runtime import JavaRuntime, find_java

SERVER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
"""What Java is told to run."""
SERVER_JARS = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "commons-io-*",
    "metrics-core-*",
    "snappy-java-*",
    "log4j-api-*",  # from here on: so that what the server has to say reaches its log file
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
)
"""What a server needs of the jars inside PySpark."""

_JVM_OPTIONS = (
    "-Xmx1536m",  # it keeps its last 500 changes, of up to 1 MiB, each of them twice: no setting makes it fewer
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dlog4j2.level=WARN",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Djava.net.preferIPv4Stack=true",
)
_MARK = "maxClientCnxns"
_PORTS_TRIED_MAX = 5
_POLL_S = 0.02
_STOP_TIMEOUT_S = 10.0
_FULL = tuple(map(os.strerror, NO_ROOM))
_FULL_BYTES = 1 << 20
_LIVES_S = 5.0
"""A server that answers for so long does not end with an owner that was killed."""


class EmbeddedZooKeeper:
    """A ZooKeeper server with its data in `data_dir`, on the loopback interface only.

    `port=0` takes the port that this directory had last time, if it is free, else any free one; of a directory that has
    had none, `usual_port` first. Any other port is taken or refused. `tick_ms` is the grain of time: sessions last from
    one tick to two minutes. Not thread-safe.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        usual_port: int = 0,
        java: JavaRuntime | None = None,
        tick_ms: int = 500,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._wanted_port = port
        self._usual_port = usual_port
        self._java = java
        self._tick_ms = tick_ms
        self._start_timeout_s = start_timeout_s
        self._process: WatchedProcess | None = None
        self._port = 0
        # A limit that no client ever meets, and by which our server can be told from somebody else's on the same port.
        self._mark = 1_000_000 + secrets.randbelow(1_000_000_000)

    @property
    def hosts(self) -> str:
        """`host:port`, as clients want it. Known once the server was started."""
        if not self._port:
            raise ServerFailed(f"the server of {self.data_dir} was not started yet: call start()")
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """What the server wrote to its output since it was last started."""
        return self.data_dir / "zookeeper.log"

    def start(self) -> EmbeddedZooKeeper:
        """Start it and wait until it answers. Raises ServerFailed with the end of its log, JavaMissing."""
        if self.pid is not None:
            return self
        self.stop()
        try:
            self._start(self._java or find_java(), Deadline(self._start_timeout_s))
        except OSError as error:
            self.stop()
            if error.errno in NO_ROOM:
                raise self._has_no_room(os.strerror(error.errno)) from error
            raise ServerFailed(
                f"the embedded ZooKeeper cannot use {self.data_dir} ({error}): check the path"
            ) from error
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, java: JavaRuntime, deadline: Deadline) -> None:
        classpath = ":".join(map(str, pyspark_jars(SERVER_JARS, ServerFailed)))
        for _ in range(_PORTS_TRIED_MAX):
            self._port = self._choose_port()
            self._launch(java, classpath, deadline)
            if self._await_answer(deadline):
                (self.data_dir / "port").write_text(str(self._port))
                return
            end, has_ended = tail_of(self.log_path), self.pid is None
            self.stop()
            if has_ended and (full := self._why_full()):
                raise self._has_no_room(full)
            # A free port may be taken by somebody else before the server gets there: only then is another try worth it.
            if "BindException: Permission denied" in end:
                raise ServerFailed(f"this user may not open port {self._port} of this machine: name one from 1024 on")
            if "BindException: Address already in use" not in end:
                break
            if self._wanted_port:
                raise ServerFailed(f"port {self._port} of this machine is taken: free it, or name another one")
        raise ServerFailed(
            f"the embedded ZooKeeper in {self.data_dir} did not start on port {self._port}: "
            f"{self._ways_out(has_ended=has_ended)}. The end of {self.log_path}:\n{end or '(nothing)'}"
        )

    def _why_full(self) -> str:
        """Why the disk takes no more, by what the server said or, where its log took that no more, by what is free."""
        said = self.log_path.read_text(errors="replace")
        free = shutil.disk_usage(self.data_dir).free
        return next((why for why in _FULL if why in said), f"{free:,} bytes are free" if free < _FULL_BYTES else "")

    def _has_no_room(self, why: str) -> ServerFailed:
        return ServerFailed(
            f"the embedded ZooKeeper cannot start, for the disk of {self.data_dir} is full ({why}): make room there, "
            "then start it again; it goes on with all that was written"
        )

    def _ways_out(self, *, has_ended: bool) -> str:
        if not has_ended:
            return "free that port, or give it more time"
        return (
            f"it ended, and says why; if its data is damaged, move {self.data_dir}/data away, start it again, and "
            "bring a backup back with `scribengin registry restore`"
        )

    def stop(self) -> None:
        """Stop it; its data stays. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(_STOP_TIMEOUT_S)

    def __enter__(self) -> EmbeddedZooKeeper:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_port(self) -> int:
        if self._wanted_port:
            return self._wanted_port
        try:
            first = int((self.data_dir / "port").read_text())
        except (FileNotFoundError, ValueError):
            first = self._usual_port
        return (free_port(first) if first else 0) or server_port()

    def _launch(self, java: JavaRuntime, classpath: str, deadline: Deadline) -> None:
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked_log(deadline) as log:
            (self.data_dir / "zoo.cfg").write_text(self._config())
            command = [str(java.executable), *_JVM_OPTIONS, "-cp", classpath, SERVER_CLASS, "./zoo.cfg"]
            # What its configuration names is relative to the directory, for that file is not in UTF-8.
            self._process = WatchedProcess("scribengin-zookeeper", command, folder=self.data_dir, log=log)

    def _locked_log(self, deadline: Deadline) -> IO[bytes]:
        """The log file, empty and locked. The lock belongs to whoever inherits the open file: the JVM alone."""
        log = self.log_path.open("ab")
        lives = Deadline(_LIVES_S)
        while True:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not self._is_served():
                    lives = Deadline(_LIVES_S)
                if deadline.passed or lives.passed:
                    log.close()
                    raise ServerFailed(
                        f"another embedded ZooKeeper uses {self.data_dir}: stop that one, or use another directory"
                    ) from None
                deadline.pause(_POLL_S)  # the server of an owner that was killed may still be dying
                continue
            log.truncate(0)
            return log

    def _is_served(self) -> bool:
        """Whether the server that was started last in this directory answers."""
        try:
            port = int((self.data_dir / "port").read_text())
            config = (self.data_dir / "zoo.cfg").read_text()
        except (OSError, ValueError):
            return False
        return any(_is_marked(port, line) for line in config.splitlines() if line.startswith(_MARK))

    def _config(self) -> str:
        settings: dict[str, object] = {
            "dataDir": "./data",
            "clientPort": self._port,
            "clientPortAddress": LOOPBACK,
            "tickTime": self._tick_ms,
            "minSessionTimeout": self._tick_ms,
            "maxSessionTimeout": 120_000,
            _MARK: self._mark,  # the usual 60 an address are too few where all are on one machine
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "conf,mntr,ruok,srvr",
            "preAllocSize": 1024,  # KiB; the default allocates 64 MiB for every new log file
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _await_answer(self, deadline: Deadline) -> bool:
        """Whether the server came to answer; False when it died, or time ran out."""
        assert self._process is not None
        ours = f"{_MARK}={self._mark}"
        while not deadline.passed:
            if self._process.pid is None:
                return False
            if _is_marked(self._port, ours):
                return True
            deadline.pause(_POLL_S)
        return False


def _is_marked(port: int, mark: str) -> bool:
    """Whether the server with that line in its configuration answers there, and not somebody else's."""
    return mark in ask_server(port, "conf").splitlines()


def ask_server(port: int, word: str, address: str = LOOPBACK) -> str:
    """A server's answer to one of its four-letter words, "" when there is none."""
    try:
        with socket.create_connection((address, port), timeout=1.0) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    except OSError:
        return ""
