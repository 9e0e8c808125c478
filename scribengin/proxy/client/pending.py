"""What waits in a client to be sent, and who is told what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from scribengin.base.threads import FUTURE_BYTES, LightFuture
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write.results import Ack, SlotRange


@dataclass(slots=True, eq=False)
class WriterShare:
    """What one of the writers that send together has under way, and how it stands. Guarded by the sender's lock."""

    durable: bool
    """Whether futures wait until records are durable. Else the first error ends the writer: nobody else hears of it."""
    pending_bytes: int = 0
    pending_units: int = 0
    last_dlsn: DLSN = DLSN.INVALID
    failure: BaseException | None = None
    failure_raised: bool = False
    closed: bool = False


class SingleRecord:
    """A record that was written by itself. With `txids` it has a transaction id of its own. It was queued at
    `since_s`."""

    __slots__ = ("future", "held_bytes", "owner", "record", "since_s", "size_bytes", "txids")
    records = 1
    atomic = False

    def __init__(self, owner: WriterShare, record: Record, txids: bool) -> None:
        self.owner = owner
        self.record = record
        self.txids = txids
        self.future: Future[DLSN] = LightFuture()
        self.size_bytes = record.size_bytes
        self.held_bytes = self.size_bytes + FUTURE_BYTES
        self.since_s = 0.0

    def written(self, runs: Sequence[SlotRange]) -> None:
        if not self.future.done():
            with suppress(InvalidStateError):  # its writer is being aborted by another thread
                self.future.set_result(runs[0].first)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            with suppress(InvalidStateError):
                self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class BatchPart:
    """Records of a batch that go together. `atomic`: in a request of their own, and readers see all of them or none.
    `last`: the batch ends with them. `since_s`: when they were queued."""

    owner: WriterShare
    body: pa.RecordBatch
    txids: bool
    ack: Ack[Any]
    last: bool = True
    atomic: bool = False
    size_bytes: int = 0
    since_s: float = 0.0

    @property
    def records(self) -> int:
        return int(self.body.num_rows)

    @property
    def held_bytes(self) -> int:
        return self.size_bytes

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
    left = iter(runs)
    (segment, entry, slot), unused = next(left)
    for unit in units:
        found = []
        missing = unit.records
        while missing:
            if not unused:
                (segment, entry, slot), unused = next(left)
            taken = min(missing, unused)
            found.append(SlotRange(DLSN(segment, entry, slot), taken))
            slot += taken
            unused -= taken
            missing -= taken
        yield unit, found


def rest_of(queue: Iterable[Unit], units: Iterable[Unit]) -> list[Unit]:
    """What the queue holds of the batches that the units are of."""
    acks = {id(unit.ack) for unit in units if isinstance(unit, BatchPart)}
    return [unit for unit in queue if isinstance(unit, BatchPart) and id(unit.ack) in acks] if acks else []
