"""Failpoints: stop this process, by name, before or after any external effect (scribengin.base.failpoints).

    with failpoint("round.commit:after", kill_this_process):
        owner.run_round()

A stop is `<effect>:before` or `<effect>:after`. For your own connector: put its effects in `with failpoint("..."):`,
run it under `record_stops()` once to learn the stops that it passes, and then again with each of them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scribengin.base.failpoints import set_hook

Action = Callable[[str], None]


@contextmanager
def at_failpoint(stop: str, action: Action, *, occurrence: int = 1) -> Iterator[None]:
    """Call `action` at the `occurrence`-th time that this process passes `stop`, while the block lasts."""
    seen = 0
    lock = threading.Lock()

    def hook(passed: str) -> None:
        nonlocal seen
        if passed != stop:
            return
        with lock:
            seen += 1
            due = seen == occurrence
        if due:
            action(passed)

    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)


@contextmanager
def record_stops() -> Iterator[list[str]]:
    """Collect the stops that this process passes while the block lasts, in order, with repetitions."""
    passed: list[str] = []
    set_hook(passed.append)
    try:
        yield passed
    finally:
        set_hook(None)


def kill_this_process(_stop: str) -> None:
    """Die at once, as a machine does: no handlers, no clean-up, no flush."""
    os.kill(os.getpid(), signal.SIGKILL)


def pause_this_process(_stop: str) -> None:
    """Stall until somebody sends SIGCONT: a long garbage collection, a suspended virtual machine."""
    os.kill(os.getpid(), signal.SIGSTOP)
