"""Whether the records of a divided source stand in the streams where their keys belong: looks at some of them.

A record in a wrong stream would be counted in another task than the others of its key. Whoever writes by another rule
does so from its first record on, so a look now and then finds it: at the first range that is read of a stream after a
take-over, and at the first one a minute later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import PlannedRange
from scribengin.dataflow.round.bad_records import Piece
from scribengin.errors import RecordMisplaced
from scribengin.spark.transform.spec import Misplaced

LOOK_EVERY_S = 60.0
LOOKED_AT_MAX = 1000
"""So many records of a range are looked at, from its start."""


Look = Callable[[str, int, pa.Table], Misplaced | None]
"""From a source, a stream's number and records of it to the first that is in a wrong stream."""


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
        self._looked_s: dict[tuple[str, str], float] = {}

    def refuse_misplaced(self, ranges: Iterable[KeyedRange], now_s: float) -> None:
        """Look at those that it is time for. Raises RecordMisplaced, and what reading them and looking raises."""
        for one in ranges:
            stream = (one.source, one.stream)
            if now_s - self._looked_s.get(stream, float("-inf")) < LOOK_EVERY_S:
                continue
            rows = _first_rows(one.plan, one.schema)
            found = self._look(one.source, one.number, rows)
            if found is not None:
                raise _refused(one, rows, found)
            self._looked_s[stream] = now_s


def _first_rows(plan: PlannedRange, schema: pa.Schema) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    left = LOOKED_AT_MAX
    for split in plan.splits:
        for batch in split.read():
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if not left:
                return pa.Table.from_batches(batches, schema=schema)
    return pa.Table.from_batches(batches, schema=schema)


def _refused(one: KeyedRange, rows: pa.Table, found: Misplaced) -> RecordMisplaced:
    whole = Piece.read(one.source, one.stream, one.plan, one.schema)
    [place] = whole.places([found.row])
    return RecordMisplaced(
        f"{place}, of {one.source}/{one.stream}, has the key '{found.key}', which belongs to stream {found.belongs} of "
        f"sources.{one.source} and not to {one.number}: its writer does not divide by `partition_by` among `streams` "
        "as a log sink does. Have one write other logs, and submit a dataflow that reads those"
    )
