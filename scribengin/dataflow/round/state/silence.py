"""Which sources of a task with state are silent, and how far the watermark may go on without them.

Only decides: the owner says what it has heard, and what its query says of its watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SilentAfter:
    """A source that had no record for `after_s` is silent; `delay_ms` is by how much its records may be late."""

    after_s: float
    delay_ms: int


class Silence:
    """Used by one thread. Times are monotonic."""

    def __init__(self, after: Mapping[str, SilentAfter], now_s: float) -> None:
        """`after` has the sources that may be silent, by name. Nobody is at first."""
        self._after = after
        self._heard_s = dict.fromkeys(after, now_s)

    def heard(self, sources: Iterable[str], now_s: float) -> None:
        """These have records."""
        for source in sources:
            if source in self._heard_s:
                self._heard_s[source] = now_s

    def silent(self, now_s: float) -> frozenset[str]:
        """Who is silent."""
        return frozenset(
            source for source, after in self._after.items() if now_s - self._heard_s[source] >= after.after_s
        )

    def beats(self, silent: frozenset[str], watermarks_ms: Mapping[str, int | None]) -> dict[str, int]:
        """By silent source, the time of a beat that brings its watermark to where the earliest of the others is, in
        milliseconds; none where it is there, where all are silent, or where one of the others has no watermark yet."""
        others = [at_ms for source, at_ms in watermarks_ms.items() if source not in silent]
        known = [at_ms for at_ms in others if at_ms is not None]
        if not known or len(known) < len(others):
            return {}
        reached_ms = min(known)
        behind = [source for source in sorted(silent) if _is_behind(watermarks_ms.get(source), reached_ms)]
        return {source: reached_ms + self._after[source].delay_ms for source in behind}


def _is_behind(at_ms: int | None, reached_ms: int) -> bool:
    return at_ms is None or at_ms < reached_ms
