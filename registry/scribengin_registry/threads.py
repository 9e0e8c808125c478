"""The one place where threads are started and time is let pass: a simulator takes over here and nowhere else.

A rule of the house holds that nobody else calls `threading.Thread`, `threading.Timer` or waits on an event of nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def background(name: str, run: Callable[[], object]) -> threading.Thread:
    """A thread of that name for `run`, not started yet. It keeps no process from ending."""
    return threading.Thread(target=run, name=name, daemon=True)


def started(thread: threading.Thread) -> threading.Thread:
    """`thread`, which runs. Raises RuntimeError where the machine has none left just now: so whoever keeps what this
    returns keeps no thread that never began, and may try again."""
    thread.start()
    return thread


def delayed(name: str, delay_s: float, run: Callable[[], object]) -> threading.Timer:
    """A thread of that name that runs `run` once, so long after its `start`, unless it is cancelled. It keeps no
    process from ending."""
    timer = threading.Timer(delay_s, run)
    timer.name = name
    timer.daemon = True
    return timer


def pause(seconds: float) -> None:
    """Let so much time pass."""
    threading.Event().wait(seconds)
