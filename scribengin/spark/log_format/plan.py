"""What to read of which log: planned where the registry can be asked, read by Python workers that need the files alone.

    planning process                                   Python workers
    LogPlanner: names -> range of each log -> splits   LogPartition: splits -> Arrow batches

A plan is made from headers; a range between two positions of a log holds the same records for ever. So a task that is
run again reads what the first one read, and what is appended meanwhile belongs to the next query, or micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType

from scribengin.base.names import a_few
from scribengin.base.text.counting import many
from scribengin.errors import ConfigInvalid, PositionTruncated, SourceMissing
from scribengin.log import DLSN, EntryRange, LogNamespace, LogReader, SequenceId, TransactionId
from scribengin.log.read.batches import with_place
from scribengin.log.read.ranges import joined
from scribengin.spark.arrow_files import conform
from scribengin.spark.log_format.filters import Range, Wanted
from scribengin.spark.log_format.options import FORMAT, LATEST, LogReadOptions
from scribengin.spark.transform.input import pieces

COLUMNS: dict[str, DataType] = {
    "log": StringType(),
    "txid": LongType(),
    "type": IntegerType(),
    "channel": StringType(),
    "key": BinaryType(),
    "payload": BinaryType(),
    "segment": LongType(),
    "entry": LongType(),
    "slot": LongType(),
    "sequence_id": LongType(),
}
"""What a record looks like to Spark. (segment, entry, slot) is its DLSN."""
_PLACE = frozenset({"segment", "entry", "slot", "sequence_id"})
BYTES_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class LogRange:
    """The records of one log in [start, end), of which there are `records`."""

    log: str
    start: DLSN
    end: DLSN
    records: int


@dataclass
class LogPartition(InputPartition):
    """Consecutive splits of one segment: what one task reads."""

    log: str
    splits: tuple[EntryRange, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries that are read."""
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads partitions in a Python worker, where there is neither a registry nor a session. Picklable."""

    schema: StructType
    wanted: Wanted

    def read(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        """The wanted rows of the wanted columns, mapped from the log's files where nothing is left out.

        Raises DamagedEntry, RangeGone (the file is not there any more: a query that is planned anew finds what is).
        """
        schema = to_arrow_schema(self.schema, timezone="UTC")
        placed = not _PLACE.isdisjoint(schema.names) or not self.wanted.sequence_id.everything
        for split in partition.splits:
            for batch in joined(_bodies(split, placed=placed)):
                rows = self.wanted.rows(batch)
                if "log" in schema.names:
                    rows = rows.append_column("log", pa.repeat(pa.scalar(partition.log), rows.num_rows))
                if rows.num_rows:
                    yield from pieces(conform(rows, schema))


class LogPlanner:
    """Says what there is to read, as long as its namespace is open. Not thread-safe."""

    def __init__(self, namespace: LogNamespace, options: LogReadOptions) -> None:
        self.namespace = namespace
        self._options = options

    def matching(self) -> list[str]:
        """The names of the logs that the option `log` matches just now, in the order in which people count."""
        return self.namespace.matching(self._options.log)

    def logs(self, wanted: Wanted) -> list[str]:
        """The names of the logs to read. Raises SourceMissing if there is none, ConfigInvalid if they are too many."""
        found = self.matching()
        if not found:
            raise SourceMissing(
                f"option 'log' of format '{FORMAT}': no log in {self._options.namespace} is called "
                f"'{self._options.log}' (there are: {a_few(self.namespace.names())})"
            )
        if len(found) > 1 and any(isinstance(b, DLSN) for b in (self._options.start_bound, self._options.end_bound)):
            raise ConfigInvalid(
                f"option 'log' of format '{FORMAT}': '{self._options.log}' matches {many(len(found), 'log')}, and a "
                "DLSN is a place in one of them: give start and end as earliest, latest, txid:<number> or time:<...>"
            )
        return [name for name in found if wanted.takes(name)]

    def batch_range(self, log: str, wanted: Wanted) -> LogRange | None:
        """What a query that starts now reads of `log`, by its options and its filters; None: nothing.

        Raises PositionTruncated, InconsistentLog (it never had such a position).
        """
        info = self.namespace.info(log)
        start, end = self._options.start_bound, self._options.end_bound
        first = info.end if self._options.start == LATEST else info.first
        if isinstance(start, DLSN) and start != DLSN.INITIAL:
            first = start
        last = min(end, info.end) if isinstance(end, DLSN) else info.end
        if wanted.segment.first is not None:
            first = max(first, DLSN(wanted.segment.first, 0, 0))
        if wanted.segment.end is not None:
            last = min(last, DLSN(wanted.segment.end, 0, 0))
        if info.log.config.check_txids:
            first, last = self._between(log, wanted.txid, TransactionId, first, last)
        first, last = self._between(log, wanted.sequence_id, SequenceId, first, last)
        records = self.namespace.count(log, first, last) if first < last else 0
        return LogRange(log, first, last, records) if records > 0 else None

    def partitions(self, reader: LogReader, wanted: LogRange) -> list[LogPartition]:
        """Partitions that read the range, in order. Raises PositionTruncated, DamagedEntry."""
        splits: list[EntryRange] = []
        start, left = wanted.start, wanted.records
        while left > 0 and (plan := reader.plan(start, left, BYTES_UNLIMITED)) is not None:
            splits.extend(plan.splits)
            start, left = plan.end, left - plan.records
        return self.grouped(wanted.log, splits)

    def grouped(self, log: str, splits: Sequence[EntryRange]) -> list[LogPartition]:
        """Partitions that read the splits, in order."""
        return list(_grouped(log, splits, self._options.partition_bytes))

    def place(self, log: str, start: TransactionId | SequenceId) -> DLSN:
        """Where the first record stands that `start` names, or where its entry begins. Raises PositionTruncated."""
        with closing(self.namespace.open_reader(log, start)) as reader:
            return reader.position

    def _between(
        self, log: str, wanted: Range, start: type[TransactionId] | type[SequenceId], first: DLSN, last: DLSN
    ) -> tuple[DLSN, DLSN]:
        """What is left of [first, last) by a range of numbers that never decrease in the log."""
        if wanted.first is not None and first < last:
            with suppress(PositionTruncated):  # all that is left comes after it
                first = max(first, self.place(log, start(wanted.first)))
        if wanted.end is not None and first < last:
            try:
                segment, entry, _slot = self.place(log, start(wanted.end))
                last = min(last, DLSN(segment, entry + 1, 0))  # smaller ones may stand in the same entry
            except PositionTruncated:
                last = first
        return first, last


def _grouped(log: str, splits: Sequence[EntryRange], bytes_min: int) -> Iterator[LogPartition]:
    """Neighbours of one segment together, until they have so many bytes."""
    group: list[EntryRange] = []
    for split in splits:
        full = sum(other.size_bytes for other in group) >= bytes_min
        if group and (full or group[-1].segment != split.segment):
            yield LogPartition(log, tuple(group))
            group = []
        group.append(split)
    if group:
        yield LogPartition(log, tuple(group))


def _bodies(split: EntryRange, *, placed: bool) -> Iterator[pa.RecordBatch]:
    """The wanted records of each entry, as BODY_SCHEMA or (where each stands) READ_SCHEMA."""
    for header, slot, body in split.entries():
        place = (split.segment, header.entry, slot, header.sequence + slot)
        yield with_place(body, *place) if placed else body
