"""Histories of a dataflow with state, as hypothesis draws them: which records come, how late, in which batches, and how
owners end. A plain one is drawn as zeros: records in order, from all logs in turn, and one owner. So what is left of a
history that fails is what it takes to fail.

And a model of what is late in one, which knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hypothesis import strategies as st

from tests.integration.state_flow import FAR, Event

DELAYS_S = {"src": 15, "other": 5}
"""By source: how late its records may be."""
LOGS = ("in/0", "other", "in/1")
ENDS = ("goes on", "releases", "round.commit:before", "round.commit:after")
"""What becomes of an owner behind a batch. At a failpoint, within that batch, it dies."""
_BEGINS_S = 100
_GAPS_S = (3, 0, 1, 8)
_PEOPLE = "ab"
_TURNS = len(_PEOPLE) * len(LOGS)


@dataclass(frozen=True)
class Record:
    """`late_s` behind what has come before it; None: later than any watermark."""

    log: str
    who: str
    comes_s: int
    late_s: int | None

    @property
    def source(self) -> str:
        return "other" if self.log == "other" else "src"

    @property
    def event(self) -> Event:
        """Its number is its second, so that two of one second and one `who` are the same, come twice."""
        second = self.comes_s - (FAR if self.late_s is None else self.late_s)
        return second, self.who, second

    def __str__(self) -> str:
        return f"{self.log} {self.who}@{self.event[0]}"


@dataclass(frozen=True)
class Batch:
    """What one batch reads, and how its owner then ends."""

    records: tuple[Record, ...]
    ends: str

    @property
    def dies(self) -> bool:
        """Whether the owner dies in the batch, which the next one then runs again."""
        return ":" in self.ends

    @property
    def leaves(self) -> bool:
        """Whether the owner gives its task back behind the batch."""
        return self.ends == "releases"

    def of(self, source: str) -> list[Event]:
        return [record.event for record in self.records if record.source == source]


class Printer(Protocol):
    def text(self, text: str) -> None: ...


@dataclass(frozen=True)
class History:
    batches: tuple[Batch, ...]

    def events(self, source: str) -> list[Event]:
        return [event for batch in self.batches for event in batch.of(source)]

    def __str__(self) -> str:
        lines = [f"    {', '.join(map(str, batch.records))}; the owner: {batch.ends}" for batch in self.batches]
        return "\n".join(["the history:", *lines])

    def _repr_pretty_(self, printer: Printer, _cycle: bool) -> None:
        """How hypothesis prints one that fails."""
        printer.text(str(self))


@st.composite
def histories(draw: st.DrawFn, late_max_s: Mapping[str, int], *, too_late: bool = False) -> History:
    """Of up to three batches. Records are late by less than `late_max_s`, by source; and, where some may be `too_late`,
    by far more."""
    late = st.integers(0, 1000) if not too_late else st.one_of(st.integers(0, 1000), st.none())
    drawn = st.tuples(st.sampled_from(_GAPS_S), st.integers(0, _TURNS - 1), late)
    batch = st.tuples(st.lists(drawn, min_size=6, max_size=12), st.sampled_from(ENDS))
    return _history(draw(st.lists(batch, min_size=2, max_size=3)), late_max_s)


_Drawn = tuple[int, int, int | None]


def _history(batches: Sequence[tuple[Sequence[_Drawn], str]], late_max_s: Mapping[str, int]) -> History:
    """Whose turn it is goes round, and what was drawn is how far from that."""
    now_s, turn, made = _BEGINS_S, 0, []
    for drawn, ends in batches:
        records = []
        for gap_s, off, late_s in drawn:
            whose = (turn + off) % _TURNS
            record = Record(LOGS[whose % len(LOGS)], _PEOPLE[whose // len(LOGS)], now_s, late_s)
            records.append(record if late_s is None else replace(record, late_s=late_s % late_max_s[record.source]))
            now_s += gap_s
            turn += 1
        made.append(Batch(tuple(records), ends))
    return History(tuple(made))


@dataclass(frozen=True)
class Late:
    """A record that was not after the watermark of its batch."""

    source: str
    event: Event
    watermark_s: int


def late_in(history: History) -> list[Late]:
    """What is not after the watermark of the batches before. That is of the earliest source, as far as its owner has
    seen records of all of them, and never goes back."""
    watermark_s, late = 0, []
    reached_s: dict[str, int] = {}
    for batch in history.batches:
        late += [Late(one.source, one.event, watermark_s) for one in batch.records if one.event[0] <= watermark_s]
        if batch.dies:
            reached_s = {}  # and the next owner runs it again
        for source, delay_s in DELAYS_S.items():
            for second, _, _ in batch.of(source):
                if second > watermark_s:
                    reached_s[source] = max(reached_s.get(source, 0), second - delay_s)
        if reached_s.keys() == DELAYS_S.keys():
            watermark_s = max(watermark_s, min(reached_s.values()))
        if batch.leaves:
            reached_s = {}
    return late
