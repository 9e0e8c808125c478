"""Logs of a store that have failed: each is known by its partition until it works again, and the others go on."""

from __future__ import annotations

from scribengin.dafka.state import DafkaPartition
from scribengin.errors import LogClosed, LogError, NamespaceNotBound, StoreNotMounted

_OF_ALL_LOGS = (LogClosed, NamespaceNotBound, StoreNotMounted)
"""Of the namespace: no log of it can be used."""


class LogFailures:
    """Told of failures on the thread of one role; others may look."""

    def __init__(self) -> None:
        self.count = 0
        """How often anything has failed."""
        self._failing: dict[DafkaPartition, LogError] = {}

    @property
    def failing(self) -> dict[DafkaPartition, LogError]:
        """What has failed last of each partition, and did not work since."""
        return self._failing.copy()

    def failed(self, partition: DafkaPartition, error: LogError) -> None:
        """Raises what is none of this log alone."""
        if isinstance(error, _OF_ALL_LOGS):
            raise error
        self.count += 1
        self._failing[partition] = error

    def worked(self, partition: DafkaPartition) -> None:
        """The log does what it is to do."""
        if self._failing:
            self._failing.pop(partition, None)
