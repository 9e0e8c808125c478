"""Processes and everything below them, on Linux: telling them apart for ever, finding them all, killing them all.

A container is a session (`setsid`) whose leader is its keeper (local/supervisor.py), and every process below it carries
the mark of the container in its environment. A process that left the session still has the mark; one that threw its
environment away still is in the session. Descent decides nothing: what a container launches as another container is
its child, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from scribengin.base.process.variables import CONTAINER_VARIABLE

_KILL_ROUNDS_MAX = 100
_STATE, _SESSION, _STARTED = 0, 3, 19  # fields of /proc/<pid>/stat, counted from behind the command's name


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one container: the pid of its `leader`, and its `mark`, which no other container ever had."""

    leader: int
    mark: str

    def pids(self) -> set[int]:
        """Those that live, without the leader.

        A pid that is still the id of a session is never given to a new process, so the session cannot be somebody
        else's unless a living process has the pid; whether that one is the leader that is meant, its token says.
        """
        return {pid for pid in psutil.pids() if pid != self.leader and self.has(pid)}

    def kill(self, pause: Callable[[], None]) -> bool:
        """SIGKILL all but the leader until nothing is left: whether that was reached. `pause` lets a moment pass.

        Again and again, because a process may fork between the look and the signal.
        """
        for _ in range(_KILL_ROUNDS_MAX):
            found = self.pids()
            if not found:
                return True
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pause()
        return False

    def has(self, pid: int) -> bool:
        """Whether this process lives and belongs to the container."""
        fields = _stat(pid)
        if fields is None or fields[_STATE] in "ZX":
            return False
        return int(fields[_SESSION]) == self.leader or _mark_of(pid) == self.mark


class Footprint:
    """The memory of a container, looked at again and again: only processes that are new since the last look are asked
    whose they are, so that a look costs little where thousands of others run."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._belongs: dict[int, bool] = {group.leader: False}

    def over(self, limit_bytes: int) -> int | None:
        """How many bytes the processes hold if that is more than the limit, else None.

        What a process holds for itself is its resident memory without mapped files, which the system can take back at
        any time. Pages that forked processes share count once for each. But one that was just forked shares all of its
        parent's, until it is another program, as everything is that Java starts: so a process counts from the second
        look on.
        """
        pids, known = psutil.pids(), self._belongs
        self._belongs = {pid: known.get(pid) or self._new(pid) for pid in pids}
        held = sum(_own_bytes(pid) for pid in pids if pid in known and self._belongs[pid])
        return held if held > limit_bytes else None

    def _new(self, pid: int) -> bool:
        return pid not in self._belongs and self._group.has(pid)


def _own_bytes(pid: int) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        memory = psutil.Process(pid).memory_info()
        return int(memory.rss - memory.shared)
    return 0


def start_token(pid: int) -> str | None:
    """What tells this process from every other that has or had its pid: the boot, and the clock tick of its start.

    None when there is no such process, or only what is left of it until its parent asks (a zombie).
    """
    fields = _stat(pid)
    if fields is None or fields[_STATE] in "ZX":
        return None
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}:{fields[_STARTED]}"


def _mark_of(pid: int) -> str:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    prefix = f"{CONTAINER_VARIABLE}=".encode()
    return next((os.fsdecode(e.removeprefix(prefix)) for e in environment.split(b"\0") if e.startswith(prefix)), "")


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
