"""When keys of divided sources are looked at, and of how many records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from scribengin.connectors.contract import PlannedRange
from scribengin.dataflow.round.key_looks import LOOK_EVERY_S, LOOKED_AT_BYTES_MAX, LOOKED_AT_MAX, KeyedRange, KeyLooks
from scribengin.errors import RecordMisplaced
from scribengin.spark.transform.spec import Misplaced

SCHEMA = pa.schema([pa.field("payload", pa.binary())])


class Rows:
    """A split of so many records, of so many bytes each."""

    def __init__(self, records: int, record_bytes: int = 1) -> None:
        self.records = records
        self.size_bytes = records * record_bytes
        self._record = b"x" * record_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([self._record] * self.records, pa.binary())], schema=SCHEMA)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        return [f"record {index}" for index in indices]


class Looks:
    """What was looked at: (source, records by stream)."""

    def __init__(self, found: Misplaced | None = None) -> None:
        self.seen: list[tuple[str, dict[int, int]]] = []
        self._found = found

    def __call__(self, source: str, streams: Mapping[int, pa.Table]) -> Misplaced | None:
        self.seen.append((source, {number: rows.num_rows for number, rows in streams.items()}))
        return self._found


def a_range(source: str, number: int, *splits: int) -> KeyedRange:
    plan = PlannedRange({}, {}, sum(splits), tuple(map(Rows, splits)))
    return KeyedRange(source, f"{source}/{number}", number, plan, SCHEMA)


def test_a_stream_is_looked_at_once_and_again_a_minute_later() -> None:
    looks = Looks()
    keys = KeyLooks(looks)
    keys.refuse_misplaced([a_range("a", 0, 1), a_range("a", 2, 2), a_range("b", 0, 3)], 7.0)
    keys.refuse_misplaced([a_range("a", 0, 1), a_range("b", 2, 4)], 8.0)
    keys.refuse_misplaced([a_range("a", 0, 5), a_range("b", 0, 5), a_range("b", 2, 5)], 7.0 + LOOK_EVERY_S)
    assert looks.seen == [("a", {0: 1, 2: 2}), ("b", {0: 3}), ("b", {2: 4}), ("a", {0: 5}), ("b", {0: 5, 2: 5})]


def test_of_a_long_range_the_first_records_are_looked_at() -> None:
    looks = Looks()
    KeyLooks(looks).refuse_misplaced([a_range("a", 0, 10, LOOKED_AT_MAX, 5)], 0.0)
    assert looks.seen == [("a", {0: LOOKED_AT_MAX})]


def test_of_long_records_few_are_looked_at_and_one_at_least() -> None:
    looks = Looks()
    for record_bytes in (LOOKED_AT_BYTES_MAX // 4, 2 * LOOKED_AT_BYTES_MAX):
        splits = (Rows(5, record_bytes), Rows(5, record_bytes))
        long = KeyedRange("a", "a/0", 0, PlannedRange({}, {}, 10, splits), SCHEMA)
        KeyLooks(looks).refuse_misplaced([long], 0.0)
    assert looks.seen == [("a", {0: 3}), ("a", {0: 1})]


def test_a_record_in_a_wrong_stream_is_told_with_its_place_and_is_looked_at_again() -> None:
    keys = KeyLooks(Looks(Misplaced(2, 1, "AA", 3)))
    for _ in range(2):
        with pytest.raises(RecordMisplaced, match=r"^record 1, of a/a/2, has the key 'AA', which belongs to stream 3 "):
            keys.refuse_misplaced([a_range("a", 0, 1), a_range("a", 2, 4)], 0.0)
