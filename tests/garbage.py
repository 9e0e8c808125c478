"""To have garbage gone, whatever else this process does."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref

from scribengin.testing.waiting import WaitedInVain, wait_until

_collecting: set[int] = set()
"""The thread that collects, if one does."""


class _Circle:
    def __init__(self) -> None:
        self.itself = self


def note_who_collects() -> None:
    """From now on it is known which thread does. Idempotent."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)


def collect_garbage(timeout_s: float = 60) -> None:
    """Return once all is collected that was garbage before.

    While one thread collects, `gc.collect` does nothing in any other. Behind tests of Spark that may take seconds: each
    object of Java's calls a function when it goes, and other threads run meanwhile. What goes and waits for somebody
    keeps all others waiting, in a process of ours as well: AssertionError says what every thread does.
    """
    gone = weakref.ref(_Circle())

    def collected() -> bool:
        gc.collect()
        return gone() is None

    try:
        wait_until(collected, timeout_s, what="a collection of garbage")
    except WaitedInVain as error:
        raise WaitedInVain(f"{error}\n{_what_threads_do()}") from None


def _note(phase: str, _info: object) -> None:
    if phase == "start":
        _collecting.add(threading.get_ident())
    else:
        _collecting.discard(threading.get_ident())


def _what_threads_do() -> str:
    """The stack of each, that of the one that collects first. Those that do the same are named together."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    doing: dict[str, list[str]] = {}
    frames = sys._current_frames()
    for ident in sorted(frames, key=lambda ident: ident not in _collecting):
        collects = " collects garbage" if ident in _collecting else ""
        stack = "".join(traceback.format_stack(frames[ident]))
        doing.setdefault(stack, []).append(f"{names.get(ident, ident)}{collects}")
    return "\n".join(f"{', '.join(threads)}:\n{stack}" for stack, threads in doing.items())
