"""What the partitions hold that this process reads: asked of the cluster all at once, and kept for a moment.

A plan needs to know where a partition begins and ends and that its topic is still the same, and many streams of one
worker plan one after the other. So one look is at all of them, and serves for LOOK_AGE_MAX_S, unless somebody has read
everything that it found. How far the watch (watching.py) has seen records moves an end on without a request.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

from scribengin.base.clock import Clock
from scribengin.connectors.kafka.client.client import KafkaControl, Partition
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.errors import ScribenginError

LOOK_AGE_MAX_S = 0.2
"""How old a look may be that a range is planned from: a topic that was made anew is found out this much later."""
_SAME_TURN_S = 0.005
"""So young a look is as good as a new one: tasks that look one after the other share it."""


class PartitionWatch:
    """The partitions that are open for reading, of one cluster and with one isolation. Thread-safe."""

    def __init__(self, cluster: KafkaControl, isolation: str, clock: Clock) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._clock = clock
        self._open: Counter[Partition] = Counter()
        self._found: dict[Partition, PartitionEnds | ScribenginError] = {}
        self._looked_s = float("-inf")
        self._asking = threading.Lock()
        self._lock = threading.Lock()

    def add(self, partition: Partition) -> None:
        """Look at this one, too, from now on."""
        with self._lock:
            self._open[partition] += 1

    def remove(self, partition: Partition) -> None:
        """One reader of it less."""
        with self._lock:
            self._open[partition] -= 1
            if self._open[partition] <= 0:
                del self._open[partition]
                self._found.pop(partition, None)

    def beyond(self, partition: Partition, offset: int) -> PartitionEnds:
        """What the partition holds, by a new look if the last one was too long ago or found nothing from `offset` on.

        Raises SystemUnreachable, ConfigInvalid, DataflowError.
        """
        with self._lock:
            found = self._found.get(partition)
            fresh = self._clock.monotonic_s() - self._looked_s < LOOK_AGE_MAX_S
        if fresh and isinstance(found, PartitionEnds) and found.end > offset:
            return found
        return self._look(partition, self._clock.monotonic_s())

    def now(self, partition: Partition) -> PartitionEnds:
        """What the partition holds just now. Raises as `beyond`."""
        return self._look(partition, self._clock.monotonic_s() - _SAME_TURN_S)

    def known_end(self, partition: Partition) -> int:
        """How far it is known to reach, without asking; 0 when nothing is known."""
        with self._lock:
            found = self._found.get(partition)
        return found.end if isinstance(found, PartitionEnds) else 0

    def seen(self, partition: Partition, end: int) -> None:
        """Everything before `end` is there to be read: the watch has seen it."""
        with self._lock:
            found = self._found.get(partition)
            if isinstance(found, PartitionEnds) and found.end < end:
                self._found[partition] = replace(found, end=end)

    def _look(self, partition: Partition, not_before_s: float) -> PartitionEnds:
        with self._asking:
            with self._lock:
                here, asked = self._found.get(partition), sorted({*self._open, partition})
            if self._looked_s < not_before_s or here is None:
                looked_s = self._clock.monotonic_s()
                found = self._cluster.ends(asked, self._isolation)
                here = found[partition]  # its reader may be closed by now, and others may have looked without it
                with self._lock:
                    self._found = found
                    self._looked_s = looked_s
        if isinstance(here, ScribenginError):
            raise here
        return here
