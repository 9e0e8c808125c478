"""A topic of Dafka as a source: every producer is a stream, and a position is a sequence of it.

One follower of the topic serves all readers of a process. A round's records travel in its splits: Spark's workers ask
nobody. So a range reads the same again whoever has died meanwhile, and costs the memory that a round's limits allow.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import (
    RECORD_SCHEMA,
    PlannedRange,
    RoundLimits,
    Source,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.dafka.config import DafkaSourceConfig, roles_config
from scribengin.dafka import DafkaFollower, DafkaPartition
from scribengin.dafka.state import HeldRecords, HoldLimits
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    PositionTruncated,
    RecordsGone,
    SourceMissing,
    SystemUnreachable,
)

SCHEMA = pa.schema(
    [
        *RECORD_SCHEMA,
        pa.field("topic", pa.string()),
        pa.field("producer", pa.string()),
        pa.field("sequence", pa.int64()),
    ]
)
"""What the transformation sees. `txid`, `channel` and `key` are null: the wire has no place for them."""
_SPLIT_BYTES = 1024 * 1024
_SPLIT_RECORDS = 20_000
_ASKED_S = 10.0
"""Who is asked for a record answers by then, or says so often that it is gone that it counts."""


@dataclass(frozen=True, slots=True)
class DafkaSplit:
    """Records of one producer, which travel with the split."""

    rows: pa.RecordBatch
    partition: DafkaPartition

    @property
    def records(self) -> int:
        return int(self.rows.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.rows

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """Topic, producer and sequence. Records say themselves where they stand."""
        subject, address = self.partition
        return [f"topic {subject}, producer {address}, sequence {at}" for at in rows.column("sequence")]


def splits_of(partition: DafkaPartition, held: HeldRecords) -> tuple[DafkaSplit, ...]:
    """The records, cut into pieces of about equal size: workers read them side by side."""
    total = sum(map(len, held.contents))
    count = max(1, total // _SPLIT_BYTES, len(held.contents) // _SPLIT_RECORDS)
    each = -(-len(held.contents) // count)
    return tuple(
        DafkaSplit(_rows(partition, held.first + at, held.contents[at : at + each]), partition)
        for at in range(0, len(held.contents), each)
    )


def _rows(partition: DafkaPartition, first: int, contents: list[bytes]) -> pa.RecordBatch:
    count = len(contents)
    columns = [
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.binary()),
        pa.array(contents, pa.binary()),
        pa.repeat(pa.scalar(partition.subject, pa.string()), count),
        pa.repeat(pa.scalar(partition.address, pa.string()), count),
        pa.array(np.arange(first, first + count, dtype=np.int64)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class DafkaSource(Source):
    """A topic."""

    def __init__(self, name: str, config: DafkaSourceConfig, has_tasks: Callable[[], bool] = lambda: False) -> None:
        """`has_tasks`: whether the dataflow has been split already: what is found now is new."""
        self._name = name
        self._config = config
        self._has_tasks = has_tasks
        self._making = threading.Lock()
        self._made: DafkaFollower | None = None

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def record_bytes_max(self) -> int | None:
        return self._config.record_bytes_max

    def follower(self) -> DafkaFollower:
        """Whoever follows the topic for this process, once it knows who is there: another one where that has failed.
        Raises SystemUnreachable where no tower answers, and DafkaError."""
        with self._making:
            if self._made is None or self._made.failure is not None:
                limits = HoldLimits(bytes_max=self._config.held_bytes_max)
                skip = self._config.skip_gone
                self._made = DafkaFollower(
                    self._config.topic, roles_config(self._config), skip_gone=skip, limits=limits
                )
            made = self._made
        if not made.settle():
            towers = ", ".join(self._config.beacon.pub_address)
            keys = "" if self._config.curve is None else " that has this key among its allowed ones"
            raise SystemUnreachable(f"source '{self._name}': no tower{keys} answers at {towers}: start one")
        return made

    def streams(self) -> list[SourceStreamDescriptor]:
        ends = self.follower().ends()
        if not ends:
            raise SourceMissing(
                f"source '{self._name}': no producer of topic '{self._config.topic}' is known, and no store keeps "
                "records of one; correct `topic`, or start what publishes there first"
            )
        described = self._config.start == "latest" and not self._has_tasks()
        return [
            SourceStreamDescriptor(
                source=self._name,
                name=f"{partition.subject}/{partition.address}",
                data={"sequence": end} if described else {},
            )
            for partition, end in sorted(ends.items())
        ]

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        return DafkaStreamReader(self._name, self.follower(), stream, self._config.forget_after_s)

    def goes_on(self, stream: SourceStreamDescriptor, position: Position) -> bool:
        after_s, follower = self._config.forget_after_s, self.follower()
        partition = _partition(stream)
        if after_s is None or follower.end_of(partition) > _sequence(self._name, stream, position):
            return True
        return follower.has_heard(partition, after_s)

    @property
    def streams_leave(self) -> bool:
        return True  # also if none is forgotten any more: those that were have left

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        end = self.follower().end_of(_partition(stream))
        if at.kind == "earliest":
            return {"sequence": 0}
        if at.kind == "latest":  # one of whom nobody tells just now goes back nowhere
            stands = 0 if before is None else _sequence(self._name, stream, before)
            return {"sequence": max(end, stands)}
        if at.kind != "offset":
            return super().position_at(stream, at, before)
        if not 0 <= int(at.value) <= end:
            raise ConfigInvalid(f"source '{self._name}': {stream.name} has sequences from 0 to {end - 1}")
        return {"sequence": int(at.value)}

    def close(self) -> None:
        with self._making:
            if self._made is not None:
                self._made.close()


class DafkaStreamReader(SourceStreamReader):
    """Reads one producer's records. A position is `{"sequence": n}`, that of the record to read next."""

    def __init__(
        self, source: str, follower: DafkaFollower, stream: SourceStreamDescriptor, forget_after_s: float | None
    ) -> None:
        self._source = source
        self._follower = follower
        self._stream = stream
        self._forget_after_s = forget_after_s
        self._partition = _partition(stream)
        self._opened_s = SYSTEM_CLOCK.monotonic_s()
        """A producer that this process alone does not hear ends no task as soon as it has begun: whoever has it run
        again would do so for ever."""

    def initial_position(self) -> Position:
        return {"sequence": self._stream.data.get("sequence", 0)}

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        self._follower.follow(self._partition, _sequence(self._source, self._stream, position))
        try:
            held = self._follower.held(self._partition, limits.records_max, limits.bytes_max)
        except RecordsGone as error:
            raise PositionTruncated(
                f"source '{self._source}': {error}; set `skip_gone` to go on with what is kept, or rewind the stream"
            ) from None
        if not held.contents:
            moved = held.first > _sequence(self._source, self._stream, position)  # nobody keeps what was before
            return PlannedRange(position, {"sequence": held.first}, 0, ()) if moved else None
        end = held.first + len(held.contents)
        return PlannedRange(position, {"sequence": end}, len(held.contents), splits_of(self._partition, held))

    def wait(self, position: Position, timeout_s: float) -> bool:
        sequence = _sequence(self._source, self._stream, position)
        self._follower.follow(self._partition, sequence)
        try:
            return self._follower.wait(self._partition, sequence, timeout_s)
        except RecordsGone:
            return True  # `plan` says of it

    def lag(self, position: Position) -> int:
        return max(0, self._follower.end_of(self._partition) - _sequence(self._source, self._stream, position))

    def refuse_gone(self, position: Position) -> None:
        """Nobody knows but who keeps it: it is asked for, and what has not come by then may come still."""
        sequence = _sequence(self._source, self._stream, position)
        if sequence == 0 or self.lag(position) == 0:  # the first record is the first that is kept
            return
        self._follower.follow(self._partition, sequence)
        try:
            self._follower.wait(self._partition, sequence, _ASKED_S)
            first = self._follower.held(self._partition, 1, 1).first
        except RecordsGone as error:
            raise PositionTruncated(f"source '{self._source}': {error}") from None
        if first > sequence:
            raise PositionTruncated(
                f"source '{self._source}': nobody keeps the records of {self._stream.name} from {sequence} to "
                f"{first - 1} any more"
            )

    def ended(self, position: Position) -> bool:
        """Whether all is read, and the producer is thought to have gone. It may only be out of reach: then its task
        goes on here once it is heard of (`DafkaSource.goes_on`)."""
        after_s = self._forget_after_s
        if after_s is None or self.lag(position) > 0:
            return False
        return self._follower.is_silent(self._partition, after_s, self._opened_s)

    def close(self) -> None:
        self._follower.leave(self._partition)


def _sequence(source: str, stream: SourceStreamDescriptor, position: Position) -> int:
    sequence = position.get("sequence")
    if not isinstance(sequence, int) or sequence < 0:
        said = json.dumps(position)[:200]
        raise DataflowError(f"source '{source}', {stream.name}: {said} is no position; restore the stream's commit log")
    return sequence


def _partition(stream: SourceStreamDescriptor) -> DafkaPartition:
    return DafkaPartition(*stream.name.rsplit("/", 1))
