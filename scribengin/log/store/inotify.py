"""Waking readers when a file is written to, whoever writes it: one inotify instance and one thread a process.

A reader that waits could look every few milliseconds; it would burn a processor for nothing, and still see each record
late. Linux tells of a write at once, across processes, and costs the writer about a microsecond.

It is a hint. Where the system has no room for another watch, or none at all, `watch` returns None, and the reader looks
from time to time as it must anyway: a change that was told of before it began to wait is not told again.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable

from inotify_simple import INotify, flags

from scribengin.base.threads import background


class FileWatches:
    """Which events are to be set when which file is written to. Thread-safe."""

    def __init__(self) -> None:
        self._notify = INotify()
        self._changing = threading.Lock()
        """Guards the two tables, and keeps the kernel's table and ours the same."""
        self._events: defaultdict[int, list[threading.Event]] = defaultdict(list)
        background("log-tail-watch", self._run).start()

    def watch(self, path: str, event: threading.Event) -> Callable[[], None]:
        """Set `event` at every write to the file, until what this returns is called. Raises OSError."""
        with self._changing:
            number = self._notify.add_watch(path, flags.MODIFY)  # the same number for the same file
            self._events[number].append(event)
        return lambda: self._unwatch(number, event)

    def _unwatch(self, number: int, event: threading.Event) -> None:
        with self._changing:
            events = self._events.get(number, [])
            if event not in events:
                return  # taken back before: by who was interrupted right behind it
            events.remove(event)
            if events:
                return
            del self._events[number]
            try:
                self._notify.rm_watch(number)
            except OSError:
                return  # the file is gone, and its watch with it

    def _run(self) -> None:
        while True:
            for told in self._notify.read():
                with self._changing:
                    events = list(self._events.get(told.wd, ()))
                for event in events:
                    event.set()


_opening = threading.Lock()
_of_process: tuple[int, FileWatches] | None = None


def watch(path: str, event: threading.Event) -> Callable[[], None] | None:
    """Set `event` at every write to the file at `path`, until what this returns is called. None: nobody can tell."""
    try:
        return _watches().watch(path, event)
    except OSError:  # no such file yet, no inotify, or no more of it for this user
        return None


def _watches() -> FileWatches:
    global _of_process  # a forked child inherits neither the thread nor, so, the right to its parent's events
    with _opening:
        if _of_process is None or _of_process[0] != os.getpid():
            _of_process = os.getpid(), FileWatches()
        return _of_process[1]
