"""What is to leave nothing behind, and may take a moment for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scribengin.testing.waiting import WaitedInVain, wait_until

_LIMIT_S = 60.0


def await_none(left: Callable[[], Sequence[object]]) -> None:
    """Return once nothing is left of what `left` finds; in vain, the WaitedInVain names it. A server's watcher, a
    shell in its directory, is dismissed when the server is stopped, and nobody waits for its end.
    """
    try:
        wait_until(lambda: not left(), _LIMIT_S, "everything to be gone")
    except WaitedInVain as error:
        raise WaitedInVain(f"{error}: {list(left())}") from None
