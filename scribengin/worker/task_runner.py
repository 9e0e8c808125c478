"""What an executor asks of a task that is open: a round at a time, whoever runs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.dataflow.registry.descriptors import StreamLag
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.spark.transform.spec import StateReport


class TaskRunner(Protocol):
    """One open task on behalf of one executor, used by its thread alone (RoundRunner is one).

    take_over, (run_round | lags | ended | wait | reconfigure)*, release, close. After any error it is taken over again,
    or closed; `close` may come at any time.
    """

    @property
    def round(self) -> int | None:
        """The number of the last round that was committed; None before the first `take_over`."""
        ...

    def take_over(self) -> None:
        """Own the task: afterwards nothing of a round is left half done. Raises StaleOwner when it is another's."""
        ...

    def run_round(self) -> RoundOutcome | None:
        """One round, or None when there is nothing to read just now, or the round was undone and can be tried again."""
        ...

    def lags(self) -> Sequence[StreamLag]:
        """How many records each source stream of the task has left to read."""
        ...

    def state(self) -> StateReport | None:
        """How much is kept from round to round; None: nothing."""
        ...

    def ended(self) -> bool:
        """Whether there will never be anything more to read."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until there is something to read, or the timeout: whether there is."""
        ...

    def reconfigure(self, round_config: RoundConfig, errors: ErrorsConfig, paused: Collection[str]) -> None:
        """What counts from the next round on."""
        ...

    def release(self) -> None:
        """Give the task back, between rounds."""
        ...

    def close(self) -> None:
        """Release what this process holds, and nothing in the registry. Idempotent."""
        ...
