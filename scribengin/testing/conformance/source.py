"""The conformance suite for sources: `check_source` holds an implementation against `connectors.contract`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

import pyarrow as pa

from scribengin.base.model import JsonObject, Position
from scribengin.base.text.counting import many
from scribengin.base.threads import background
from scribengin.connectors.contract import (
    PAYLOAD,
    RECORD_SCHEMA,
    PlannedAgain,
    PlannedRange,
    ReadSplit,
    RoundLimits,
    Source,
    SourceStreamDescriptor,
    SourceStreamReader,
)
from scribengin.testing.conformance.expecting import expect, expect_equal, numbered, promised

MakeSource = Callable[[], Source]
Append = Callable[[str, Sequence[bytes]], None]

_ALL = RoundLimits(records_max=1_000_000, bytes_max=1_000_000_000)
_WAIT_S = 120.0
_TOLD_S = 30.0
"""So long a reader that is open may take to be told of what was appended, on a busy machine."""


def check_source(make_source: MakeSource, append: Append, *, seal: Callable[[str], None] | None = None) -> None:
    """Raise AssertionError, with a sentence that says which promise is broken, unless the source keeps all of them.

    `make_source()` opens the source afresh, as another process does; it is configured to be read from its beginning.
    `append(stream, payloads)` adds records to one of its streams and returns once whoever opens the source then can
    read them; a reader that is open may be told of them later. Payloads are short and hold no newline. `seal(stream)`
    says that nothing more will come, if the system can say that; it is called last.
    """
    suite = _SourceSuite(make_source, append)
    with promised(suite.streams_are_stable):
        suite.streams_are_stable()
    of_one_stream = [
        suite.an_end_has_nothing_to_read,
        suite.a_range_reads_what_was_appended,
        suite.a_range_reads_the_same_again,
        suite.any_process_plans_a_range_again,
        suite.every_record_has_a_place_of_its_own,
        suite.limits_are_kept_and_nothing_is_skipped,
        suite.any_process_goes_on_from_a_position,
        suite.lag_counts_records,
        suite.waiting_ends_when_there_is_something,
    ]
    for stream in suite.stream_descriptors():
        for check in of_one_stream:
            with promised(check):
                check(stream)
    with promised(suite.streams_do_not_meet):
        suite.streams_do_not_meet()
    if seal is not None:
        with promised(suite.a_sealed_stream_ends):
            suite.a_sealed_stream_ends(seal)
    with promised(suite.closing_twice_is_fine):
        suite.closing_twice_is_fine()


class _SourceSuite:
    def __init__(self, make_source: MakeSource, append: Append) -> None:
        self._make = make_source
        self._append = append
        self._numbers = iter(range(1_000_000))

    # -- the checks

    def streams_are_stable(self) -> None:
        first, again = self.stream_descriptors(), self.stream_descriptors()
        expect_equal(again, first, "streams() of the same source opened twice")
        expect(bool(first), "streams() of a source that exists returns at least one stream")
        expect(len({stream.name for stream in first}) == len(first), "the names of streams are unique")
        with closing(self._make()) as source:
            names = source.schema.names[: len(RECORD_SCHEMA.names)]
            expect_equal(names, RECORD_SCHEMA.names, "the first columns of Source.schema")

    def an_end_has_nothing_to_read(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            end = _drain(reader, reader.initial_position())
            expect(reader.plan(end, _ALL) is None, "plan() at the end of a stream returns None")
            expect_equal(reader.lag(end), 0, "lag() at the end of a stream")
            expect(not reader.wait(end, 0.0), "wait() at the end of a stream returns False after its timeout")
            expect(not reader.ended(end), "ended() is False for a stream that was not sealed")

    def a_range_reads_what_was_appended(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader, closing(self._make()) as source:
            start = _drain(reader, reader.initial_position())
            first = self._append_seen(stream, 4, reader, start)
            payloads = first + self._append_seen(stream, 6, reader, start, known=4)
            plan = self._planned(reader, start, _ALL)
            expect_equal(_read(plan.splits), payloads, "the records of the range after an append, in order")
            expect_equal(plan.records, len(payloads), "PlannedRange.records")
            for split in plan.splits:
                for batch in split.read():
                    expect(batch.schema.equals(source.schema), "splits read batches of Source.schema")

    def a_range_reads_the_same_again(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            self._append_seen(stream, 20, reader, start)
            plan = self._planned(reader, start, _ALL)
            first = _read(plan.splits)
            self._append(stream.name, self._payloads(5))
            expect_equal(_read(plan.splits), first, "a range that is read again, after more was appended")
            sent = pickle.loads(pickle.dumps(plan.splits))
            expect_equal(_read(sent), first, "a range whose splits were pickled")
        expect_equal(_read(sent), first, "a range whose reader was closed")
        for split in sent:
            expect(split.size_bytes > 0 and split.records > 0, "splits say about how large they are")

    def any_process_plans_a_range_again(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            self._append_seen(stream, 7, reader, start)
            plan = self._planned(reader, start, RoundLimits(4, 10**9))
            again = PlannedAgain(plan.start, plan.end, plan.records, plan.again)
            exact = plan if plan.again is not None else reader.plan_again(again)
            if exact is None:
                raise AssertionError("plan_again() returned None for a range that is there")
            before = PlannedAgain(exact.start, exact.end, exact.records, _through_json(exact.again))
        self._append(stream.name, self._payloads(3))
        with self._reader(stream) as other:
            found = other.plan_again(before)
        if found is None:
            raise AssertionError("plan_again() returned None after more was appended")
        expect_equal(found.end, exact.end, "the end of a range that is planned again, after more was appended")
        expect_equal(found.records, exact.records, "the number of records of a range that is planned again")
        expect_equal(_read(found.splits), _read(exact.splits), "the records of a range that is planned again")

    def every_record_has_a_place_of_its_own(self, stream: SourceStreamDescriptor) -> None:
        told: list[str] = []
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            self._append_seen(stream, 12, reader, start)
            for plan in _plans(reader, start, RoundLimits(records_max=5, bytes_max=1_000_000_000)):
                for split in plan.splits:
                    told += _places(split)
        expect_equal(len(set(told)), 12, f"the number of different places of 12 records ({told[:3]} ...)")
        expect(all(place and "\n" not in place for place in told), "a place is a line of text")

    def limits_are_kept_and_nothing_is_skipped(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            payloads = self._append_seen(stream, 23, reader, start)
            for limits in (RoundLimits(1, 10**9), RoundLimits(7, 10**9), RoundLimits(10**6, 60), RoundLimits(10**6, 1)):
                read: list[bytes] = []
                for plan in _plans(reader, start, limits):
                    expect(
                        0 < plan.records <= limits.records_max,
                        f"plan() with records_max={limits.records_max} planned {many(plan.records, 'record')}",
                    )
                    read += _read(plan.splits)
                expect_equal(read, payloads, f"all ranges one after the other, with {limits}")
            first = self._planned(reader, start, RoundLimits(10**6, 1))
            expect_equal(first.records, 1, "the records of a range with bytes_max=1: one, larger than the limit")

    def any_process_goes_on_from_a_position(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            payloads = self._append_seen(stream, 12, reader, start)
            positions = [(0, start)]
            for plan in _plans(reader, start, RoundLimits(5, 10**9)):
                positions.append((positions[-1][0] + plan.records, plan.end))
        for done, position in positions:
            sent = json.loads(json.dumps(position))
            with self._reader(stream) as other:
                rest = [payload for plan in _plans(other, sent, _ALL) for payload in _read(plan.splits)]
            expect_equal(
                rest, payloads[done:], f"what another process reads after {done} of {many(len(payloads), 'record')}"
            )

    def lag_counts_records(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            self._append_seen(stream, 9, reader, start)
            expect_equal(reader.lag(start), 9, "lag() after nine records were appended")
            plan = self._planned(reader, start, RoundLimits(4, 10**9))
            expect_equal(reader.lag(plan.end), 9 - plan.records, "lag() after a range")

    def waiting_ends_when_there_is_something(self, stream: SourceStreamDescriptor) -> None:
        with self._reader(stream) as reader:
            position = _drain(reader, reader.initial_position())
            payloads = self._payloads(1)
            appending = background("append", partial(self._append, stream.name, payloads))
            appending.start()
            try:
                expect(reader.wait(position, _WAIT_S), "wait() returns True once a record was appended")
            finally:
                appending.join()
            plan = self._planned(reader, position, _ALL)
            expect_equal(_read(plan.splits), payloads, "the range after wait() returned True")

    def streams_do_not_meet(self) -> None:
        first, *others = self.stream_descriptors()
        ends = {}
        for other in others:
            with self._reader(other) as reader:
                ends[other.name] = _drain(reader, reader.initial_position())
        self._append(first.name, self._payloads(3))
        for other in others:
            with self._reader(other) as reader:
                plan = reader.plan(ends[other.name], _ALL)
                expect(plan is None, f"a record appended to stream {first.name} is no record of {other.name}")

    def a_sealed_stream_ends(self, seal: Callable[[str], None]) -> None:
        stream = self.stream_descriptors()[0]
        with self._reader(stream) as reader:
            start = _drain(reader, reader.initial_position())
            self._append(stream.name, self._payloads(2))
            seal(stream.name)
        with self._reader(stream) as reader:
            expect(not reader.ended(start), "ended() is False as long as there is something to read")
            end = _drain(reader, start)
            expect(reader.ended(end), "ended() is True behind the last record of a sealed stream")
            expect(reader.plan(end, _ALL) is None, "plan() behind the last record of a sealed stream returns None")

    def closing_twice_is_fine(self) -> None:
        source = self._make()
        reader = source.open_reader(source.streams()[0])
        for closable in (reader, reader, source, source):
            closable.close()

    # -- the means

    def stream_descriptors(self) -> list[SourceStreamDescriptor]:
        with closing(self._make()) as source:
            return source.streams()

    @contextmanager
    def _reader(self, stream: SourceStreamDescriptor) -> Iterator[SourceStreamReader]:
        with closing(self._make()) as source, closing(source.open_reader(stream)) as reader:
            yield reader

    def _payloads(self, count: int) -> list[bytes]:
        return numbered(next(self._numbers), count)

    def _append_seen(
        self, stream: SourceStreamDescriptor, count: int, reader: SourceStreamReader, start: Position, known: int = 0
    ) -> list[bytes]:
        """Append so many payloads, and wait until `reader`, which is open, has been told of them: it knows of `known`
        others behind `start`. Whoever is not told of all of them breaks the promise that is looked at next."""
        payloads = self._payloads(count)
        self._append(stream.name, payloads)
        told, position = 0, start
        while told < known + count and reader.wait(position, _TOLD_S):
            plan = self._planned(reader, position, _ALL)
            told, position = told + plan.records, plan.end
        return payloads

    def _planned(self, reader: SourceStreamReader, position: Position, limits: RoundLimits) -> PlannedRange:
        plan = reader.plan(position, limits)
        if plan is None:
            raise AssertionError("plan() returned None although records were appended after the position")
        return _well_formed(plan, position)


def _places(split: ReadSplit) -> list[str]:
    """Of all its records. Asked of the last one by itself, a split says the same."""
    rows = pa.Table.from_batches(list(split.read()))
    places = split.places(range(rows.num_rows), rows)
    expect_equal(len(places), rows.num_rows, "the number of places of a split's records")
    last = rows.num_rows - 1
    expect_equal(split.places([last], rows.slice(last)), places[-1:], "the place of the last record by itself")
    return places


def _plans(reader: SourceStreamReader, position: Position, limits: RoundLimits) -> Iterator[PlannedRange]:
    """All ranges from `position` to the end of the stream."""
    while (plan := reader.plan(position, limits)) is not None:
        yield _well_formed(plan, position)
        position = plan.end


def _well_formed(plan: PlannedRange, position: Position) -> PlannedRange:
    expect_equal(plan.start, position, "PlannedRange.start")
    expect(plan.end != position, "a range that holds records ends behind its start")
    _expect_json(plan.end)
    return plan


def _drain(reader: SourceStreamReader, position: Position) -> Position:
    _expect_json(position)
    for plan in _plans(reader, position, _ALL):
        position = plan.end
    return position


def _read(splits: Sequence[ReadSplit]) -> list[bytes]:
    batches: list[pa.RecordBatch] = [batch for split in splits for batch in split.read()]
    return [payload for batch in batches for payload in batch.column(PAYLOAD).to_pylist()]


def _through_json(again: JsonObject | None) -> JsonObject | None:
    found: JsonObject | None = json.loads(json.dumps(again))
    expect_equal(found, again, "PlannedRange.again after a round trip through JSON")
    return found


def _expect_json(position: Position) -> None:
    try:
        again = json.loads(json.dumps(position))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"a position is JSON, and {position} is not: {error}") from None
    expect_equal(again, position, "a position after a round trip through JSON")
