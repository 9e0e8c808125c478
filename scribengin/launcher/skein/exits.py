"""How an instance of a service ended, in the words of the launcher contract. Pure.

Skein tells success from failure and from its own killing; the exit code is what the worker's script wrote down. Why
YARN has ended a worker stands in skein's message about it: what it held of memory, cut out of what YARN said, or a
sentence of skein's; else YARN's own words. To the worker it was a signal like any other.
"""

from __future__ import annotations

import re
import signal

from scribengin.launcher.contract import ContainerExit
from scribengin.launcher.skein.client import Instance
from scribengin.launcher.yarn.application_master.exits import PHYSICAL_MEMORY, PREEMPTED, VIRTUAL_MEMORY, exit_of

_BY_SIGNAL = 128  # a shell's exit code for a program that a signal has ended is that much more
_OF_A_KILL = (_BY_SIGNAL + signal.SIGTERM, _BY_SIGNAL + signal.SIGKILL)
"""What the script writes down of a program that YARN ends."""
_BY_YARN = {
    VIRTUAL_MEMORY: re.compile(r"virtual memory used"),
    PHYSICAL_MEMORY: re.compile(r"physical memory used|killed by YARN for exceeding memory limits"),
    PREEMPTED: re.compile(r"preempted by scheduler"),
}
"""What skein says of a worker that YARN has ended, by why."""


def exit_of_instance(
    instance: Instance | None, code: bytes, last_word: str, memory_mb: int, *, killing: bool = False
) -> ContainerExit:
    """`instance` as skein knows it, None when it does not; `code` and `last_word` of stderr as its node has them.
    `killing`: we wanted it to end. Skein takes one for failed whose end it hears of before it has noted its killing."""
    if instance is None:
        return ContainerExit("lost", None, "skein does not know it any more: its application master has ended")
    if instance.state == "KILLED":
        return ContainerExit("killed", -signal.SIGKILL, "killed by the launcher")
    why = next((why for why, words in _BY_YARN.items() if words.search(instance.message)), None)
    if why is not None and instance.state == "FAILED":
        return exit_of(why, instance.message, memory_mb, killing=killing)
    status = int(code) if code.strip().isdigit() else None
    if status is None and instance.state == "SUCCEEDED":
        status = 0
    if killing and status in _OF_A_KILL:
        return ContainerExit("killed", -signal.SIGKILL, "killed by the launcher")
    if status is None:
        return ContainerExit("lost", None, instance.message or "skein says that it failed, and no more")
    return exit_of(status, f"Last 1 bytes of stderr :\n{last_word}", memory_mb, killing=False)
