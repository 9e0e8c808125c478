"""What happens to an owner within this process when it passes a failpoint: it dies, it stalls, a reply is lost; and
which passings there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from scribengin.base.failpoints import set_hook
from scribengin.errors import ScribenginError
from scribengin.worker.failures import Remedy, remedy_for
from scribengin_registry.errors import OutcomeUnknown

Passing = tuple[str, int]
"""A failpoint, before or after, and at which of its occurrences."""


class Died(BaseException):
    """The owner's process ends here."""


def die() -> None:
    """The owner's process ends here."""
    raise Died


def lose_the_reply() -> None:
    """What the registry was asked for is done, or not; nobody hears of it."""
    raise OutcomeUnknown("the connection was lost")


@contextmanager
def at(stop: Passing, action: Callable[[], None]) -> Iterator[None]:
    """Do that once, there; failpoints within it are nobody's."""
    name, occurrence = stop
    seen = 0

    def hook(passed: str) -> None:
        nonlocal seen
        seen += passed == name
        if passed == name and seen == occurrence:
            set_hook(None)
            action()

    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)


def stalled(stop: Passing, own_to_the_end: Callable[[int], None], generation: int) -> Remedy | None:
    """Have an owner of that generation stand still there until the next one has come to the end: what becomes of it, by
    what it is refused with; None: it is refused nothing."""
    try:
        with at(stop, lambda: own_to_the_end(generation + 1)):
            own_to_the_end(generation)
    except ScribenginError as error:
        return remedy_for(error).remedy
    return None


def numbered(passed: Sequence[str]) -> list[Passing]:
    counts: Counter[str] = Counter()
    found = []
    for stop in passed:
        counts[stop] += 1
        found.append((stop, counts[stop]))
    return found


def first_and_last(passed: list[Passing]) -> list[Passing]:
    first, last = dict(reversed(passed)), dict(passed)
    return [(stop, number) for stop, number in passed if number in (first[stop], last[stop])]


def where_last(passed: list[Passing]) -> list[Passing]:
    return list(dict(passed).items())
