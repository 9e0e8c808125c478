"""How long a task stood still: the gap between the last commit of the worker that died and the first of its successor.

The times are those that the registry gave to the changes of the commit logs, so they are of one clock, and they are of
the commits themselves and not of whoever watched them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """A change of one source stream's commit log. A take-over changes it too, without a new `round`."""

    stream: str
    task: str
    owner: str
    round: int
    at_ms: int


def of_stream(seen: Iterable[SeenCommit], stream: str) -> list[SeenCommit]:
    """The rounds that were committed on one stream, in order, without the take-overs between them."""
    rounds: dict[int, SeenCommit] = {}
    for commit in seen:
        if commit.stream == stream and commit.round > 0:
            rounds.setdefault(commit.round, commit)
    return [rounds[number] for number in sorted(rounds)]


def gap_around_ms(commits: Sequence[SeenCommit], at_ms: int) -> int | None:
    """From the last commit of the owner at `at_ms` (or from `at_ms`, if there was none) to the first of the next owner.

    None when nobody else committed afterwards: there was nothing left to do, or it was never taken over.
    """
    owner = next((commit.owner for commit in reversed(commits) if commit.at_ms <= at_ms), None)
    after = next((commit for commit in commits if commit.at_ms > at_ms and commit.owner != owner), None)
    if after is None:
        return None
    last_ms = max(
        (commit.at_ms for commit in commits if commit.owner == owner and commit.round < after.round), default=at_ms
    )
    return after.at_ms - last_ms


def longest_gap_ms(commits: Sequence[SeenCommit], since_ms: int) -> int:
    """The longest time between two successive commits that ended after `since_ms`; 0 when there are no two."""
    gaps = [later.at_ms - earlier.at_ms for earlier, later in pairwise(commits) if later.at_ms > since_ms]
    return max(gaps, default=0)
