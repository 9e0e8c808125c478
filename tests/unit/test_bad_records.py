"""Bisection of a range that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.dataflow.bad_records import BadRecord, Piece, error_batch, isolate
from scribengin.errors import TooManyBadRecords, TransformationFailed


class Picky:
    """Doubles every number and fails on the ones it was told to fail on; counts its runs."""

    def __init__(self, poison: set[int]) -> None:
        self.poison = poison
        self.runs = 0

    def __call__(self, tables: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        self.runs += 1
        numbers = [n for table in tables.values() for n in table.column("n").to_pylist()]
        if self.poison & set(numbers):
            raise TransformationFailed("Traceback of theirs\nValueError: poison", reason="ValueError: poison")
        return {"out": [pa.record_batch([pa.array([2 * n for n in numbers], pa.int64())], names=["n"])]}


def piece(source: str, stream: str, numbers: list[int]) -> Piece:
    return Piece(source, stream, {"at": 0}, pa.table({"n": pa.array(numbers, pa.int64())}))


def delivered(outputs: Mapping[str, list[pa.RecordBatch]]) -> list[int]:
    return [n for batch in outputs.get("out", []) for n in batch.column("n").to_pylist()]


def test_one_poison_record_among_many_costs_a_logarithm_of_runs() -> None:
    picky = Picky({61_803})
    result = isolate([piece("in", "0", list(range(100_000)))], picky, 10, stop_at_first=False)
    assert [(bad.index, bad.reason) for bad in result.bad] == [(61_803, "ValueError: poison")]
    assert delivered(result.outputs) == [2 * n for n in range(100_000) if n != 61_803]
    assert picky.runs <= 36


@given(st.lists(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 30)))
def test_everything_good_is_delivered_in_order_and_everything_bad_is_named(sizes: list[int], poison: set[int]) -> None:
    pieces, first = [], 0
    for k, size in enumerate(sizes):
        pieces.append(piece("in", str(k), list(range(first, first + size))))
        first += size
    result = isolate(pieces, Picky(poison), 1_000, stop_at_first=False)
    assert delivered(result.outputs) == [2 * n for n in range(first) if n not in poison]
    assert [bad.row.column("n").to_pylist() for bad in result.bad] == [[n] for n in range(first) if n in poison]


def test_a_bad_record_is_named_by_its_stream_and_its_place_in_the_streams_range() -> None:
    pieces = [piece("in", "left", [0, 1, 2]), piece("other", "right", [3, 4])]
    bad = isolate(pieces, Picky({4}), 10, stop_at_first=False).bad[0]
    assert (bad.source, bad.stream, bad.index) == ("other", "right", 1)
    assert bad.describe() == 'record 1 after {"at": 0} of other/right'


def test_too_many_bad_records_stop_the_round_and_the_first_is_named() -> None:
    with pytest.raises(TooManyBadRecords, match=r"records_max = 3 of the 100 records .* record 0 after"):
        isolate([piece("in", "0", list(range(100)))], Picky(set(range(100))), 3, stop_at_first=False)


def test_to_stop_at_the_first_finds_the_first_only() -> None:
    result = isolate([piece("in", "0", list(range(10)))], Picky({3, 7}), 1, stop_at_first=True)
    assert [bad.index for bad in result.bad] == [3]


def test_the_error_route_gets_the_record_its_place_and_the_reason_also_when_it_is_no_text() -> None:
    row = pa.table({"key": pa.array([b"k"], pa.binary()), "payload": pa.array([b"\xff\x00"], pa.binary())})
    batch = error_batch([BadRecord("in", "0", {"at": 7}, 2, row, "ValueError: no")])
    assert json.loads(batch.column("payload")[0].as_py()) == {
        "source": "in",
        "stream": "0",
        "after": {"at": 7},
        "index": 2,
        "reason": "ValueError: no",
        "key": "k",
        "payload": "base64:/wA=",
    }
