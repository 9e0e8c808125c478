"""What the processes of a soak take: memory, processor time and open files, looked at again and again; and ZooKeeper's
own figures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from scribengin_registry.embedded import ask_server

_SESSION, _USER_TICKS, _SYSTEM_TICKS = 3, 11, 12  # fields of /proc/<pid>/stat, counted from behind the command's name
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024
SETTLED_S = 120.0
"""What a process holds in its first minutes says nothing of what it will hold: Spark starts more and more processes and
threads at first."""
JUDGED_S = 600.0
"""Of a process that lives for so long, once it has settled, it is judged whether it grows."""
GROWTH_MAX_MIB = 64.0
"""By so much the mean of a process's last third may exceed that of the third before it."""
FILES_MORE_MAX = 32
"""The same of its open files."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of one container held at a time. Memory without what files back; processor seconds so far."""

    at_s: float
    memory_mib: float
    cpu_s: float
    files: int


@dataclass(slots=True)
class Life:
    """One container (or server) from its first sample to its last. `role`: what it is, for people."""

    role: str
    samples: list[Sample] = field(default_factory=list)

    @property
    def settled(self) -> Sequence[Sample]:
        """The samples after its first seconds."""
        return [sample for sample in self.samples if sample.at_s - self.samples[0].at_s >= SETTLED_S]

    @property
    def lasted_s(self) -> float:
        """How long it was looked at."""
        return self.samples[-1].at_s - self.samples[0].at_s

    @property
    def growth_mib(self) -> float | None:
        """How much more memory it held in its last third than in the third before, on average; None of a short life."""
        return self._growth([sample.memory_mib for sample in self.settled])

    @property
    def more_files(self) -> float | None:
        """How many more files were open, in the same way."""
        return self._growth([sample.files for sample in self.settled])

    def _growth(self, held: Sequence[float]) -> float | None:
        settled = self.settled
        if not settled or settled[-1].at_s - settled[0].at_s < JUDGED_S:
            return None
        third = len(held) // 3
        return fmean(held[-third:]) - fmean(held[-2 * third : -third])

    @property
    def leaks(self) -> bool:
        """Whether it grows beyond the bounds."""
        return (self.growth_mib or 0.0) > GROWTH_MAX_MIB or (self.more_files or 0.0) > FILES_MORE_MAX


class Lives:
    """All that was looked at, by the pid of the container's keeper (or of the server)."""

    def __init__(self) -> None:
        self._lives: dict[tuple[str, int], Life] = {}

    def look(self, at_s: float, containers: Iterable[tuple[str, int]], servers: Iterable[tuple[str, int]]) -> None:
        """Take a sample of each, given as `(role, pid)`: of a container with all that is in its session."""
        sessions = _pids_by_session()
        members = [(role, pid, sessions.get(pid, [])) for role, pid in containers]
        for role, pid, pids in [*members, *((role, pid, [pid]) for role, pid in servers)]:
            found = [taken for one in pids if (taken := _taken_by(one)) is not None]
            if found:
                memory, cpu, files = (sum(column) for column in zip(*found, strict=True))
                self._lives.setdefault((role, pid), Life(role)).samples.append(Sample(at_s, memory, cpu, int(files)))

    def all(self) -> list[Life]:
        """Every life so far."""
        return list(self._lives.values())


def processes_of(session: int) -> list[int]:
    """The processes of a session, by pid."""
    return _pids_by_session().get(session, [])


def server_figures(hosts: str) -> dict[str, float]:
    """What a ZooKeeper server counts, by its own names without `zk_`; what is no number is left out. Empty when it does
    not answer."""
    port = int(hosts.rpartition(":")[2])
    found: dict[str, float] = {}
    for line in ask_server(port, "mntr").splitlines():
        name, _, value = line.partition("\t")
        with contextlib.suppress(ValueError):
            found[name.removeprefix("zk_")] = float(value)
    return found


def _pids_by_session() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                found.setdefault(int(_stat(int(entry))[_SESSION]), []).append(int(entry))
    return found


def _taken_by(pid: int) -> tuple[float, float, float] | None:
    """Memory in MiB, processor seconds, open files; None of a process that has gone."""
    try:
        fields = _stat(pid)
        held = Path(f"/proc/{pid}/status").read_text()
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    kib = sum(int(line.split()[1]) for line in held.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return kib / _KIB_PER_MIB, (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S, float(files)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
