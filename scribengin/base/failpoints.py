"""Names for the external effects of a round, so that a test can stop the process before and after each of them.

Everything in the rooms of the round (log, connectors, dataflow) that changes the world outside the process, a write, an
fsync, a rename, a registry change, stands in `with failpoint("name"):`. `tests/house` fails when one does not, and the
crash tests take their list of stops from the same names, so an effect cannot be added without being tested.

In production nothing is armed, and an effect costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

Hook = Callable[[str], None]
_hook: Hook | None = None


class failpoint:  # noqa: N801  used as a function
    """Mark the block as the external effect `name`: a hook sees `name:before`, and `name:after` if it did not raise.

    A class and no generator, because every append passes some of them: 0.3 instead of 0.9 microseconds.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if _hook is not None:
            _hook(f"{self._name}:before")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _hook is not None and kind is None:
            _hook(f"{self._name}:after")


def set_hook(hook: Hook | None) -> None:
    """Call `hook` with every stop of this process, on the thread that reaches it. For tests: `scribengin.testing`."""
    global _hook
    _hook = hook
