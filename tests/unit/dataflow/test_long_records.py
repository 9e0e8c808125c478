"""Records that are longer than their source takes: found by columns, told like any bad record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import RECORD_SCHEMA, PlannedRange
from scribengin.connectors.odd_records import LongRecord
from scribengin.dataflow.round.bad_records import BadRecord, Piece, error_batch, isolate
from scribengin.dataflow.round.long_records import BoundedSplit, long_rows, splits_without
from scribengin.errors import TransformationFailed

COLUMNS = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("raw", pa.binary())])


@dataclass(frozen=True)
class Rows:
    """A split in hand."""

    table: pa.Table

    @property
    def records(self) -> int:
        return int(self.table.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.table.nbytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        return [f"row {index}" for index in indices]


def table(sizes: Sequence[int]) -> pa.Table:
    """Rows whose tags, or raw bytes, have about these sizes."""
    tags = [["ü" * (size // 4)] * 2 if n % 2 else [] for n, size in enumerate(sizes)]
    raw = [None if n % 2 else bytes(range(256)) * (size // 256) for n, size in enumerate(sizes)]
    return pa.table([pa.array(range(len(sizes))), tags, pa.array(raw, pa.binary())], schema=COLUMNS)


@given(st.lists(st.sampled_from([0, 300, 5_000, 90_000]), max_size=40), st.integers(0, 30))
def test_a_row_is_too_long_by_itself_whatever_stands_beside_it(sizes: list[int], skipped: int) -> None:
    rows = table(sizes).slice(skipped)
    expected = [n for n, size in enumerate(sizes[skipped:]) if size == 90_000]
    assert long_rows(rows, 20_000) == expected
    for batch in rows.to_batches():
        assert long_rows(batch, 20_000) == expected


def test_reading_raises_at_a_record_that_is_too_long_and_changes_no_other() -> None:
    bounded = BoundedSplit(Rows(table([300, 5_000])), 20_000)
    assert pa.Table.from_batches(bounded.read()).equals(table([300, 5_000]))
    assert (bounded.records, bounded.size_bytes) == (2, table([300, 5_000]).nbytes)
    with pytest.raises(TransformationFailed, match=r"a record of 90,\d+ bytes, and the source takes 20,000"):
        list(BoundedSplit(Rows(table([300, 90_000])), 20_000).read())


def test_neither_the_decoder_nor_the_transformation_gets_to_see_it_and_all_others_are_delivered() -> None:
    sizes = [90_000, 300, 5_000, 90_000, 0, 300]
    plan = PlannedRange({"at": 0}, {"at": 6}, 6, (Rows(table(sizes[:2])), Rows(table(sizes[2:]))))
    piece = Piece.read("in", "0", plan, COLUMNS, 20_000)
    seen: list[Any] = []

    def undecodable(tables: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        seen.append(tables["in"].column("raw").to_pylist())
        return {"in": {1: "malformed"}}

    def run(tables: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        seen.append(tables["in"].column("raw").to_pylist())
        return {"out": tables["in"].to_batches()}

    found = isolate([piece], run, undecodable, 10, raising=lambda _: {}, stop_at_first=False)
    assert all(len(raw or b"") < 20_000 for rows in seen for raw in rows)
    assert [(bad.index, bad.place) for bad in found.bad] == [(0, "row 0"), (2, "row 0"), (3, "row 1")]
    assert found.bad[1].reason == "malformed"
    assert "record_bytes_max" in found.bad[0].reason
    delivered = pa.Table.from_batches(found.outputs["out"])
    whole = pa.concat_tables([table(sizes[:2]), table(sizes[2:])])
    assert delivered.equals(whole.take([1, 4, 5]))


def test_a_range_of_nothing_else_is_not_run_at_all() -> None:
    plan = PlannedRange({"at": 0}, {"at": 1}, 1, (Rows(table([90_000])),))
    piece = Piece.read("in", "0", plan, COLUMNS, 20_000)
    called: list[Any] = []

    def call(tables: Mapping[str, pa.Table]) -> Any:
        called.append(tables)
        return {}

    found = isolate([piece], call, call, 9, raising=call, stop_at_first=False)
    assert [bad.index for bad in found.bad] == [0]
    assert called == []


def test_what_is_not_here_as_a_whole_is_told_by_its_length_and_checksum() -> None:
    payload = bytes(range(256)) * 4_000
    row = pa.table([[None], [None], [None], [payload[:500]]], schema=RECORD_SCHEMA)
    whole = LongRecord(payload[:500], len(payload), hashlib.sha256(payload).hexdigest())
    for bytes_max in (None, 700):
        bad = BadRecord("in", "0", {"at": 0}, 3, row, "too long", "a.txt, line 4", whole)
        (told,) = error_batch([bad], bytes_max).column("payload").to_pylist()
        document = json.loads(told)
        assert document["cut"]["payload"] == {"bytes": len(payload), "sha256": whole.sha256}
        assert document["payload"].startswith("base64:AAECAw")
        assert document["place"] == "a.txt, line 4"


@given(st.lists(st.integers(0, 9), max_size=5), st.data())
def test_splits_without_some_records_give_all_others_in_order(counts: list[int], data: st.DataObject) -> None:
    numbers = range(sum(counts))
    bad = data.draw(st.sets(st.sampled_from(numbers)) if numbers else st.just(set()))
    firsts = [sum(counts[:n]) for n in range(len(counts))]
    splits = [Rows(pa.table({"n": pa.array(range(f, f + c), pa.int64())})) for f, c in zip(firsts, counts, strict=True)]
    left = splits_without(splits, bad)
    assert [n for split in left for batch in split.read() for n in batch.column("n").to_pylist()] == [
        n for n in numbers if n not in bad
    ]
    assert sum(split.records for split in left) == len(numbers) - len(bad)


def test_a_split_of_nothing_but_a_bad_record_is_not_read_at_all() -> None:
    """What is too long for its source need not be held to be left out."""
    assert splits_without([Unreadable(), Rows(pa.table({"n": [1]}))], {0}) == [Rows(pa.table({"n": [1]}))]


class Unreadable(Rows):
    """One record that cannot be held."""

    def __init__(self) -> None:
        super().__init__(pa.table({"n": [0]}))

    def read(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError("it is read")
