"""Whether the records of a divided source stand in the streams where their keys belong: looks at some of them.

A record in a wrong stream would be counted in another task than the others of its key. Whoever writes by another rule
does so from its first record on, so a look now and then finds it: at the first range that is read of a stream after a
take-over, and at the first one a minute later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import PlannedRange
from scribengin.dataflow.round.bad_records import Piece
from scribengin.errors import RecordMisplaced
from scribengin.spark.transform.spec import Misplaced

LOOK_EVERY_S = 60.0
LOOKED_AT_MAX = 1000
LOOKED_AT_BYTES_MAX = 1024 * 1024
"""So many records of a range are looked at, from its start, and so many bytes of them; one record at least."""


Look = Callable[[str, Mapping[int, pa.Table]], Misplaced | None]
"""From a source and records of it, by the numbers of their streams, to the first that is in a wrong one."""


@dataclass(frozen=True, slots=True)
class KeyedRange:
    """What is going to be read of one stream of a divided source."""

    source: str
    stream: str
    number: int
    plan: PlannedRange
    schema: pa.Schema


class KeyLooks:
    """Those of one task. Used by one thread."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._looked_s: dict[tuple[str, int], float] = {}
        """By source and stream."""

    def refuse_misplaced(self, ranges: Iterable[KeyedRange], now_s: float) -> None:
        """Look at those of the sources that it is time for. Raises RecordMisplaced, and what reading and looking
        raises."""
        by_source: dict[str, dict[int, KeyedRange]] = {}
        for one in ranges:
            by_source.setdefault(one.source, {})[one.number] = one
        for source, of_source in by_source.items():
            if not any(self._is_due(source, number, now_s) for number in of_source):
                continue  # a look is a job: one for all streams of a source that are there
            found = self._look(source, {number: _first_rows(one.plan, one.schema) for number, one in of_source.items()})
            if found is not None:
                raise _refused(of_source[found.number], found)
            self._looked_s |= dict.fromkeys([(source, number) for number in of_source], now_s)

    def _is_due(self, source: str, number: int, now_s: float) -> bool:
        return now_s - self._looked_s.get((source, number), float("-inf")) >= LOOK_EVERY_S


def _first_rows(plan: PlannedRange, schema: pa.Schema) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    left, bytes_left = LOOKED_AT_MAX, LOOKED_AT_BYTES_MAX
    for split in plan.splits:
        for batch in split.read():
            fitting = max(1, batch.num_rows * bytes_left // max(1, batch.nbytes))
            batches.append(batch.slice(0, min(left, fitting)))
            left -= batches[-1].num_rows
            bytes_left -= batches[-1].nbytes
            if left <= 0 or bytes_left <= 0 or fitting < batch.num_rows:
                return pa.Table.from_batches(batches, schema=schema)
    return pa.Table.from_batches(batches, schema=schema)


def _refused(one: KeyedRange, found: Misplaced) -> RecordMisplaced:
    whole = Piece.read(one.source, one.stream, one.plan, one.schema)
    [place] = whole.places([found.row])
    return RecordMisplaced(
        f"{place}, of {one.source}/{one.stream}, has the key '{found.key}', which belongs to stream {found.belongs} of "
        f"sources.{one.source} and not to {one.number}: its writer does not divide by `partition_by` among `streams` "
        "as a log sink does. Have one write other logs, and submit a dataflow that reads those"
    )
