"""Bisection of a range that failed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.dataflow.round.bad_records import (
    SUSPECTS_AT_ONCE,
    SUSPECTS_TRIED,
    BadRecord,
    Isolated,
    Isolating,
    Piece,
    error_batch,
    isolate,
)
from scribengin.errors import TooManyBadRecords, TransformationFailed


class Picky:
    """Doubles every number, and fails on the ones it was told to fail on, or to find undecodable; counts its runs.
    `guess` says where a run that fails has stopped, given its numbers; `suspect` on which rows a function raises, and
    if `sure`, what."""

    def __init__(
        self,
        poison: set[int],
        malformed: Collection[int] = (),
        guess: Callable[[Sequence[int], set[int]], int | None] = lambda *_: None,
        suspect: Callable[[Sequence[int], set[int]], Collection[int]] = lambda *_: (),
        *,
        sure: bool = False,
    ) -> None:
        self.poison, self.malformed, self.guess, self.suspect = poison, set(malformed), guess, suspect
        self.raised = "ValueError: seen" if sure else ""
        self.runs = self.looks = self.searches = 0

    def __call__(self, tables: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        self.runs += 1
        numbers = [n for table in tables.values() for n in table.column("n").to_pylist()]
        if (self.poison | self.malformed) & set(numbers):
            row = self.guess(numbers, self.poison)
            raise TransformationFailed("Traceback of theirs\nValueError: poison", reason="ValueError: poison", row=row)
        return {"out": [pa.record_batch([pa.array([2 * n for n in numbers], pa.int64())], names=["n"])]}

    def undecodable(self, tables: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        self.looks += 1
        return {
            source: {row: "malformed" for row, n in enumerate(table.column("n").to_pylist()) if n in self.malformed}
            for source, table in tables.items()
        }

    def raising(self, tables: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        self.searches += 1
        numbers = {source: table.column("n").to_pylist() for source, table in tables.items()}
        return {source: dict.fromkeys(self.suspect(of, self.poison), self.raised) for source, of in numbers.items()}


def where_it_is(numbers: Sequence[int], poison: set[int]) -> int | None:
    return next(row for row, n in enumerate(numbers) if n in poison)


def where_they_are(numbers: Sequence[int], poison: set[int]) -> list[int]:
    return [row for row, n in enumerate(numbers) if n in poison]


def isolated(
    pieces: list[Piece], picky: Picky, bad_max: int, *, stop_at_first: bool = False, believed: bool = False
) -> Isolated:
    return isolate(
        pieces,
        picky,
        picky.undecodable,
        bad_max,
        raising=picky.raising,
        stop_at_first=stop_at_first,
        believed=believed,
    )


def piece(source: str, stream: str, numbers: list[int]) -> Piece:
    return Piece(source, stream, {"at": 0}, pa.table({"n": pa.array(numbers, pa.int64())}))


def delivered(outputs: Mapping[str, list[pa.RecordBatch]]) -> list[int]:
    return [n for batch in outputs.get("out", []) for n in batch.column("n").to_pylist()]


def test_one_poison_record_among_many_costs_a_logarithm_of_runs() -> None:
    picky = Picky({61_803})
    result = isolated([piece("in", "0", list(range(100_000)))], picky, 10)
    assert [(bad.index, bad.reason) for bad in result.bad] == [(61_803, "ValueError: poison")]
    assert delivered(result.outputs) == [2 * n for n in range(100_000) if n != 61_803]
    assert picky.runs <= 36


@given(st.lists(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 30)))
def test_everything_good_is_delivered_in_order_and_everything_bad_is_named(sizes: list[int], poison: set[int]) -> None:
    pieces, first = [], 0
    for k, size in enumerate(sizes):
        pieces.append(piece("in", str(k), list(range(first, first + size))))
        first += size
    result = isolated(pieces, Picky(poison), 1_000)
    assert delivered(result.outputs) == [2 * n for n in range(first) if n not in poison]
    assert [bad.row.column("n").to_pylist() for bad in result.bad] == [[n] for n in range(first) if n in poison]


def test_what_cannot_be_decoded_costs_one_look_and_one_run_however_much_it_is() -> None:
    picky = Picky(set(), malformed=range(400, 31_836, 800))
    result = isolated(
        [piece("in", "a", list(range(20_000))), piece("in", "b", list(range(20_000, 31_836)))], picky, 100
    )
    assert delivered(result.outputs) == [2 * n for n in range(31_836) if n not in picky.malformed]
    assert [(bad.stream, bad.row.column("n")[0].as_py()) for bad in result.bad] == [
        ("a" if n < 20_000 else "b", n) for n in range(400, 31_836, 800)
    ]
    assert {bad.reason for bad in result.bad} == {"malformed"}
    assert (picky.looks, picky.runs) == (1, 1)


def test_a_function_that_says_where_it_stopped_costs_three_runs_a_bad_record() -> None:
    picky = Picky(set(range(400, 31_836, 800)), guess=where_it_is)
    result = isolated([piece("in", "0", list(range(31_836)))], picky, 100)
    assert delivered(result.outputs) == [2 * n for n in range(31_836) if n not in picky.poison]
    assert len(result.bad) == len(picky.poison) == 40
    assert picky.runs <= 3 * 40 + 20, "the first cut is in the middle: nobody says where the whole range stopped"


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.randoms())
def test_a_guess_that_is_wrong_costs_runs_and_no_record(
    poison: set[int], malformed: set[int], chance: random.Random
) -> None:
    picky = Picky(poison, malformed, guess=lambda numbers, _: chance.choice([None, 0, chance.randrange(99)]))
    result = isolated([piece("in", "0", list(range(60)))], picky, 1_000)
    assert delivered(result.outputs) == [2 * n for n in range(60) if n not in poison | malformed]
    assert [bad.index for bad in result.bad] == [n for n in range(60) if n in poison | malformed]


@pytest.mark.parametrize(
    "poison",
    [
        {61_803},
        {0, 50_000, 99_999},
        set(range(400, 100_000, 2_500)),
        set(range(5_000, 5_040)),
    ],
    ids=["one", "first and last", "forty", "adjacent"],
)
def test_records_on_which_a_function_raises_cost_a_run_each_and_one_for_all_others(poison: set[int]) -> None:
    picky = Picky(poison, suspect=where_they_are)
    result = isolated([piece("in", "0", list(range(100_000)))], picky, 100)
    assert delivered(result.outputs) == [2 * n for n in range(100_000) if n not in poison]
    assert [bad.index for bad in result.bad] == sorted(poison)
    assert picky.runs == len(poison) + 1


@pytest.mark.parametrize("poison", [{61_803}, {0, 99_999}, set(range(400, 100_000, 1_000)), set(range(5_000, 5_040))])
def test_who_is_named_with_what_is_raised_costs_two_runs_and_two_looks_however_many_there_are(poison: set[int]) -> None:
    picky = Picky(poison, suspect=where_they_are, sure=True)
    result = isolated([piece("in", "0", list(range(100_000)))], picky, 100)
    assert delivered(result.outputs) == [2 * n for n in range(100_000) if n not in poison]
    assert [bad.index for bad in result.bad] == sorted(poison)
    seen = max(0, len(poison) - SUSPECTS_TRIED)
    assert [bad.reason for bad in result.bad].count("ValueError: seen") == seen
    assert (picky.runs, picky.searches) == (min(len(poison), SUSPECTS_TRIED) + 1, 2 if seen else 1)


@given(st.sets(st.integers(0, 60)), st.randoms())
def test_who_does_not_raise_again_runs_alone(poison: set[int], chance: random.Random) -> None:
    def now_and_then(numbers: Sequence[int], poison: set[int]) -> list[int]:
        return [row for row in where_they_are(numbers, poison) if chance.random() < 0.8]

    def with_good_ones(numbers: Sequence[int], poison: set[int]) -> list[int]:
        first_look = len(numbers) == 60 - len(poison & {60})
        return [*now_and_then(numbers, poison), *(range(40, 60) if first_look else ())]

    picky = Picky(poison, suspect=chance.choice([now_and_then, with_good_ones]), sure=True)
    result = isolated([piece("a", "0", list(range(31))), piece("b", "1", list(range(31, 60)))], picky, 1_000)
    assert delivered(result.outputs) == [2 * n for n in range(60) if n not in poison]
    assert [bad.row.column("n")[0].as_py() for bad in result.bad] == [n for n in range(60) if n in poison]


@pytest.mark.parametrize(
    ("poison", "malformed"), [({61_803}, ()), (set(range(400, 100_000, 1_000)), ()), ({5, 9, 70_000}, (3, 4, 99_999))]
)
def test_looks_that_were_right_before_come_first_and_nothing_that_fails_is_run(
    poison: set[int], malformed: Collection[int]
) -> None:
    picky = Picky(poison, malformed, suspect=where_they_are, sure=True)
    result = isolated([piece("in", "0", list(range(100_000)))], picky, 1_000, believed=True)
    assert [bad.index for bad in result.bad] == sorted({*poison, *malformed})
    assert delivered(result.outputs) == [2 * n for n in range(100_000) if n not in {*poison, *malformed}]
    assert (picky.runs, picky.searches, result.believed) == (1, 2, True)


def test_looks_that_name_nobody_cost_one_look_and_are_not_believed_after_it() -> None:
    picky = Picky(set(), suspect=where_they_are, sure=True)
    result = isolated([piece("in", "0", list(range(100)))], picky, 10, believed=True)
    assert (delivered(result.outputs), result.bad) == ([2 * n for n in range(100)], [])
    assert (picky.runs, picky.searches, result.believed) == (1, 1, False)


@pytest.mark.parametrize(
    ("suspect", "sure", "poison", "believed"),
    [
        pytest.param(where_they_are, True, {5, 6}, True, id="who were tried alone are all there are"),
        pytest.param(where_they_are, True, {5, 6, 7}, True, id="right where it was tried"),
        pytest.param(where_they_are, True, {5}, False, id="only one was tried"),
        pytest.param(where_they_are, False, {5, 6, 7}, False, id="rows were counted"),
        pytest.param(lambda numbers, _poison: [n for n in numbers if n in (5, 6, 8)], True, {5, 6, 7}, False, id="8"),
        pytest.param(lambda _numbers, _poison: [5, 6], True, {5, 6, 70}, False, id="not all were named"),
    ],
)
def test_looks_are_believed_once_they_named_all_and_nobody_else(
    suspect: Callable[[Sequence[int], set[int]], Collection[int]], sure: bool, poison: set[int], believed: bool
) -> None:
    picky = Picky(poison, suspect=suspect, sure=sure)
    result = isolated([piece("in", "0", list(range(100)))], picky, 10)
    assert [bad.index for bad in result.bad] == sorted(poison)
    assert result.believed is believed


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.booleans())
def test_looks_that_are_wrong_though_they_were_right_before_cost_no_record(
    poison: set[int], malformed: set[int], named: set[int], sure: bool
) -> None:
    """They name others, too; but nobody raises in two looks who would not alone."""

    def suspects(numbers: Sequence[int], poison: set[int]) -> list[int]:
        return [
            row for row, n in enumerate(numbers) if n in poison or (len(numbers) > len(named | poison) and n in named)
        ]

    picky = Picky(poison - malformed, malformed, suspect=suspects, sure=sure)
    result = isolated([piece("in", "0", list(range(61)))], picky, 100, believed=True)
    assert [bad.index for bad in result.bad] == sorted(poison | malformed)
    assert delivered(result.outputs) == [2 * n for n in range(61) if n not in poison | malformed]


def test_so_do_those_of_several_sources_and_streams_beside_what_cannot_be_decoded() -> None:
    picky = Picky({3, 1_500, 2_999}, malformed={0, 4, 2_998}, suspect=where_they_are)
    pieces = [
        piece("left", "a", list(range(1_000))),
        piece("right", "b", list(range(1_000, 2_000))),
        piece("left", "c", list(range(2_000, 3_000))),
    ]
    result = isolated(pieces, picky, 100)
    assert [(bad.stream, bad.index) for bad in result.bad] == [
        ("a", 0), ("a", 3), ("a", 4), ("b", 500), ("c", 998), ("c", 999),
    ]  # fmt: skip
    kept = [*range(1_000), *range(2_000, 3_000), *range(1_000, 2_000)]
    assert delivered(result.outputs) == [2 * n for n in kept if n not in picky.poison | picky.malformed]
    assert picky.runs == 1 + 3 + 1


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.randoms())
def test_suspects_that_are_good_cost_runs_and_no_record(
    poison: set[int], malformed: set[int], chance: random.Random
) -> None:
    def some(numbers: Sequence[int], poison: set[int]) -> list[int]:
        right = where_they_are(numbers, poison)
        return chance.choice([right, right[::2], [], [*right, *range(len(numbers))[:2]], [n + 1 for n in right]])

    picky = Picky(poison, malformed, suspect=some)
    result = isolated([piece("a", "0", list(range(31))), piece("b", "1", list(range(31, 60)))], picky, 1_000)
    assert delivered(result.outputs) == [2 * n for n in range(60) if n not in poison | malformed]
    assert [bad.row.column("n")[0].as_py() for bad in result.bad] == [n for n in range(60) if n in poison | malformed]


def test_suspects_of_whom_the_first_are_good_are_believed_no_more() -> None:
    wrong = range(100, 200)
    picky = Picky({5}, suspect=lambda *_: wrong)
    result = isolated([piece("in", "0", list(range(1_024)))], picky, 100)
    assert [bad.index for bad in result.bad] == [5]
    assert picky.runs <= SUSPECTS_AT_ONCE + 20


def test_a_function_that_raises_on_all_records_is_not_asked_for_each_of_them() -> None:
    picky = Picky(set(range(5_000)), suspect=where_they_are)
    with pytest.raises(TooManyBadRecords, match=r"records_max = 100 of the 5,000 records .* record 0 after"):
        isolated([piece("in", "0", list(range(5_000)))], picky, 100)
    assert picky.runs == 101


def test_nobody_is_asked_when_too_many_cannot_even_be_decoded() -> None:
    def suspect(*_: object) -> Collection[int]:
        raise AssertionError("asked")

    picky = Picky({9}, malformed=range(5), suspect=suspect)
    with pytest.raises(TooManyBadRecords, match="records_max = 4 "):
        isolated([piece("in", "0", list(range(10)))], picky, 4)
    assert picky.runs == 1


def test_if_all_records_of_a_small_round_are_bad_nothing_is_left_to_run() -> None:
    picky = Picky(set(range(40)), suspect=where_they_are)
    result = isolated([piece("in", "0", list(range(40)))], picky, 100)
    assert (len(result.bad), delivered(result.outputs), picky.runs) == (40, [], 40)


@given(st.sets(st.integers(0, 30), min_size=1), st.randoms())
def test_to_stop_at_the_first_finds_the_first_whatever_is_suspected(poison: set[int], chance: random.Random) -> None:
    picky = Picky(poison, suspect=lambda numbers, bad: [chance.choice([*where_they_are(numbers, bad), 7])])
    result = isolated([piece("in", "0", list(range(31)))], picky, 1_000, stop_at_first=True)
    assert [bad.index for bad in result.bad] == [min(poison)]


def test_to_stop_at_the_first_suspect_takes_three_runs() -> None:
    picky = Picky({500, 700}, suspect=where_they_are)
    result = isolated([piece("in", "0", list(range(1_000)))], picky, 1, stop_at_first=True)
    assert ([bad.index for bad in result.bad], picky.runs) == ([500], 3)


def test_each_step_is_told_with_what_was_found_by_then() -> None:
    told: list[Isolating] = []
    picky = Picky({5}, malformed={2})
    rows = [piece("in", "0", list(range(8)))]
    isolate(
        rows, picky, picky.undecodable, 10, raising=picky.raising, stop_at_first=False, reason="first", told=told.append
    )
    assert (told[0].records, told[0].bad, told[0].reason) == (8, 0, "first")
    assert [step.bad for step in told] == sorted(step.bad for step in told)
    assert (told[-1].bad, told[-1].pending, told[-1].runs, told[-1].reason) == (2, 0, picky.runs, "ValueError: poison")


def test_what_fails_only_together_is_delivered_in_parts_and_nothing_of_it_is_bad() -> None:
    def at_most_three(tables: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        if tables["in"].num_rows > 3:
            raise TransformationFailed("too many at once", reason="too many at once")
        return {"out": tables["in"].to_batches()}

    rows = [piece("in", "0", list(range(20)))]
    result = isolate(rows, at_most_three, lambda _: {}, 100, raising=lambda _: {}, stop_at_first=False)
    assert delivered(result.outputs) == list(range(20))
    assert result.bad == []


def test_a_bad_record_is_named_by_its_stream_and_its_place_in_the_streams_range() -> None:
    pieces = [piece("in", "left", [0, 1, 2]), piece("other", "right", [3, 4])]
    bad = isolated(pieces, Picky({4}), 10).bad[0]
    assert (bad.source, bad.stream, bad.index) == ("other", "right", 1)
    assert bad.describe() == 'record 1 after {"at": 0}, of other/right'


def test_too_many_bad_records_stop_the_round_and_the_first_is_named() -> None:
    with pytest.raises(TooManyBadRecords, match=r"records_max = 3 of the 100 records .* record 0 after"):
        isolated([piece("in", "0", list(range(100)))], Picky(set(range(100))), 3)


def test_to_stop_at_the_first_finds_the_first_only() -> None:
    result = isolated([piece("in", "0", list(range(10)))], Picky({3, 7}), 1, stop_at_first=True)
    assert [bad.index for bad in result.bad] == [3]


def test_the_error_route_gets_the_record_its_place_and_the_reason_also_when_it_is_no_text() -> None:
    row = pa.table({"key": pa.array([b"k"], pa.binary()), "payload": pa.array([b"\xff\x00"], pa.binary())})
    batch = error_batch([BadRecord("in", "0", {"at": 7}, 2, row, "ValueError: no", "a.txt, line 3")])
    assert json.loads(batch.column("payload")[0].as_py()) == {
        "source": "in",
        "stream": "0",
        "place": "a.txt, line 3",
        "after": {"at": 7},
        "index": 2,
        "reason": "ValueError: no",
        "key": "k",
        "payload": "base64:/wA=",
    }
