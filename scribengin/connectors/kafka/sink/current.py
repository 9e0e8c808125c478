"""Where a writer's records go, as its topic is now: it may get more partitions, or take larger records, at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.connectors.kafka.sink.records import Columns, Outgoing, Target, checked, outgoing
from scribengin.errors import RecordRefused, RecordTooLarge

_T = TypeVar("_T")
LOOK_AGE_MAX_S = 1.0
"""Of so old a look a refusal is believed: bad records may be many, and each look asks the cluster."""


class CurrentTarget:
    """The target of an open writer. Raises what `look` raises."""

    def __init__(self, look: Callable[[], Target], clock: Clock) -> None:
        """`look` asks the cluster."""
        self._look = look
        self._clock = clock
        self._looked_s = float("-inf")
        """When a refusal was looked into."""
        self.now = look()

    def checked(self, batch: pa.RecordBatch) -> Columns:
        """As `records.checked`, of the topic as it is now."""
        return self._by_a_new_look(checked, batch)

    def outgoing(self, batch: pa.RecordBatch) -> Outgoing:
        """As `records.outgoing`, of the topic as it is now."""
        return self._by_a_new_look(outgoing, batch)

    def _by_a_new_look(self, ask: Callable[[pa.RecordBatch, Target], _T], batch: pa.RecordBatch) -> _T:
        """By what is known, unless that refuses: then by a new look."""
        try:
            return ask(batch, self.now)
        except (RecordRefused, RecordTooLarge):
            if self._clock.monotonic_s() - self._looked_s < LOOK_AGE_MAX_S:
                raise
        found = self._look()
        self._looked_s = self._clock.monotonic_s()
        stays = self.now.partition < found.partitions  # what has no partition of its own stays in order
        self.now = replace(found, partition=self.now.partition) if stays else found
        return ask(batch, self.now)
