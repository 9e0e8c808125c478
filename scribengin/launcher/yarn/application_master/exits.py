"""How YARN says that a container ended, in the words of the launcher contract. Pure."""

from __future__ import annotations

import re
import signal

from scribengin.launcher.contract import ContainerExit
from scribengin.launcher.local.supervisor import describe
from scribengin.launcher.yarn.application_master.container import OVER_MEMORY

ABORTED, DISKS_FAILED, PREEMPTED, VIRTUAL_MEMORY, PHYSICAL_MEMORY = -100, -101, -102, -103, -104
BY_MASTER, AFTER_APPLICATION, BY_RESOURCE_MANAGER = -105, -106, -107
"""Of `org.apache.hadoop.yarn.api.records.ContainerExitStatus`."""

_SIGNALLED = 128
_WORDS_MAX = 500
_USED = r"(\d\S* ?\S*) of (\d\S* ?\S*) {} memory used"
_PHYSICAL, _VIRTUAL = (re.compile(_USED.format(kind), re.IGNORECASE) for kind in ("physical", "virtual"))
_STDERR = re.compile(r"Last \d+ bytes of stderr ?:")
# A NodeManager may have more to say behind what it quotes: that its own cleaning up found no pid file any more.
_CLEANING_UP = re.compile(r"^\[[^\]]*\]Exception when trying to cleanup container ", re.MULTILINE)


def exit_of(status: int, diagnostics: str, memory_mb: int, *, killing: bool) -> ContainerExit:
    """What `status` and `diagnostics` mean for a container of `memory_mb` that we wanted to end (`killing`) or not."""
    if status in (PHYSICAL_MEMORY, VIRTUAL_MEMORY):
        over = _over_physical if status == PHYSICAL_MEMORY else _over_virtual
        return ContainerExit("memory", -signal.SIGKILL, over(diagnostics, memory_mb))
    if status == OVER_MEMORY and "container.memory_mb" in last_words(diagnostics):
        return ContainerExit("memory", -signal.SIGKILL, last_words(diagnostics))
    if status == PREEMPTED:
        return ContainerExit("killed", None, "YARN took it back for another application (preempted)")
    if status in (BY_MASTER, AFTER_APPLICATION, BY_RESOURCE_MANAGER):
        by = "the launcher" if status == BY_MASTER else "YARN: its application ended, or its first master"
        return ContainerExit("killed", -signal.SIGKILL, f"killed by {by}")
    if status == ABORTED and killing and "*lost*" not in diagnostics:
        return ContainerExit("killed", None, "killed by the launcher before it ran")
    if status < 0:
        return ContainerExit("lost", None, _words(diagnostics) or f"YARN lost it (exit status {status})")
    code = _code(status)
    said = last_words(diagnostics) if code else ""
    return ContainerExit("exited", code, f"{describe(code)}: {said}" if said else describe(code))


def _over_physical(diagnostics: str, memory_mb: int) -> str:
    used = _PHYSICAL.search(diagnostics)
    held = f"it held {used[1]} of the {used[2]} that" if used else "it held more memory than"
    return (
        f"ended by YARN: {held} it may, and container.memory_mb is {memory_mb}: give it more, or less to do; "
        "YARN counts the files that it has mapped"
    )


def _over_virtual(diagnostics: str, memory_mb: int) -> str:
    used = _VIRTUAL.search(diagnostics)
    had = f"it had {used[1]} of the {used[2]} of virtual memory that" if used else "it had more virtual memory than"
    return (
        f"ended by YARN: {had} it may, and container.memory_mb is {memory_mb}: have nodes look at "
        "physical memory alone (yarn.nodemanager.vmem-check-enabled: false), or give it more"
    )


def last_words(diagnostics: str) -> str:
    """The last line of what the container wrote to stderr, which YARN puts into the diagnostics of a failure."""
    parts = _STDERR.split(diagnostics)
    stderr = _CLEANING_UP.split(parts[-1], maxsplit=1)[0] if len(parts) > 1 else ""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:_WORDS_MAX] if lines else ""


def _code(status: int) -> int:
    """As Python has it: a shell says 128 + n for signal n."""
    number = status - _SIGNALLED
    return -number if 0 < number < signal.NSIG else status


def _words(diagnostics: str) -> str:
    return " ".join(diagnostics.split())[:_WORDS_MAX]
