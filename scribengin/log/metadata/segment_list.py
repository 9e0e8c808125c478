"""A log's list of segments, read node by node where somebody looks: a log has many, and most looks want a few of them.

The head says which numbers are listed, so no look needs the list itself. What was read of a completed segment is kept,
also for the lists that follow, until the head says that it was revised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

from scribengin.errors import SegmentsMoved

if TYPE_CHECKING:
    from scribengin.log.metadata.segments import SegmentDescriptor

_T = TypeVar("_T")
READ_AT_ONCE_MAX = 512

Load = Callable[[Sequence[int]], "list[SegmentDescriptor]"]


class SegmentList(Sequence["SegmentDescriptor"]):
    """The segments from number `begin` on. `unfinished` is the last of them, if that is being written.

    Any look may raise SegmentsMoved (the list is not what it was: read the log's state again), InconsistentLog (a
    segment has no node), LogNotFound, and what the registry raises.
    """

    def __init__(
        self,
        begin: int,
        completed: int,
        unfinished: SegmentDescriptor | None,
        known: dict[int, SegmentDescriptor],
        load: Load,
    ) -> None:
        self.begin = begin
        self.unfinished = unfinished
        self.known = known
        self._completed = completed
        self._load = load

    def __len__(self) -> int:
        return self._completed + (self.unfinished is not None)

    @overload
    def __getitem__(self, index: int) -> SegmentDescriptor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SegmentDescriptor, ...]: ...
    def __getitem__(self, index: int | slice) -> SegmentDescriptor | tuple[SegmentDescriptor, ...]:
        chosen = range(len(self))[index]
        if not isinstance(chosen, int):
            return tuple(self._at(chosen))
        # Readers look at one segment many times a second, and mostly know it.
        one = self.unfinished if chosen == self._completed else self.known.get(self.begin + chosen)
        return self._at([chosen])[0] if one is None else one

    def __iter__(self) -> Iterator[SegmentDescriptor]:
        at, step = 0, 1
        while at < len(self):  # who looks at the first few pays for these
            yield from self._at(range(at, min(at + step, len(self))))
            at, step = at + step, min(2 * step, READ_AT_ONCE_MAX)

    def _at(self, places: Sequence[int]) -> list[SegmentDescriptor]:
        numbers = [self.begin + place for place in places if place < self._completed]
        # A list that follows this one, on another thread maybe, forgets what was revised since.
        here = {number: segment for number in numbers if (segment := self.known.get(number)) is not None}
        missing = [number for number in numbers if number not in here]
        for start in range(0, len(missing), READ_AT_ONCE_MAX):
            for segment in self._load(missing[start : start + READ_AT_ONCE_MAX]):
                here[segment.segment] = self.known[segment.segment] = segment
        found = [here[number] for number in numbers]
        if self.unfinished is not None and self._completed in places:
            found.insert(places.index(self._completed), self.unfinished)
        return found


def looking_again(work: Callable[[], _T]) -> _T:
    """What `work` comes to once nobody purges the log's segments while it looks at them."""
    while True:
        try:
            return work()
        except SegmentsMoved:
            continue
