"""Positions shown where Kafka's usual tools look: committed to a consumer group, from a thread of its own.

A mirror and no more: nothing is ever read from there, so it may lag, and it may fail. Offsets are coalesced: one
request a second, whatever number of rounds was committed.
"""

from __future__ import annotations

import logging
import threading

from scribengin.base.diagnostics import tagged
from scribengin.base.threads import background, started
from scribengin.connectors.kafka.client.client import KafkaControl, Partition
from scribengin.errors import ScribenginError

_LOG = logging.getLogger(__name__)

PERIOD_S = 1.0


class GroupMirror:
    """Commits the positions of one source to one group. Thread-safe. Its thread is made by the first `show`."""

    def __init__(self, cluster: KafkaControl, group: str) -> None:
        self.failures = 0
        """How many requests have failed; what they would have shown is shown by the next."""
        self._told: type[ScribenginError] | None = None
        """What is in the way, as it was told."""
        self._cluster = cluster
        self._group = group
        self._pending: dict[Partition, int] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, partition: Partition, offset: int) -> None:
        """Let the group's offset be this one, soon. Does not block."""
        with self._lock:
            self._pending[partition] = offset
            if self._thread is None and not self._closing.is_set():
                self._thread = started(background("kafka-mirror", self._run))
        self._woken.set()

    def close(self) -> None:
        """Commit what is left, once, and end the thread. Idempotent."""
        self._closing.set()
        self._woken.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait()
            self._woken.clear()
            self._commit()
            self._closing.wait(PERIOD_S)
        self._commit()

    def _commit(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        if not pending:
            return
        try:
            self._cluster.commit_group(self._group, pending)
            self._told = None
        except ScribenginError as error:
            self.failures += 1
            if self._told is not type(error):
                self._told = type(error)
                _LOG.warning(
                    f"group {self._group} does not show positions (they are safe): {error}",
                    extra=tagged("mirror_failed"),
                )
            with self._lock:
                self._pending = {**pending, **self._pending}
            self._woken.set()
