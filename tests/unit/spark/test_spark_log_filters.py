"""Filters that Spark pushes down: what they leave out, and that they never leave out what a query wants."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from scribengin.errors import ConfigInvalid
from scribengin.log import READ_SCHEMA
from scribengin.spark.log_format.filters import Range, Wanted, pushed
from scribengin.spark.log_format.options import LogReadOptions, parse_bound

ROWS: list[dict[str, Any]] = [
    {"log": log, "txid": txid, "channel": channel, "key": key, "segment": 1 + txid // 4, "sequence_id": txid}
    for txid, (log, channel, key) in enumerate(
        (log, channel, key)
        for log in ("a", "ab", "b")
        for channel in (None, "x", "x/y", "")
        for key in (None, b"", b"k", b"\xff")
    )
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=READ_SCHEMA.append(pa.field("log", pa.string())))


def holds(given: Filter, row: dict[str, Any]) -> bool:
    """What SQL says: a comparison with null is not true."""
    if isinstance(given, Not):
        return holds(IsNotNull(_column(given.child)), row) and not holds(given.child, row)
    value = row[_column(given)[0]]
    if isinstance(given, IsNull):
        return value is None
    if value is None:
        return False
    tests: dict[type[Filter], Callable[[Any], bool]] = {
        EqualTo: lambda wanted: value == wanted,
        EqualNullSafe: lambda wanted: value == wanted,
        In: lambda wanted: value in wanted,
        GreaterThan: lambda wanted: value > wanted,
        GreaterThanOrEqual: lambda wanted: value >= wanted,
        LessThan: lambda wanted: value < wanted,
        LessThanOrEqual: lambda wanted: value <= wanted,
        StringStartsWith: lambda wanted: value.startswith(wanted),
        StringContains: lambda wanted: wanted in value,
        IsNotNull: lambda _wanted: True,
    }
    return tests[type(given)](getattr(given, "value", None))


def _column(given: Filter) -> tuple[str, ...]:
    return tuple(getattr(given, "attribute"))  # noqa: B009  # the base class does not declare it


def some_filter(chance: random.Random) -> Filter:
    column = chance.choice(["txid", "segment", "sequence_id", "log", "channel", "key"])
    values = [row[column] for row in ROWS if row[column] is not None]
    value = chance.choice(values)
    kinds: list[Filter] = [
        EqualTo((column,), value),
        EqualNullSafe((column,), value),
        In((column,), tuple(chance.sample(values, 3))),
        IsNotNull((column,)),
        IsNull((column,)),
        Not(EqualTo((column,), value)),
    ]
    if isinstance(value, int):
        kinds += [kind((column,), value) for kind in (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)]
    if isinstance(value, str):
        kinds += [StringStartsWith((column,), value[:1]), StringContains((column,), value[-1:])]
    return chance.choice(kinds)


def kept(wanted: Wanted) -> list[int]:
    """The rows that are read: of the logs, in the ranges, that pass in the tasks."""
    rows = wanted.rows(BATCH).to_pylist()
    segment = wanted.segment
    return [
        row["txid"]
        for row in rows
        if wanted.takes(row["log"])
        if (segment.first or 0) <= 1 + row["txid"] // 4 < (1 << 60 if segment.end is None else segment.end)
    ]


def test_no_row_that_a_query_wants_is_left_out() -> None:
    chance = random.Random(4)
    shortened = 0
    for _turn in range(2000):
        filters = [some_filter(chance) for _ in range(chance.randint(1, 3))]
        read = kept(pushed(filters, Wanted()))
        right = [row["txid"] for row in ROWS if all(holds(given, row) for given in filters)]
        assert set(right) <= set(read), filters
        shortened += len(read) < len(ROWS)
    assert shortened > 1000


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (EqualTo(("txid",), 5), [5]),
        (In(("txid",), (5, 7)), [5, 6, 7]),
        (GreaterThan(("sequence_id",), 45), [46, 47]),
        (LessThanOrEqual(("txid",), 1), [0, 1]),
        (EqualTo(("key",), b"\xff"), list(range(3, 48, 4))),
        (StringStartsWith(("channel",), "x/"), [n for n in range(48) if n // 4 % 4 == 2]),
        (EqualTo(("log",), "ab"), list(range(16, 32))),
    ],
)
def test_rows_are_left_out_before_they_travel(given: Filter, rows: list[int]) -> None:
    assert kept(pushed([given], Wanted())) == rows


@pytest.mark.parametrize(
    "given", [EqualTo(("txid",), 1.5), EqualTo(("a", "txid"), 1), In(("txid",), (None,)), Not(EqualTo(("txid",), 1))]
)
def test_what_is_not_understood_leaves_out_nothing(given: Filter) -> None:
    assert kept(pushed([given], Wanted())) == list(range(48))


def test_ranges_meet() -> None:
    assert Range(1, 9) & Range(None, 5) & Range(3, None) == Range(3, 5)
    assert (Range() & Range()).everything
    assert not Range(0, None).everything


def test_options_are_read_whatever_their_case_and_a_missing_one_is_named() -> None:
    options = LogReadOptions.of({"NAMESPACE": "distributedlog-file://h/logs", "log": "/a", "maxrecordspertrigger": "7"})
    assert (options.log, options.max_records_per_trigger) == ("a", 7)
    with pytest.raises(ConfigInvalid, match="log: is missing"):
        LogReadOptions.of({"namespace": "x"})


def test_a_time_is_a_transaction_id() -> None:
    assert parse_bound("time:2013-01-01T05:00:00Z") == parse_bound("txid:1357016400000")
    assert parse_bound("time:2013-01-01T06:00:00+01:00") == parse_bound("time:1357016400000")
    assert parse_bound("time:2013-01-01") == parse_bound("time:2013-01-01T00:00:00")
