"""How a soak waits: for conditions, with a limit, while it keeps an eye on everything."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from scribengin.base.clock import Clock
from scribengin.errors import DataflowError
from scribengin_registry.errors import NodeMissing

T = TypeVar("T")

LIMIT_S = 420.0
"""For an act to be done or recovered from: a limit that holds on a machine that is busy with other things."""
_TICK_S = 0.2


class EndedEarly(Exception):
    """Somebody has pressed Ctrl-C: no more acts."""


@dataclass(slots=True)
class Pace:
    """`watching` is called five times a second while anything is waited for; it may raise. `ending`, once set, ends the
    waiting with EndedEarly."""

    clock: Clock
    watching: Callable[[], None]
    ending: threading.Event = field(default_factory=threading.Event)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Return once it holds. Raises as `found`."""
        self.found(condition, what)

    def found(self, look: Callable[[], T | None], what: str) -> T:
        """The first that `look` finds. Raises DataflowError, naming `what`, when that takes too long; EndedEarly."""
        deadline_s = self.clock.monotonic_s() + LIMIT_S
        while not (seen := self._seen(look)):
            if self.clock.monotonic_s() > deadline_s:
                raise DataflowError(f"waited {LIMIT_S:g} s in vain for {what}")
            self._tick()
        return seen

    def rest(self, until_s: float) -> None:
        """Let time pass, until the clock says so. Raises EndedEarly."""
        while self.clock.monotonic_s() < until_s:
            self._tick()

    def _tick(self) -> None:
        self.watching()
        if self.ending.wait(_TICK_S):
            raise EndedEarly

    @staticmethod
    def _seen(look: Callable[[], T | None]) -> T | None:
        try:
            return look()
        except NodeMissing:
            return None  # what is looked at comes and goes
