"""A streaming query, as the rounds of a task with state use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from scribengin.spark.stateful.offers import BoundRange, Offset
from scribengin.spark.stateful.query import ExecutedBatch
from scribengin.spark.transform.spec import Misplaced, StateReport

Offsets = Mapping[str, Offset]
"""By source."""


class BatchQuery(Protocol):
    """A started query (TransformationQuery is the one)."""

    by_clock: bool
    """Whether it runs batches as time goes by, which nobody has offered."""

    def bind(self, bound: BoundRange) -> None:
        """What a batch reads that begins and ends there."""
        ...

    def offer(self, offsets: Offsets) -> None:
        """Have it run a batch up to these offsets."""
        ...

    def next_batch(self) -> ExecutedBatch | None:
        """The next batch, executed, or None when nothing came of the last offer, nor will."""
        ...

    def has_batch(self) -> bool:
        """Whether one is there already."""
        ...

    def finish(self, batch: ExecutedBatch) -> None:
        """The batch is committed: it may be written down as done."""
        ...

    def state(self) -> StateReport:
        """How much state it has, as of the last batch that is done."""
        ...

    def watermark(self) -> int:
        """How far that of the earliest source is behind all batches that are finished, in milliseconds; 0: there is
        none yet. The next batch drops nothing that is after it."""
        ...

    def watermarks(self) -> Mapping[str, int | None]:
        """How far the watermark of each source is, as of the last batch that is done."""
        ...

    def stop(self) -> None:
        """End it, once."""
        ...


@runtime_checkable
class StreamTransform(Protocol):
    """The user's transformation over streams (StatefulTransformation is the one)."""

    def start(
        self, checkpoint: str, initial: Offsets, bound: Sequence[BoundRange], read: Sequence[str] | None
    ) -> BatchQuery:
        """Start the query in its checkpoint's directory, a URL, over streams that began at `initial`. A batch that
        stands planned there runs at once, and reads what is `bound`. `read`: the sources as its batches there have
        them, in their order; None: there is none. Raises CheckpointMismatch: it would have them in another order."""
        ...

    def divide(self, checkpoint: str, partitions: int, before: int | None) -> None:
        """Divide the state in a checkpoint's directory, a URL, into so many partitions, while no query runs there: as
        the next batch, or as the one that was begun so. `before`: in how many it is, where that number may be wanted
        again; None where it may not. Raises CheckpointMismatch: it cannot be divided."""
        ...

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> Mapping[str, Mapping[int, str]]:
        """The rows that cannot be decoded, by source, and why: one look at all of them."""
        ...

    def misplaced(self, source: str, streams: Mapping[int, pa.Table]) -> Misplaced | None:
        """The first of some records of a divided source, by their streams' numbers, that belongs to another stream."""
        ...
