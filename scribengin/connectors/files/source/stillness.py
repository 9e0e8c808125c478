"""Which files nobody is writing to any more, as far as can be told: those that have been still for `settle_s`.

A file's own time of modification says so at once, also of a file that is seen for the first time; but it takes a wall
clock to read it, and those jump. The monotonic clock tells when that has happened. From then on a reader goes by what
it has seen itself: a file is still when it has looked the same for `settle_s`. That is later, and never too early.
"""

from __future__ import annotations

from scribengin.base.clock import Clock

_MS_PER_S = 1000
_JUMP_MS = 1000
"""So far apart the two clocks may come from one look to the next."""
_SEEN_MAX = 10_000


class Stillness:
    """Of the files of one stream. Used by one thread at a time."""

    def __init__(self, clock: Clock, settle_s: float) -> None:
        self._clock = clock
        self._settle_s = settle_s
        self._apart_ms = self._wall_ahead_ms()
        self._jumped = False
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def is_still(self, name: str, size_bytes: int, modified_ms: int) -> bool:
        """Whether the file, as it is listed now, has been still for long enough."""
        apart_ms = self._wall_ahead_ms()
        self._jumped = self._jumped or abs(apart_ms - self._apart_ms) > _JUMP_MS
        self._apart_ms = apart_ms
        if not self._jumped:
            return self._clock.now_ms() - modified_ms >= self._settle_s * _MS_PER_S
        return self._seen_for_s(name, (size_bytes, modified_ms)) >= self._settle_s

    def _seen_for_s(self, name: str, look: tuple[int, int]) -> float:
        now_s = self._clock.monotonic_s()
        known = self._seen.get(name)
        if known is None or known[0] != look:
            if len(self._seen) >= _SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[name] = known = (look, now_s)
        return now_s - known[1]

    def _wall_ahead_ms(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * _MS_PER_S
