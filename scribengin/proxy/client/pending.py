"""What waits in a client's writer to be sent, and who is told what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write.results import Ack, SlotRange

FUTURE_BYTES = 1536
"""What a record that was written by itself takes in memory while it waits: its future, mostly."""


@dataclass(slots=True)
class SingleRecord:
    """A record that was written by itself. With `txids` it has a transaction id of its own."""

    record: Record
    txids: bool
    future: Future[DLSN] = field(default_factory=Future)
    records = 1
    alone = False

    @property
    def size_bytes(self) -> int:
        return self.record.size_bytes

    def written(self, runs: Sequence[SlotRange]) -> None:
        if not self.future.done():
            self.future.set_result(runs[0].first)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class BatchPart:
    """Records of a batch that go together. `alone`: in a request of their own. `last`: the batch ends with them."""

    body: pa.RecordBatch
    txids: bool
    ack: Ack[Any]
    last: bool = True
    alone: bool = False
    size_bytes: int = 0

    @property
    def records(self) -> int:
        return int(self.body.num_rows)

    def written(self, runs: Sequence[SlotRange]) -> None:
        self.ack.written(runs, last=self.last)

    def fail(self, error: BaseException) -> None:
        self.ack.fail(error)


Unit = SingleRecord | BatchPart
"""What is sent, or refused, as a whole."""


def body_of(units: Sequence[Unit]) -> pa.RecordBatch:
    """The records of all of them, as BODY_SCHEMA."""
    bodies: list[pa.RecordBatch] = []
    singles: list[Record] = []
    for unit in units:
        if isinstance(unit, SingleRecord):
            singles.append(unit.record)
            continue
        if singles:
            bodies.append(body_of_records(singles))
            singles = []
        bodies.append(unit.body)
    if singles:
        bodies.append(body_of_records(singles))
    return bodies[0] if len(bodies) == 1 else pa.concat_batches(bodies)


def places_of(units: Sequence[Unit], runs: Sequence[SlotRange]) -> Iterator[tuple[Unit, list[SlotRange]]]:
    """Where the records of each stand, if those of all stand in `runs`, in order."""
    left = list(reversed(runs))
    for unit in units:
        found, missing = [], unit.records
        while missing:
            run = left.pop()
            taken = min(missing, run.records)
            found.append(SlotRange(run.first, taken))
            if taken < run.records:
                left.append(SlotRange(run.first._replace(slot=run.first.slot + taken), run.records - taken))
            missing -= taken
        yield unit, found
