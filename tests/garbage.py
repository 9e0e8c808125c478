"""To have garbage gone, whatever else this process does."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref

from scribengin.testing.waiting import wait_until


class _Circle:
    def __init__(self) -> None:
        self.itself = self


def collect_garbage(timeout_s: float = 60) -> None:
    """Return once all is collected that was garbage before. Raises AssertionError, with what each thread does: one of
    them is in a finalizer then that does not end, and nobody else in this process collects anything.

    While one thread collects, `gc.collect` does nothing in any other. Behind tests of Spark that may take seconds: each
    object of Java's calls a function when it goes, and other threads run meanwhile.
    """
    gone = weakref.ref(_Circle())

    def collected() -> bool:
        gc.collect()
        return gone() is None

    try:
        wait_until(collected, timeout_s, "a collection of garbage")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_threads()}") from None


def _threads() -> str:
    """What each of them does."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, 'a thread of somebody else')}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
