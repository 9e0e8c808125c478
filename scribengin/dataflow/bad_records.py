"""Finding the records that a transformation cannot take: bisection of a range that failed. Pure but for the runs.

A failing range is cut in halves until single records fail alone. The good parts come out in order, so the round
delivers everything else; one bad record among n costs about 2 log2(n) runs, each half as large as the one before.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from scribengin.connectors.contract import PAYLOAD
from scribengin.errors import TooManyBadRecords, TransformationFailed
from scribengin.model import Position

Outputs = Mapping[str, Sequence[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Piece:
    """The records that a round read from one stream: rows in order, of the source's schema."""

    source: str
    stream: str
    start: Position
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that failed alone: the `index`-th of the range that starts at `start`."""

    source: str
    stream: str
    start: Position
    index: int
    row: pa.Table
    reason: str

    def describe(self) -> str:
        """Where it stands, for people."""
        return f"record {self.index} after {json.dumps(self.start)} of {self.source}/{self.stream}"


@dataclass(frozen=True, slots=True)
class Isolated:
    """What became of a failing range: the outputs of its good records, in order, and the bad ones."""

    outputs: dict[str, list[pa.RecordBatch]]
    bad: list[BadRecord]


def isolate(
    pieces: Sequence[Piece], run: Callable[[Mapping[str, pa.Table]], Outputs], bad_max: int, *, stop_at_first: bool
) -> Isolated:
    """Run a range that failed as a whole, in halves, down to the records that fail alone.

    Raises TooManyBadRecords beyond `bad_max`; with `stop_at_first` the first bad record is the only one in the result.
    """
    result = Isolated({}, [])
    total = sum(piece.rows.num_rows for piece in pieces)
    pending = list(reversed(_halves(0, total)))
    while pending:
        first, end = pending.pop()
        try:
            outputs = run(_tables(pieces, first, end))
        except TransformationFailed as error:
            if end - first > 1:
                pending.extend(reversed(_halves(first, end)))
                continue
            result.bad.append(_bad_record(pieces, first, error.reason))
            if stop_at_first:
                return result
            if len(result.bad) > bad_max:
                raise TooManyBadRecords(_too_many(result.bad, bad_max, total)) from error
            continue
        for name, batches in outputs.items():
            result.outputs.setdefault(name, []).extend(batches)
    return result


def error_batch(bad: Iterable[BadRecord]) -> pa.RecordBatch:
    """The error route's records: one JSON object a bad record, with where it stood, why it failed and what it was."""
    payloads = [json.dumps(_as_json(record), ensure_ascii=False).encode() for record in bad]
    return pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])


def _halves(first: int, end: int) -> list[tuple[int, int]]:
    middle = (first + end) // 2
    return [(a, b) for a, b in ((first, middle), (middle, end)) if a < b]


def _tables(pieces: Sequence[Piece], first: int, end: int) -> dict[str, pa.Table]:
    """Rows [first, end) of all pieces laid end to end, as one table a source (empty where the slice misses it)."""
    slices: dict[str, list[pa.Table]] = {}
    at = 0
    for piece in pieces:
        begin, stop = max(first - at, 0), min(end - at, piece.rows.num_rows)
        slices.setdefault(piece.source, []).append(piece.rows.slice(begin, max(stop - begin, 0)))
        at += piece.rows.num_rows
    return {source: pa.concat_tables(tables) for source, tables in slices.items()}


def _bad_record(pieces: Sequence[Piece], index: int, reason: str) -> BadRecord:
    at = index
    for piece in pieces:
        if at < piece.rows.num_rows:
            return BadRecord(piece.source, piece.stream, piece.start, at, piece.rows.slice(at, 1), reason)
        at -= piece.rows.num_rows
    raise IndexError(f"record {index} of {sum(piece.rows.num_rows for piece in pieces)}")


def _as_json(record: BadRecord) -> dict[str, object]:
    row = {name: _shown(value) for name, value in record.row.to_pylist()[0].items()}
    return {
        "source": record.source,
        "stream": record.stream,
        "after": record.start,
        "index": record.index,
        "reason": record.reason,
        # A record's columns are known; those of a table may be called like ours.
        **(row if PAYLOAD in row else {"record": row}),
    }


def _shown(value: object) -> object:
    """A value as JSON has it; what JSON has nothing for, as text."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        return {str(_shown(key)): _shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _too_many(bad: Sequence[BadRecord], bad_max: int, total: int) -> str:
    return (
        f"more than errors.records_max = {bad_max} of the {total} records of one round failed, so it is not the "
        "records; "
        f"the first is {bad[0].describe()}: {bad[0].reason}"
    )
