"""Processes that stand still for a while, as on a machine that is out of memory or has lost its disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from scribengin.testing.waiting import wait_until

_STANDS = frozenset("TZX")
"""What the kernel says of a thread that does nothing any more: stopped, or ended."""
_TIMEOUT_S = 60.0


@contextmanager
def standing_still(*pids: int) -> Iterator[None]:
    """These processes do nothing while the block lasts, wherever they are just then. Raises ProcessLookupError."""
    try:
        for pid in pids:
            stand_still(pid)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # somebody has killed it meanwhile
                os.kill(pid, signal.SIGCONT)


def stand_still(pid: int) -> None:
    """Return once each thread of the process has stopped: on a busy machine some go on for a while after the signal,
    and answer. Raises ProcessLookupError."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(partial(_stands, pid), _TIMEOUT_S, f"process {pid} to stand still")


def _stands(pid: int) -> bool:
    return all(_state(thread) in _STANDS for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(thread: Path) -> str:
    try:
        return thread.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
