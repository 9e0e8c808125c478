"""Ctrl-C where it is heard: kazoo takes an interruption for a connection that broke, and the request goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

from scribengin_registry.threads import delayed

SignalHandler = Callable[[int, FrameType | None], object]

_LATER_S = 0.01


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler that raises KeyboardInterrupt, as Python's own does, but never where it would be swallowed."""
    heard(signal.default_int_handler)(number, frame)


def heard(handler: SignalHandler) -> SignalHandler:
    """`handler`, called a little later where an exception of it would be swallowed."""

    def handle(number: int, frame: FrameType | None) -> None:
        if not _swallows(frame):
            handler(number, frame)
            return
        thread = threading.main_thread().ident
        assert thread is not None  # it has started: this runs on it
        delayed("interrupt", _LATER_S, partial(signal.pthread_kill, thread, number)).start()

    return handle


def _swallows(frame: FrameType | None) -> bool:
    """If kazoo sends a request there: a bare `except` is around that. Told by names, as kazoo may not be loaded."""
    while frame is not None:
        if frame.f_code.co_name == "_call" and frame.f_globals.get("__name__") == "kazoo.client":
            return True
        frame = frame.f_back
    return False
