"""To have garbage gone, whatever else this process does."""

from __future__ import annotations

import gc
import weakref

from scribengin.testing.waiting import wait_until


class _Circle:
    def __init__(self) -> None:
        self.itself = self


def collect_garbage() -> None:
    """Return once all is collected that was garbage before.

    While one thread collects, `gc.collect` does nothing in any other. Behind tests of Spark that may take seconds: each
    object of Java's calls a function when it goes, and other threads run meanwhile.
    """
    gone = weakref.ref(_Circle())

    def collected() -> bool:
        gc.collect()
        return gone() is None

    wait_until(collected, what="a collection of garbage")
