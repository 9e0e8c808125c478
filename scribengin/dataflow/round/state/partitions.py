"""Into how many partitions a task's state is divided, and what it takes to change that between two batches.

Spark divides state anew as a batch of its own, while no query runs: it reads nothing and gives out nothing, and takes
a number in the query's log. So it is no round. Positions, the rounds' numbers and what sinks are told stay as they
are; the commit logs name the batch, so that the next one follows it.

What notes it is Spark's plan of the batch. That is there whole or not at all, before anything else is, and differs
from the one before in the number of partitions. What ends it is Spark's word that the batch is done, and then the
commit logs.

| before the crash       | the query has, after B-1     | the commit logs name | the next owner                       |
|------------------------|------------------------------|----------------------|--------------------------------------|
| Spark was asked        | nothing                      | B-1                  | asks, if another number is still     |
|                        |                              |                      | wanted                               |
| B was planned          | the plan of B                | B-1                  | asks for the same number again, if   |
|                        |                              |                      | it is wanted; else takes B back, and |
|                        |                              |                      | asks for what is wanted              |
| B was done             | B                            | B-1                  | names it                             |
| it was named           | B                            | B                    | has nothing to do                    |
| it was named, and then | the plan of B                | B                    | asks for the same number again,      |
| the power took Spark's |                              |                      | whatever is wanted                   |
| word that B is done    |                              |                      |                                      |

Until B is done, the state before it is whole, and nobody reads what B has written. So where Spark fails in B again and
again, another number is the way back: the one from before goes on as if nothing had been begun. Only a batch that the
commit logs name is not taken back: there what it has made counts.

A batch of records that is planned and not done comes first: its own number of partitions is in its plan. Where no
operator keeps anything there is nothing to divide: Spark would plan the batch, and then refuse it for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class BatchLog(Protocol):
    """What a query has planned and done (QueryLog is the one)."""

    @property
    def planned(self) -> int:
        """The last batch that was planned; -1: there is none."""
        ...

    @property
    def done(self) -> int:
        """The last batch that is done."""
        ...

    @property
    def keeps_state(self) -> bool:
        """Whether there is state, or may be once the first batch is done."""
        ...

    def partitions(self, number: int) -> int:
        """Into how many state is divided in a batch."""
        ...

    def divides(self, number: int) -> bool:
        """Whether a batch only divides the state of the one before anew."""
        ...


@dataclass(frozen=True, slots=True)
class Divide:
    """Have Spark divide the state, as the next batch or as the one that it has begun with."""

    partitions: int


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Have the batch that was to divide the state never have been planned."""

    number: int


@dataclass(frozen=True, slots=True)
class NameBatch:
    """The batch that has divided the state is done: have the commit logs name it."""

    number: int


@dataclass(frozen=True, slots=True)
class RunBatchFirst:
    """A batch of records stands planned, which the query has to run before its state can be divided."""


def next_step(named: int, log: BatchLog, wanted: int | None) -> Divide | TakeBack | NameBatch | RunBatchFirst | None:
    """What to do next for state to be in `wanted` partitions (None: in as many as it is), where the commit logs name
    batch `named`. Pure. None: nothing, or the log and the commit logs contradict each other."""
    last = log.planned
    if last < 0:  # nothing is kept yet: the first batch is planned with what is wanted
        return None
    if not log.keeps_state:
        wanted = None
    if last > log.done:
        if not log.divides(last):
            return None if wanted in (None, log.partitions(last)) else RunBatchFirst()
        if named == last - 1 and wanted != log.partitions(last):
            return TakeBack(last)
        # Named before it is done: then a power failure took Spark's files of it.
        return Divide(log.partitions(last)) if named in (last - 1, last) else None
    if named == last - 1 and log.divides(last):
        return NameBatch(last)
    if named == last and wanted is not None and wanted != log.partitions(last):
        return Divide(wanted)
    return None


def way_back(named: int, log: BatchLog) -> int | None:
    """Where `next_step` is to divide: the number that state is in, which takes that back if Spark cannot. None: nothing
    does, for the commit logs name that batch."""
    return log.partitions(log.done) if named == log.done else None
