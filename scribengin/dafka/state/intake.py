"""The records of one partition, put in order: what consumers and stores have in common.

Records come live, and again from whoever was asked for them: with gaps, twice, in any order. They leave in order, each
once. As long as something is missing, a fetch is under way: for what is missing next, never for more than a window.
When half of the window has come, the next one is asked for, so that whoever answers never waits; when nothing of it
comes for `retry_s`, the same again. So no gap is forgotten, however large it is, however many messages get lost, and
whatever is published meanwhile.

Records that come early are kept within limits. What is beyond them is fetched when its turn has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from scribengin.dafka.wire.frames import COUNT_MAX


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """What one partition may ask for and keep."""

    fetch_records_max: int = 10_000
    """In one fetch."""
    early_records_max: int = 10_000
    early_bytes_max: int = 16 * 1024 * 1024
    retry_s: float = 1.0
    """A fetch that nothing of has come for this long is sent again."""
    gone_tries: int = 5
    """So many fetches one after the other must go unanswered until it counts that somebody does not keep what is next:
    another one may, whose answers get lost, or who is slow, or is connected to a little later."""


SEQUENCES_END = 1 << 62
"""No partition comes so far: who says so lies. Logs, and columns of records, number them in 63 bits."""


class PartitionIntake:
    """Puts the records of one partition in order. `next` is the sequence of the record to hand out next.

    `tries_min` in place of `gone_tries`: who begins at a record that somebody has told of waits for that one. Tries are
    counted, and no time is measured: a reader that was away has asked nobody meanwhile.
    """

    def __init__(self, first: int, limits: IntakeLimits, *, tries_min: int | None = None) -> None:
        self.next = first
        self.halted_at: int | None = None
        """The first record that somebody keeps, if that is behind `next` and nobody has decided what becomes of it."""
        self._first = first
        self._limits = limits
        self._end = first
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._early_runs: list[int] = []
        """A heap of where runs of early records begin. `next` never stands within one: what it comes to is handed out
        to its end. So those before it are gone."""
        self._asked_end = 0
        self._due_s: float | None = None
        self._tries_left = self._tries_min = limits.gone_tries if tries_min is None else tries_min
        self._kept_from: int | None = None

    @property
    def is_behind(self) -> bool:
        """Whether records that were published did not come, and may come still."""
        return self.next < self._end and self.halted_at is None

    @property
    def is_stuck(self) -> bool:
        """Whether what comes next did not come, though it was asked for again and again, or is kept by nobody."""
        return self.next < self._end and (self.halted_at is not None or self._tries_left <= 0)

    @property
    def has_begun(self) -> bool:
        """Whether any record was handed out."""
        return self.next > self._first

    def records(self, first: int, contents: Sequence[bytes], now_s: float) -> list[bytes]:
        """Records from the sequence `first` on have come. Returns those that can be handed out now, the first of which
        was `next` before the call."""
        end = first + len(contents)
        if end <= self.next:
            return []
        if self._due_s is not None and first < self._asked_end:  # what is published meanwhile is no answer
            self._due_s = now_s + self._limits.retry_s
            self._tries_left = self._tries_min  # who answers keeps what was asked for
        if first > self.next:
            self._keep(first, contents)
            return []
        ready = list(contents) if first == self.next else list(contents[self.next - first :])
        if self._early:
            self._forget_before(end)
        self.next = end
        while self._early and (early := self._early.pop(self.next, None)) is not None:
            self._early_bytes -= len(early)
            self.next += 1
            ready.append(early)
        self._end = max(self._end, self.next)
        if self.next >= self._asked_end:
            self._due_s = None
        self.halted_at = self._kept_from = None
        self._tries_left = self._tries_min
        return ready

    def head(self, sequence: int) -> None:
        """That record was published."""
        self._end = max(self._end, sequence + 1)

    def truncated(self, first_kept: int) -> None:
        """Somebody keeps nothing before `first_kept`. Others may: it counts when a fetch has gone unanswered."""
        if self.next < first_kept <= SEQUENCES_END:
            self._end = max(self._end, first_kept)
            self._kept_from = min(first_kept, self._kept_from or first_kept)

    def missing(self, now_s: float, records_max: int | None = None) -> tuple[int, int] | None:
        """What to fetch now: first sequence, and how many (`records_max`, if that is less). None: nothing is missing,
        or it is on its way, or nobody keeps it (`halted_at`)."""
        if not self.is_behind:
            return None
        records_max = min(self._limits.fetch_records_max, records_max or COUNT_MAX)
        first = self.next
        if self._due_s is not None and now_s < self._due_s and self._asked_end - 1 not in self._early:
            under_way = self._asked_end - self.next
            if 2 * under_way > records_max:
                return None
            first = self._asked_end
        elif self._due_s is not None:
            self._tries_left -= 1
            if self._kept_from is not None and self._tries_left <= 0:
                self.halted_at = self._kept_from
                return None
        count = min(self._first_early() - first, records_max)
        if count <= 0:
            return None
        self._asked_end = first + count
        self._due_s = now_s + self._limits.retry_s
        return first, count

    def skip_to(self, sequence: int, now_s: float) -> list[bytes]:
        """Go on with that record instead of `next`, which must be before it. Returns what of it is there already."""
        self.halted_at = self._kept_from = self._due_s = None
        self._tries_left = self._tries_min
        self._forget_before(sequence)
        self.next = sequence
        self._end = max(self._end, sequence)
        early = self._early.pop(sequence, None)
        if early is None:
            return []
        self._early_bytes -= len(early)
        return self.records(sequence, [early], now_s)

    def _forget_before(self, sequence: int) -> None:
        """What came early is behind `next`: nothing is looked at for a record in its turn."""
        first, early = self.next + 1, self._early
        few = sequence - first < len(early)
        keys = range(first, sequence) if few else [one for one in early if one < sequence]
        for gone in keys:
            self._early_bytes -= len(early.pop(gone, b""))

    def _first_early(self) -> int:
        """The first record that has come early, or the end of all that is known to be published."""
        runs = self._early_runs
        while runs and runs[0] < self.next:
            heappop(runs)
        return runs[0] if runs else self._end

    def _keep(self, first: int, contents: Sequence[bytes]) -> None:
        self._end = max(self._end, first + len(contents))
        limits = self._limits
        self._first_early()  # lets go of runs that are gone: there are never more than records
        for sequence, content in enumerate(contents, first):
            if len(self._early) >= limits.early_records_max:
                return
            if sequence not in self._early and self._early_bytes + len(content) <= limits.early_bytes_max:
                self._early_bytes += len(content)
                self._early[sequence] = content
                if sequence - 1 not in self._early:
                    heappush(self._early_runs, sequence)
