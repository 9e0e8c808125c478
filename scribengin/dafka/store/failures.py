"""Logs of a store that have failed: each is known by its partition until it works again, and the others go on."""

from __future__ import annotations

from scribengin.dafka.state import DafkaPartition
from scribengin.errors import LogClosed, LogError, NamespaceNotBound, StoreNotMounted
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable, SessionLost

PASSING = (LogError, RegistryUnreachable, OutcomeUnknown, SessionLost)
"""What may be over when the log is tried again. Also a registry that does not answer: it may a little later."""
TRIED_AGAIN_S = 2.0
"""A log that has failed is left alone for so long."""
_REST_OF_WAITS = 10
"""And this many times as long as a registry was waited for that did not answer: all other logs wait for that, too."""
LogFailure = LogError | RegistryError
_OF_ALL_LOGS = (LogClosed, NamespaceNotBound, StoreNotMounted)
"""Of the namespace: no log of it can be used."""


def next_try_s(now_s: float, waited_s: float) -> float:
    """When to try again what has failed, after so long a wait for a registry."""
    return now_s + TRIED_AGAIN_S + _REST_OF_WAITS * waited_s


class LogFailures:
    """Told of failures on the thread of one role; others may look."""

    def __init__(self) -> None:
        self.count = 0
        """How often anything has failed."""
        self._failing: dict[DafkaPartition, LogFailure] = {}

    @property
    def failing(self) -> dict[DafkaPartition, LogFailure]:
        """What has failed last of each partition, and did not work since."""
        return self._failing.copy()

    def failed(self, partition: DafkaPartition, error: LogFailure) -> None:
        """Raises what is none of this log alone."""
        if isinstance(error, _OF_ALL_LOGS):
            raise error
        self.count += 1
        self._failing[partition] = error

    def worked(self, partition: DafkaPartition) -> None:
        """The log does what it is to do."""
        if self._failing:
            self._failing.pop(partition, None)
