"""Processes that stand still for a while, as on a machine that is out of memory or has lost its disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scribengin.testing.waiting import wait_until

STOPPED = "T"
_ENDED = "X"
_STANDS = frozenset({STOPPED, "Z", _ENDED})
"""What the kernel says of a thread that does nothing any more: stopped, or ended."""
_TIMEOUT_S = 60.0


@contextmanager
def standing_still(*pids: int) -> Iterator[None]:
    """These processes do nothing while the block lasts, wherever they are just then. Raises ProcessLookupError."""
    try:
        for pid in pids:
            _stand_still(pid)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # somebody has killed it meanwhile
                os.kill(pid, signal.SIGCONT)


def await_standstill(pid: int) -> bool:
    """Wait until each thread of a process has stopped (True), or has ended (False)."""
    wait_until(lambda: states(pid) <= _STANDS, _TIMEOUT_S, f"process {pid} to stand still")
    return STOPPED in states(pid)


def states(pid: int) -> set[str]:
    """What the kernel says of the threads of a process, a letter each."""
    return {_state(thread) for thread in Path(f"/proc/{pid}/task").glob("*/stat")}


def _stand_still(pid: int) -> None:
    """Return once all of it has stopped: on a busy machine threads go on for a while after the signal, and answer."""
    os.kill(pid, signal.SIGSTOP)
    await_standstill(pid)


def _state(thread: Path) -> str:
    try:
        return thread.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return _ENDED
