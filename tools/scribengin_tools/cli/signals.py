"""How commands that run until they are told to end hear of it."""

from __future__ import annotations

import signal
import threading


def ended_by_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from now on, so that neither interrupts the cleaning up."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended.set())
    signal.signal(signal.SIGINT, lambda _number, _frame: ended.set())
    return ended
