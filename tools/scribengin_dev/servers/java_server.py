"""What every server that runs in a JVM has: a directory, a log file, an end, and a wait until it answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import IO, Protocol

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ServerDown
from scribengin_dev.servers.host import THIS_HOST, Host
from scribengin_registry.java.process import WatchedProcess, free_port, server_port, tail_of
from scribengin_registry.java.runtime import find_java

_POLL_S = 0.05
_STOP_TIMEOUT_S = 30.0
_TOOL_TIMEOUT_S = 600.0
_SHOWN_CHARACTERS = 4000
_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.io=ALL-UNNAMED",  # or bookies cannot tell the kernel what to drop from its page cache
)
OPTIONS_VARIABLE = "SCRIBENGIN_SERVER_JAVA_OPTIONS"
"""More options for the JVM of each server and tool, with blanks between, as in `-XX:TieredStopAtLevel=1`."""
_LOG4J2 = """rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{{2}}: %m%n
"""


class ServerProcess(Protocol):
    """How a server runs: as a process of this machine, or in a container."""

    @property
    def pid(self) -> int | None:
        """Its process, or None when it has ended."""

    def stop(self, timeout_s: float) -> None:
        """End it: with SIGTERM, and with SIGKILL after `timeout_s`. Idempotent."""


class JavaServer:
    """One server process: `command` is what Java gets, `folder` where it lives, `<name>.log` in it what it says, `host`
    the machine that it runs on.

    It ends with this process, however that dies. Not thread-safe.
    """

    def __init__(self, name: str, folder: Path, command: Sequence[str], host: Host = THIS_HOST) -> None:
        self.name = name
        self.folder = folder
        self.host = host
        self._command = command
        self._process: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """What it wrote since it was last started."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start it, unless it runs; it does not answer yet."""
        if self.pid is not None:
            return
        self.stop()
        with self.log_path.open("wb") as log:
            self._process = self._launch(log)

    def await_answer(self, answers: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `answers()`. Raises ServerDown with the end of its log; the server is stopped then."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        while not answers():
            if self.pid is None or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                how = "ended at once" if self.pid is None else f"did not answer in {timeout_s:g} s"
                self.stop()
                end = tail_of(self.log_path) or "(nothing)"
                raise ServerDown(f"the server {self.name} {how}. The end of {self.log_path}:\n{end}")
            Event().wait(_POLL_S)

    def kill(self) -> None:
        """End it as a crash would, with SIGKILL; its data stays. Idempotent."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it; its data stays. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(_STOP_TIMEOUT_S)

    def _launch(self, log: IO[bytes]) -> ServerProcess:
        command = [*self.host.entering, *self._command]
        return WatchedProcess(f"scribengin-{self.name}", command, folder=self.folder, log=log)


def java_command(
    main: str, arguments: Sequence[str], *, jars: Sequence[Path], heap_mb: int, folder: Path, level: str = "WARN"
) -> list[str]:
    """How Java is called for a class of these jars. What it logs from `level` on goes to its standard error."""
    log4j = folder / f"log4j2-{level.lower()}.properties"
    log4j.write_text(_LOG4J2.format(level=level), encoding="utf-8")
    asked = os.environ.get(OPTIONS_VARIABLE, "").split()
    options = (*_OPTIONS, f"-Xmx{heap_mb}m", f"-Dlog4j2.configurationFile={log4j}", *asked)
    return [str(find_java().executable), *options, "-cp", ":".join(map(str, jars)), main, *arguments]


def run_tool(what: str, command: Sequence[str], *, folder: Path, stdin: str = "") -> str:
    """Run a tool to its end and return its standard output. Raises ServerDown with what it said when it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServerDown(f"{what} did not end within {_TOOL_TIMEOUT_S:g} s: is its server up?") from error
    if done.returncode != 0:
        raise failure_of(what, done.returncode, done.stdout + done.stderr)
    return done.stdout


def failure_of(what: str, status: int, said: str) -> ServerDown:
    """The error of a tool that failed, with the end of what it said."""
    return ServerDown(f"{what} ended with exit status {status}. It said:\n{said.strip()[-_SHOWN_CHARACTERS:]}")


def settings_text(settings: dict[str, object]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def ports_of(folder: Path, count: int) -> list[int]:
    """Ports of the loopback interface for what lives in `folder`: those that it had last time, where they are free."""
    folder.mkdir(parents=True, exist_ok=True)
    remembered = folder / "ports"
    last = [int(word) for word in remembered.read_text().split()] if remembered.is_file() else []
    ports: list[int] = []
    while len(ports) < count:
        wanted = last[len(ports)] if len(ports) < len(last) else 0
        port = (free_port(wanted) if wanted else 0) or server_port()
        if port and port not in ports:
            ports.append(port)
    remembered.write_text(" ".join(map(str, ports)))
    return ports


def listens(port: int, host: Host = THIS_HOST) -> bool:
    """Whether something answers the door at a port of a host."""
    try:
        socket.create_connection((host.address, port), timeout=1.0).close()
    except OSError:
        return False
    return True
