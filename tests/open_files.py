"""What this process has open, for tests that nothing stays open."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from scribengin.testing.waiting import wait_until

Opened = tuple[frozenset[str], int]


def opened() -> Opened:
    """The descriptors that this process has open, and how many threads it has."""
    return frozenset(os.listdir("/proc/self/fd")), threading.active_count()


def open_below(directory: Path) -> set[str]:
    """The files below it that this process has open, as the system says them: of a deleted one with ` (deleted)`."""
    links = set[str]()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was that of the listing, or another thread has closed it
            links.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {link for link in links if link.startswith(str(directory))}


def expect_nothing_more_open(before: Opened) -> None:
    """Nothing is open that was not, and no thread more. The other end of a connection is closed by a thread of its
    own, in its time: that is waited for."""
    files, threads = before

    def is_closed() -> bool:
        files_now, threads_now = opened()
        return files_now <= files and threads_now <= threads

    wait_until(is_closed, what="all that was opened to be closed")
