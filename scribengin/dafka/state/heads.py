"""When a reader of topics asks producers for their heads again: now and then, for what got lost on its way."""

from __future__ import annotations


class HeadsTimer:
    """Told the time. Its first turn comes an interval after it was first asked: who has just begun asks by itself."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_s: float | None = None

    def is_due(self, now_s: float, *, wanted: bool = True) -> bool:
        """Whether to ask now. A turn in which nothing is `wanted` stays due."""
        due = wanted and self._due_s is not None and now_s >= self._due_s
        if due or self._due_s is None:
            self._due_s = now_s + self._interval_s
        return due
