"""The keeper of one local container: a small process that starts it, watches its memory and writes down how it ended.

It stays when the master that asked for it dies; so the limit holds and the exit code is seen without any master, and
the next one finds both. It is run as `python -m scribengin.launcher.local.supervisor DIRECTORY` in a session of its
own, and waits for a line on its standard input: whoever launched it has written `container.json` by then, or is dead
and nothing starts.

Files of the directory: `request.json` (what to run), `container.json` (its descriptor), `exit.json` (how it ended,
written once: the first word counts), `stdout.log`, `stderr.log`, `keeper.log`. It writes the logs itself (output.py):
a full disk is no trouble of who prints.

It imports as little as it can: one of it runs for every container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.launcher.local.output import Pumps
from scribengin.launcher.local.processes import Footprint, Group
from scribengin_registry import threads

REQUEST, DESCRIPTOR, EXIT = "request.json", "container.json", "exit.json"
STDOUT, STDERR, KEEPER_LOG = "stdout.log", "stderr.log", "keeper.log"
GO = b"go\n"
_MEMORY_LOOK_S = 0.5
_PAUSE_S = 0.005
_ROOM_LOOK_S = 0.5
LAST_OUTPUT_MAX_S = 5.0
"""What was printed is in the pipe by then; only who left the container with the pipe's end can still hold it open."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(directory: Path) -> None:
    """Keep one container, from its start to its end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who wants the container to end says so to the container, or kills
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stdin.buffer.readline() != GO:
        return
    request = json.loads((directory / REQUEST).read_text())
    group = Group(os.getpid(), mark_of(directory))
    try:
        process, output = _start(request, directory)
    except OSError as error:
        write_exit_when_there_is_room(directory, "exited", 127, f"could not be started: {error}")
        return
    over = watch(process, group, request["memory_mb"])
    group.kill(pause)
    code = process.wait()
    output.join(LAST_OUTPUT_MAX_S)
    if over is None:
        write_exit_when_there_is_room(directory, "exited", code, describe(code))
    else:
        write_exit_when_there_is_room(directory, "memory", code, over)


def write_exit(directory: Path, kind: str, code: int | None, reason: str) -> None:
    """Write down how the container ended, unless that has been done. The file appears whole or not at all. Raises
    OSError."""
    draft = directory / f".{EXIT}-{os.getpid()}-{threading.get_ident()}"
    try:
        draft.write_text(json.dumps({"kind": kind, "code": code, "reason": reason}))
        with contextlib.suppress(FileExistsError):  # somebody else's word was first
            os.link(draft, directory / EXIT)
    finally:
        draft.unlink(missing_ok=True)


def write_exit_when_there_is_room(directory: Path, kind: str, code: int | None, reason: str) -> None:
    """How the container ended is what its master goes by: the keeper stays until the disk takes it, or it is killed."""
    while True:
        try:
            write_exit(directory, kind, code, reason)
            return
        except FileNotFoundError:
            return  # the container's directory was deleted: nobody asks any more
        except OSError:
            threads.pause(_ROOM_LOOK_S)


def mark_of(directory: Path) -> str:
    """What the processes of the container of this directory carry in their environment."""
    return str(directory)


def describe(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def pause() -> None:
    """Let killed processes go."""
    threads.pause(_PAUSE_S)


def _start(request: dict[str, Any], directory: Path) -> tuple[subprocess.Popen[bytes], Pumps]:
    """The process, and what writes down what it prints. Raises OSError."""
    keeper, output = os.getpid(), Pumps([directory / STDOUT, directory / STDERR])
    try:
        process = subprocess.Popen(
            request["argv"],
            env={**os.environ, **request["env"], CONTAINER_VARIABLE: mark_of(directory)},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output.ends[0],
            stderr=output.ends[1],
            preexec_fn=lambda: in_the_container(keeper),  # safe: the keeper has one thread as yet
        )
    finally:
        output.start()
    return process, output


def in_the_container(keeper: int) -> None:
    """The container must not outlive its keeper: nobody would hold it to its limit, or see how it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)  # it died before the line above


def watch(process: subprocess.Popen[bytes], group: Group, memory_mb: int) -> str | None:
    """Return when the process has ended (None), or when the container holds too much memory (why it must end)."""
    footprint = Footprint(group)
    ended = select.poll()
    ended.register(os.pidfd_open(process.pid), select.POLLIN)
    while not ended.poll(_MEMORY_LOOK_S * 1000):
        held_bytes = footprint.over(memory_mb << 20)
        if held_bytes is not None:
            held_mb = held_bytes >> 20
            return f"held {held_mb} MiB of memory, and container.memory_mb is {memory_mb}: give it more, or less to do"
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
