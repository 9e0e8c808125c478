"""A server as a child process that ends with its owner, however that dies.

The process begins as a shell that leaves a watcher behind and then becomes the server: the watcher reads a pipe whose
other end only the owner holds, and kills the server when that closes. (prctl's PR_SET_PDEATHSIG works on Linux only,
and fires already when the *thread* that started the server ends.)
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

LOOPBACK = "127.0.0.1"
_WATCHED_EXEC = """
exec 3<&0
(read -r _ <&3 || kill -9 $$) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""
_LOG_TAIL_BYTES = 4000
_SERVER_PORTS = range(12_000, 32_000)
_SHARES = 16


class WatchedProcess:
    """One run of a server. `name` is what the shell is called until it becomes the server. Not thread-safe."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED_EXEC, name, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # or a JVM could not even spell the name of its directory
            start_new_session=True,  # Ctrl-C is for the owner, which stops the server last
        )

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it has ended."""
        return self._process.pid if self._process.poll() is None else None

    def stop(self, timeout_s: float) -> None:
        """End it: with SIGTERM, and with SIGKILL after `timeout_s`. Idempotent."""
        self._process.terminate()
        self._dismiss_watcher()  # before the process is reaped: its number may be somebody else's afterwards
        wait_or_kill(self._process, timeout_s)

    def _dismiss_watcher(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.closed:
            return
        try:
            pipe.write(b"\n")
            pipe.close()
        except BrokenPipeError:
            pass  # the watcher has gone already


def wait_or_kill(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait for the end of a process that was asked to end; after `timeout_s` it is killed."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port(wanted: int = 0) -> int:
    """`wanted` on the loopback interface, or any port for 0, if it can be had just now, else 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted))
        except (OSError, OverflowError):  # the latter: there is no such port
            return 0
        return int(probe.getsockname()[1])


def server_port() -> int:
    """A port of the loopback interface for a server, free just now: one below those that systems lend to clients, who
    would take it while the server starts, or starts again. Processes side by side choose among different ones, but for
    one pair in sixteen, because between a choice and the server's own bind a JVM starts."""
    ports = _SERVER_PORTS[os.getpid() % _SHARES :: _SHARES]
    while True:
        if port := free_port(secrets.choice(ports)):
            return port


def tail_of(log: Path) -> str:
    """The end of what a server wrote, for an error message."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
