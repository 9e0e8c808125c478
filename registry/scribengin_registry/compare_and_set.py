"""Look, decide, write with versions; and look again where somebody was faster. All such loops go through here.

What an attempt must keep to: it decides by what it reads itself, each time anew, and each of its writes checks the
version of what it read. Then a lost race costs one more look, and never another's change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from scribengin_registry.contract import Node, Registry
from scribengin_registry.errors import NodeExists, NodeMissing, NodeNotEmpty, OutcomeUnknown, VersionConflict

_T = TypeVar("_T")
TRIES_MAX = 20
RACES: tuple[type[Exception], ...] = (VersionConflict, NodeExists, NodeMissing, NodeNotEmpty)
"""What a write raises when what it was decided by is not so any more."""


class LookAgain(Exception):
    """Raised by an attempt that has to look once more, though nothing failed."""


def win_race(
    attempt: Callable[[], _T],
    *,
    races: tuple[type[Exception], ...] = RACES,
    registry: Registry | None = None,
    tries_max: int = TRIES_MAX,
    exhausted: Callable[[], Exception] | None = None,
) -> _T:
    """What `attempt` returns, once it neither raises one of `races` nor LookAgain.

    With `registry` every further look sees all that was committed before it, and a lost reply (OutcomeUnknown) is a
    race, too: then `attempt` must tell from what it reads whether its own request was applied. Without, OutcomeUnknown
    goes to the caller. After `tries_max` attempts raises what `exhausted` gives, or else the last race.
    """
    lost = () if registry is None else (OutcomeUnknown,)
    for tries_left in reversed(range(tries_max)):
        try:
            return attempt()
        except (LookAgain, *races, *lost) as race:
            if not tries_left:
                raise (race if exhausted is None else exhausted()) from None
        if registry is not None:
            registry.sync()
    raise AssertionError("tries_max is 1 at least")


def compare_and_set(read: Callable[[], Node], registry: Registry, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """Replace the data of the node at `path`, which `read` reads, by what `change` makes of it; what it was before.

    Raises what the two raise, VersionConflict (others keep changing it), OutcomeUnknown (it may be done, or not).
    """

    def attempt() -> bytes:
        node = read()
        registry.set(path, change(node.data), node.version)
        return node.data

    return win_race(attempt, races=(VersionConflict,))
