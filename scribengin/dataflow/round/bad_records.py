"""Finding the records that a transformation cannot take, in a range that failed. Pure but for the runs.

What cannot be decoded is found by one look at all records. If what is left fails, too, a second look says on which
records a function of theirs raises. Two of these run once more, alone. If both fail, the look is believed: the others
are looked at by themselves, and who raises again is bad. All other records run once more, together.

What still fails is cut until single records fail alone: where a failed run says at which record it stopped, there,
which costs about three runs a bad record; else in halves, about 2 log2(n) runs. The ranges of one step are run side by
side. The good parts come out in order, so the round delivers everything else.

One look and the place of a cut are only guesses: of what was decoded, no record is bad that has not failed alone, or in
two looks of which the first was right where it was tried. A run that fails is dear: Spark ends its Python workers, and
starts others. So where looks were right in one round, the next begins with them, and tries nobody alone who raises in
both.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from scribengin.base.model import Position
from scribengin.base.text.counting import many
from scribengin.connectors.contract import PAYLOAD, PlannedRange, ReadSplit
from scribengin.connectors.odd_records import LongRecord, LongSplit
from scribengin.dataflow.round.error_records import error_record, fair_share
from scribengin.dataflow.round.long_records import too_long, unfit_rows
from scribengin.errors import ScribenginError, TooManyBadRecords, TransformationFailed

Outputs = Mapping[str, Sequence[pa.RecordBatch]]
Run = Callable[[Mapping[str, pa.Table]], Outputs]
"""Transforms records in hand. Raises TransformationFailed. Several threads may call it at once."""
Undecodable = Callable[[Mapping[str, pa.Table]], Mapping[str, Mapping[int, str]]]
"""By source, the rows that cannot be decoded, and why."""
Suspects = Callable[[Mapping[str, pa.Table]], Mapping[str, Mapping[int, str]]]
"""By source, the rows on which a function of the transformation seems to raise, and what: "" where a row is a guess."""
RUNS_AT_ONCE = 2
SUSPECTS_AT_ONCE = 8
"""So many run alone before anybody is told: it must be seen to go on, and guesses that are wrong must cost little."""
SUSPECTS_TRIED = RUNS_AT_ONCE
"""So many run alone before the look that named them is believed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The records that a round read from one stream: rows in order, of the source's schema."""

    source: str
    stream: str
    start: Position
    rows: pa.Table
    splits: tuple[tuple[int, ReadSplit], ...] = ()
    """What was read, and how many rows each gave."""
    unfit: Mapping[int, str] = field(default_factory=dict)
    """The rows that nobody else may be given, and why: too long for the source, or not read whole."""
    cut: Mapping[int, LongRecord] = field(default_factory=dict)
    """Of those, the ones that are not here as a whole."""

    @classmethod
    def read(
        cls, source: str, stream: str, plan: PlannedRange, schema: pa.Schema, record_bytes_max: int | None = None
    ) -> Piece:
        """Read a planned range. Raises what reading its splits raises."""
        rows = schema.empty_table()
        counts: list[int] = []
        unfit: dict[int, str] = {}
        cut: dict[int, LongRecord] = {}
        for split in plan.splits:
            if isinstance(split, LongSplit):
                cut[rows.num_rows] = whole = split.examine()
                unfit[rows.num_rows] = too_long(whole.size_bytes, split.bytes_max)
                table = _row_of(whole.beginning, schema)
            else:
                table = pa.Table.from_batches(list(split.read()), schema=schema)
                found = unfit_rows(split, table, record_bytes_max)
                unfit |= {rows.num_rows + row: why for row, why in found.items()}
            counts.append(table.num_rows)
            rows = pa.concat_tables([rows, table])
        return cls(source, stream, plan.start, rows, tuple(zip(counts, plan.splits, strict=True)), unfit, cut)

    def places(self, indices: Sequence[int]) -> list[str]:
        """Where some of the rows stand, for people: as the source says it, or else as the position does."""
        told = [f"record {index} after {json.dumps(self.start)}" for index in indices]
        first = 0
        for count, split in self.splits:
            here = [n for n, index in enumerate(indices) if first <= index < first + count]
            rows = self.rows.take(pa.array([indices[n] for n in here], pa.int64()))
            # What cannot be read again just now must not hide what was found: the position says it, too.
            with suppress(ScribenginError, OSError):
                places = split.places([indices[n] - first for n in here], rows) if here else []
                for n, place in zip(here, places, strict=True):
                    told[n] = place
            first += count
        return told


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that failed alone: the `index`-th of the range that starts at `start`."""

    source: str
    stream: str
    start: Position
    index: int
    row: pa.Table
    reason: str
    place: str
    cut: LongRecord | None = None
    """What is known of the payload as a whole, if `row` has not all of it."""

    def describe(self) -> str:
        """Where it stands, for people."""
        return f"{self.place}, of {self.source}/{self.stream}"


def failed_at(error: TransformationFailed, record: BadRecord) -> TransformationFailed:
    """The failure, with the place of the record that it is about."""
    return TransformationFailed(f"{error}\n(at {record.describe()})", reason=error.reason)


@dataclass(frozen=True, slots=True)
class Isolated:
    """What became of a failing range: the outputs of its good records, in order, and the bad ones. `believed`: looks
    named the bad ones, all of them and nobody else, so the next round may begin with looks."""

    outputs: dict[str, list[pa.RecordBatch]]
    bad: list[BadRecord]
    believed: bool = False


@dataclass(frozen=True, slots=True)
class Isolating:
    """How far a search is: after `runs` runs, so many records are bad, and so many ranges hold at least one more.
    `reason` is what the last run that failed said."""

    records: int
    runs: int
    bad: int
    pending: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Failed:
    """The good records [first, end), which failed together; `at` is the one where that run seems to have stopped."""

    first: int
    end: int
    at: int | None = None

    def cut(self) -> list[tuple[int, int]]:
        """Its parts, in order."""
        marks = [(self.first + self.end) // 2] if self.at is None else [self.at, self.at + 1]
        edges = [self.first, *marks, self.end]
        return [(a, b) for a, b in itertools.pairwise(edges) if a < b]


def isolate(
    pieces: Sequence[Piece],
    run: Run,
    undecodable: Undecodable,
    bad_max: int,
    *,
    raising: Suspects,
    stop_at_first: bool,
    believed: bool = False,
    reason: str = "",
    told: Callable[[Isolating], None] = lambda _: None,
) -> Isolated:
    """Find the bad records of a range that failed as a whole (for `reason`), and what becomes of all others. If the
    looks are `believed`, it need not have been run before.

    Raises TooManyBadRecords beyond `bad_max`; with `stop_at_first` the result has the first bad record only. `told` is
    called before each step, and at the end.
    """
    search = _Search(pieces, run, raising, bad_max, reason, told, believed=believed)
    return search.search(undecodable, stop_at_first=stop_at_first)


class _Search:
    """One search. Records have numbers: all pieces are laid end to end. `_good` are the numbers of those decoded."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        run: Run,
        raising: Suspects,
        bad_max: int,
        reason: str,
        told: Callable[[Isolating], None],
        *,
        believed: bool,
    ) -> None:
        self._pieces = pieces
        self._run = run
        self._raising = raising
        self._bad_max = bad_max
        self._told = told
        self._total = sum(piece.rows.num_rows for piece in pieces)
        self._bad: dict[int, str] = {}
        self._done: dict[int, Outputs] = {}
        self._runs = 0
        self._reason = reason
        self._guessing = True
        self._believed = believed
        self._named_all = False
        """Whether the last look named somebody, and was right of all of them."""

    def search(self, undecodable: Undecodable, *, stop_at_first: bool) -> Isolated:
        self._tell(1)
        self._bad = _screened(self._pieces, undecodable)
        self._good = [number for number in range(self._total) if number not in self._bad]
        self._rows = _without(self._pieces, self._bad)
        if stop_at_first and self._bad:
            return self._result(stop_at_first=stop_at_first)
        # Without any that cannot be decoded, it is as a whole that they have just failed; or nobody has tried them.
        pending = self._tried_whole() if self._bad and not self._believed else self._whole()
        if pending:
            pending = self._from_the_first_suspect() if stop_at_first else self._without_suspects(pending)
        believed = self._named_all and not pending
        while pending:
            narrow = stop_at_first or len(self._bad) + len(pending) > self._bad_max
            if narrow and self._bad and (not stop_at_first or min(self._bad) < self._good[pending[0].first]):
                break
            self._tell(len(pending))
            step, later = (pending[:1], pending[1:]) if narrow else (pending, [])
            pending = self._tried([part for failed in step for part in failed.cut()]) + later
            self._guessing = self._guessing and all(self._good[f.at] in self._bad for f in step if f.at is not None)
        self._tell(0)
        if len(self._bad) + len(pending) > self._bad_max and not stop_at_first:
            raise TooManyBadRecords(self._too_many())
        return replace(self._result(stop_at_first=stop_at_first), believed=believed)

    def _whole(self, at: int | None = None) -> list[_Failed]:
        return [_Failed(0, len(self._good), at)] if self._good else []

    def _tried_whole(self) -> list[_Failed]:
        return self._tried([(0, len(self._good))]) if self._good else []

    def _from_the_first_suspect(self) -> list[_Failed]:
        """All good records, which failed together, to be cut first where they seem to have stopped."""
        return self._whole(at=next(iter(self._suspects()), None))

    def _without_suspects(self, pending: list[_Failed]) -> list[_Failed]:
        """What of the good records, which failed together, still fails without the suspects that are bad: everything
        else has then been run. Asked again as long as all suspects are bad, and there are not too many."""
        sure, tried = True, not self._believed
        while pending and sure and len(self._bad) < self._bad_max and (suspects := self._suspects()):
            known = len(self._bad)
            sure = self._are_bad(suspects)
            self._done.clear()  # a suspect that is good runs again, among its neighbours
            if len(self._bad) > self._bad_max:
                return []
            if len(self._bad) > known:
                self._drop_bad()
                pending, tried = self._tried_whole(), True
        return pending if tried else self._tried_whole()

    def _suspects(self) -> dict[int, str]:
        """Those of the good records on which a function seems to raise: their places among these, in order."""
        guessed = self._raising(_tables(self._rows, 0, len(self._good)))
        return dict(sorted(_numbered(self._rows, guessed).items()))

    def _are_bad(self, suspects: Mapping[int, str]) -> bool:
        """Try the suspects, unless there are too many. Whether all of them are bad; soon none more is tried."""
        enough = list(suspects)[: self._bad_max + 1 - len(self._bad)]
        alone = 0 if self._believed else SUSPECTS_TRIED
        tried, others = enough[:alone], enough[alone:]
        if not self._fail_alone(tried):
            return False
        again = self._raising_again([at for at in others if suspects[at]])
        self._bad |= {self._good[at]: why for at, why in again.items()}
        others = [at for at in others if at not in again]
        self._named_all = not others and all(suspects[at] for at in enough) and len(enough) >= max(alone, 1)
        return self._fail_alone(others)

    def _raising_again(self, suspects: Sequence[int]) -> dict[int, str]:
        """Those of some suspects on which a function raises again where nobody else is, and what."""
        if not suspects:
            return {}
        self._tell(1)
        rows = _without(self._rows, set(range(len(self._good))).difference(suspects))
        found = _numbered(rows, self._raising(_tables(rows, 0, len(suspects))))
        return {suspects[n]: why for n, why in found.items() if why}

    def _fail_alone(self, suspects: Sequence[int]) -> bool:
        """Run them alone. Whether all of them failed; soon none more is tried."""
        for first in range(0, len(suspects), SUSPECTS_AT_ONCE):
            chunk = suspects[first : first + SUSPECTS_AT_ONCE]
            self._tell(1)
            self._tried([(at, at + 1) for at in chunk])
            if any(self._good[at] not in self._bad for at in chunk):
                return False
        return True

    def _drop_bad(self) -> None:
        self._rows = _without(self._rows, {at for at, number in enumerate(self._good) if number in self._bad})
        self._good = [number for number in self._good if number not in self._bad]

    def _tried(self, ranges: Sequence[tuple[int, int]]) -> list[_Failed]:
        """Run ranges of good records, side by side. Those that failed are returned, or are one record, which is bad."""
        self._runs += len(ranges)
        with ThreadPoolExecutor(min(RUNS_AT_ONCE, len(ranges)), thread_name_prefix="isolating") as threads:
            runs = [threads.submit(self._run, _tables(self._rows, first, end)) for first, end in ranges]
        failed = []
        for (first, end), run in zip(ranges, runs, strict=True):
            try:
                self._done[first] = run.result()
            except TransformationFailed as error:
                self._reason = error.reason
                if end - first == 1:
                    self._bad[self._good[first]] = error.reason
                else:
                    failed.append(_Failed(first, end, self._guess(first, end, error)))
        return failed

    def _guess(self, first: int, end: int, error: TransformationFailed) -> int | None:
        at = first + error.row if error.row is not None else end
        return at if self._guessing and at < end else None

    def _result(self, *, stop_at_first: bool) -> Isolated:
        outputs: dict[str, list[pa.RecordBatch]] = {}
        for first in sorted(self._done):
            for name, batches in self._done[first].items():
                outputs.setdefault(name, []).extend(batches)
        numbers = sorted(self._bad)[: 1 if stop_at_first else None]
        return Isolated(outputs, _bad_records(self._pieces, {number: self._bad[number] for number in numbers}))

    def _too_many(self) -> str:
        return _too_many(self._bad_max, self._total, self._result(stop_at_first=True).bad[0])

    def _tell(self, pending: int) -> None:
        self._told(Isolating(self._total, self._runs, len(self._bad), pending, self._reason))


def screened(pieces: Sequence[Piece], undecodable: Undecodable, bad_max: int | None) -> list[BadRecord]:
    """The records that no transformation need be asked about: they are too long, not read whole, or undecodable.

    Raises TooManyBadRecords beyond `bad_max`. None: any number may be bad.
    """
    bad = _bad_records(pieces, dict(sorted(_screened(pieces, undecodable).items())))
    if bad_max is not None and len(bad) > bad_max:
        raise TooManyBadRecords(_too_many(bad_max, sum(piece.rows.num_rows for piece in pieces), bad[0]))
    return bad


def first_screened(pieces: Sequence[Piece], undecodable: Undecodable) -> BadRecord | None:
    """The first of them."""
    found = sorted(_screened(pieces, undecodable).items())
    return _bad_records(pieces, dict(found[:1]))[0] if found else None


def _screened(pieces: Sequence[Piece], undecodable: Undecodable) -> dict[int, str]:
    """The same by their numbers, all pieces laid end to end, and what is wrong with them."""
    unfit = _numbered_by_piece(pieces, [piece.unfit for piece in pieces])
    numbers = [number for number in range(sum(piece.rows.num_rows for piece in pieces)) if number not in unfit]
    held = _without(pieces, unfit)
    found = _numbered(held, undecodable(_tables(held, 0, len(numbers)))) if numbers else {}
    return unfit | {numbers[n]: why for n, why in found.items()}


def _too_many(bad_max: int, records: int, first: BadRecord) -> str:
    return (
        f"more than errors.records_max = {bad_max} of the {many(records, 'record')} of one round failed, so it is not "
        f"the records; the first is {first.describe()}: {first.reason}"
    )


def _numbered(pieces: Sequence[Piece], undecodable: Mapping[str, Mapping[int, str]]) -> dict[int, str]:
    """The reasons of rows of sources, by the numbers of the records."""
    result: dict[int, str] = {}
    begun: Counter[str] = Counter()
    at = 0
    for piece in pieces:
        size, before = piece.rows.num_rows, begun[piece.source]
        rows = undecodable.get(piece.source, {})
        result.update({at + row - before: why for row, why in rows.items() if before <= row < before + size})
        begun[piece.source] += size
        at += size
    return result


def _numbered_by_piece(pieces: Sequence[Piece], of_rows: Sequence[Mapping[int, str]]) -> dict[int, str]:
    """The reasons of rows of pieces, by the numbers of the records."""
    firsts = itertools.accumulate((piece.rows.num_rows for piece in pieces), initial=0)
    return {first + row: why for first, rows in zip(firsts, of_rows, strict=False) for row, why in rows.items()}


def _row_of(payload: bytes, schema: pa.Schema) -> pa.Table:
    """One record that is nothing but a payload."""
    columns = [pa.array([payload if field.name == PAYLOAD else None], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _without(pieces: Sequence[Piece], bad: Collection[int]) -> list[Piece]:
    """The pieces without those records."""
    result, at = [], 0
    for piece in pieces:
        size = piece.rows.num_rows
        kept = [at + row not in bad for row in range(size)]
        result.append(piece if all(kept) else replace(piece, rows=piece.rows.filter(pa.array(kept))))
        at += size
    return result


def error_batch(bad: Sequence[BadRecord], bytes_max: int | None = None) -> pa.RecordBatch:
    """The error route's records: one JSON object a bad record, with where it stood, why it failed and what it was. Cut
    to what its sink takes at most, `bytes_max`."""
    fit = fair_share(bytes_max, len(bad))
    payloads = [
        error_record(
            source=record.source,
            stream=record.stream,
            after=record.start,
            index=record.index,
            place=record.place,
            reason=record.reason,
            row=record.row,
            whole=record.cut,
            bytes_max=fit,
        )
        for record in bad
    ]
    return pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])


def _tables(pieces: Sequence[Piece], first: int, end: int) -> dict[str, pa.Table]:
    """Rows [first, end) of all pieces laid end to end, as one table a source (empty where the slice misses it)."""
    slices: dict[str, list[pa.Table]] = {}
    at = 0
    for piece in pieces:
        begin, stop = max(first - at, 0), min(end - at, piece.rows.num_rows)
        slices.setdefault(piece.source, []).append(piece.rows.slice(begin, max(stop - begin, 0)))
        at += piece.rows.num_rows
    return {source: pa.concat_tables(tables) for source, tables in slices.items()}


def _bad_records(pieces: Sequence[Piece], reasons: Mapping[int, str]) -> list[BadRecord]:
    """The records with these numbers, ascending."""
    found = []
    first = 0
    for piece in pieces:
        indices = [number - first for number in reasons if first <= number < first + piece.rows.num_rows]
        for at, place in zip(indices, piece.places(indices), strict=True):
            row, why = piece.rows.slice(at, 1), reasons[first + at]
            whole = piece.cut.get(at)
            found.append(BadRecord(piece.source, piece.stream, piece.start, at, row, why, place, whole))
        first += piece.rows.num_rows
    return found
