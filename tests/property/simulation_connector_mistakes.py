"""Mistakes of protocol in our own sources and in merging, put in one at a time: what simulations on topics and on files
are there to find.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scribengin.connectors.contract import PlannedRange
from scribengin.connectors.files.sink import merge
from scribengin.connectors.files.sink.segments import MergeDescriptor
from scribengin.connectors.files.source import listing
from scribengin.connectors.kafka.source.source import KafkaStreamReader
from scribengin.testing.simulation.plan import Storage
from scribengin.testing.simulation.streams.kafka import KafkaStreams
from tests.property.simulation_log_mistakes import Aim
from tests.property.simulation_mistakes import Mistake


def merge_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    """A merge takes the segments that came last, and those before them with the next one."""
    real = merge.due

    def due(waiting: Any, **limits: Any) -> Any:
        return real(waiting[-1:], **limits)

    patch.setattr(merge, "due", due)


def merge_without_version(patch: pytest.MonkeyPatch) -> None:
    """A merge is decided and finished whatever another master has written meanwhile."""

    class Blind:
        def __init__(self, registry: Any) -> None:
            self._registry = registry

        def set(self, path: str, data: bytes, _version: int) -> int:
            written: int = self._registry.set(path, data)
            return written

    for step in ("_merge", "_finish"):
        real = getattr(merge.StreamMerge, step)
        patch.setattr(
            merge.StreamMerge, step, lambda self, registry, *what, real=real: real(self, Blind(registry), *what)
        )


def read_segments_beside_their_merge(patch: pytest.MonkeyPatch) -> None:
    """Readers forget that a merge that is on its way may be in its place."""
    patch.setattr(MergeDescriptor, "holds", lambda self, key: self.is_final(key))


def read_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A source of Kafka shows what a transaction has written that may be aborted."""
    real = KafkaStreams.source_config
    patch.setattr(KafkaStreams, "source_config", lambda self: {**real(self), "isolation": "read_uncommitted"})


def count_records_for_offsets(patch: pytest.MonkeyPatch) -> None:
    """A source of Kafka takes so many offsets for read as there were records: marks of transactions are no records."""

    def plan(self: Any, position: Any, limits: Any) -> PlannedRange | None:
        planned: PlannedRange | None = real(self, position, limits)
        if planned is None:
            return None
        rows = sum(batch.num_rows for split in planned.splits for batch in split.read())
        return replace(planned, end={**planned.end, "offset": planned.start["offset"] + rows})

    real = KafkaStreamReader.plan
    patch.setattr(KafkaStreamReader, "plan", plan)


def spread_files_by_their_names_of_now(patch: pytest.MonkeyPatch) -> None:
    """A file that is renamed while it is read may come to another stream, which knows nothing of it."""
    patch.setattr(listing, "unrotated", lambda name: name)


CONNECTOR_MISTAKES: dict[Mistake, tuple[Storage, Aim]] = {
    merge_the_newest_first: ("files", Aim(0)),
    merge_without_version: (
        "files",
        Aim(18, ("zombie", "files.merge_write:after"), ("zombie", "files.merge_decide:before")),
    ),
    read_segments_beside_their_merge: ("files", Aim(3)),
    read_what_is_not_committed: ("kafka", Aim(0)),
    count_records_for_offsets: ("kafka", Aim(0)),
    spread_files_by_their_names_of_now: ("files", Aim(0)),
}
