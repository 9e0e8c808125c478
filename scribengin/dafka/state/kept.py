"""Records in memory by their sequences, and when they were published: what a producer keeps until stores have it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

_CHUNK = 1024


class KeptRecords:
    """Sequences from `first` up to `next`, without a gap. Parts of many records are added, read and let go of at once;
    of what was let go of, no bytes are kept, but a place each until its chunk of 1,024 is gone."""

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self._chunks: dict[int, list[bytes]] = {}
        self._origin = first

    def __len__(self) -> int:
        return self.next - self.first

    def add(self, contents: Sequence[bytes]) -> None:
        """Keep these, too: the first of them as `next`."""
        at = 0
        while at < len(contents):
            number, within = divmod(self.next - self._origin, _CHUNK)
            part = contents[at : at + _CHUNK - within]
            self._chunks.setdefault(number, []).extend(part)
            self.next += len(part)
            at += len(part)

    def between(self, first: int, end: int) -> list[bytes]:
        """Those from `first` up to `end`, all of which are kept."""
        found: list[bytes] = []
        while first < end:
            number, within = divmod(first - self._origin, _CHUNK)
            part = self._chunks[number][within : within + end - first]
            found += part
            first += len(part)
        return found

    def release(self, end: int) -> None:
        """Keep none before `end`, which is one of them, or behind the last."""
        first, (last, within) = self.first - self._origin, divmod(end - self._origin, _CHUNK)
        for number in range(first // _CHUNK, last):
            del self._chunks[number]
        if within:
            begin = max(0, first - last * _CHUNK)
            self._chunks[last][begin:within] = [b""] * (within - begin)
        self.first = end


class PublishTimes:
    """When sequences were published, by a clock that may jump: one place a millisecond, of those that are kept."""

    def __init__(self) -> None:
        self._first: deque[int] = deque()
        self._at_ms: deque[int] = deque()
        self._before_ms: int | None = None
        """When the last one was published whose place is gone."""

    def add(self, first: int, at_ms: int) -> None:
        """Those from `first` on are published now. A clock that goes back is not followed."""
        if not self._at_ms or at_ms > self._at_ms[-1]:
            self._first.append(first)
            self._at_ms.append(at_ms)

    def release(self, end: int) -> None:
        """Those before `end` are not kept any more."""
        while len(self._first) > 1 and self._first[1] <= end:
            self._first.popleft()
            self._before_ms = self._at_ms.popleft()

    def first_at(self, at_ms: int, end: int) -> int | None:
        """The first sequence that was published then or later; `end`, which comes next, if none was. None: it may be
        one that is not kept."""
        if not self._at_ms:
            return None
        if at_ms > self._at_ms[-1]:
            return end
        if at_ms <= self._at_ms[0] and self._first[0] and (self._before_ms is None or at_ms <= self._before_ms):
            return None
        return self._first[bisect_left(self._at_ms, at_ms)]
