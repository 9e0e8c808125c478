"""Where an owner of the crash flow is stopped, how, and what became of it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FINISHED = 0
STALE = 3
"""It gave up, for the registry or another owner."""
UNREACHABLE = 4
"""The system of a source or sink did not answer it."""
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Stop:
    """What happens to an owner: `action` at the `occurrence`-th passing of `name`."""

    name: str
    action: Literal["kill", "pause", "lose_reply"]
    occurrence: int = 1

    def but(self, action: Literal["kill", "pause", "lose_reply"]) -> Stop:
        """The same moment, and something else happens."""
        return Stop(self.name, action, self.occurrence)


def stops_to_try(passed: Iterable[str]) -> list[Stop]:
    """Each stop once, at the middle one of its passings: there is something behind it and something before it."""
    return [Stop(name, "kill", (count + 1) // 2) for name, count in Counter(passed).items()]


# Moments that leave a recovery something to decide: output that is staged, and not committed or just committed; a
# segment file that nobody has registered.
UNDECIDED = Stop("round.commit:before", "kill", occurrence=2)
COMMITTED = Stop("round.commit:after", "kill", occurrence=2)
UNREGISTERED = Stop("log.segment_register:before", "kill", occurrence=1)
BASES = (UNDECIDED, COMMITTED, UNREGISTERED)

# The same of a round that Kafka decides: it is prepared, and Kafka has not committed it, or has; it is not prepared,
# and everything is staged.
PREPARED = Stop("round.prepare:after", "kill", occurrence=2)
DECIDED = Stop("kafka.commit:after", "kill", occurrence=2)
STAGED = Stop("kafka.prepare:after", "kill", occurrence=2)
