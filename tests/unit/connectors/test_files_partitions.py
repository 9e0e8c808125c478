"""Partition directories: which one a record goes to, in Hive's names, and what the configuration refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors.files.sink.partitions import FilePartitionConfig
from scribengin.errors import CommitTooLarge, ConfigInvalid


def split(batch: pa.RecordBatch, **settings: Any) -> dict[str, list[Any]]:
    """The numbers in column `n` that each partition gets."""
    parts = FilePartitionConfig.parse(settings, source="a test").split(batch, what="out")
    return {name: rows.column("n").to_pylist() for name, rows in parts}


def rows(**columns: Any) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    return pa.record_batch({**columns, "n": pa.array(range(count))})


def test_each_value_has_a_directory_and_keeps_the_order_of_its_records() -> None:
    batch = rows(carrier=["AA", "UA", "AA", "B6", "UA"])
    assert split(batch, columns=["carrier"]) == {"carrier=AA": [0, 2], "carrier=UA": [1, 4], "carrier=B6": [3]}
    assert split(batch.slice(1, 2), columns=["carrier"]) == {"carrier=UA": [1], "carrier=AA": [2]}
    assert split(batch.slice(0, 0), columns=["carrier"]) == {}


def test_several_columns_are_directories_in_directories() -> None:
    batch = rows(a=["x", "x", "y"], b=pa.array([1, 2, 1], pa.int16()))
    assert split(batch, columns=["b", "a"]) == {"b=1/a=x": [0], "b=2/a=x": [1], "b=1/a=y": [2]}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("a=b:c", "a%3Db%3Ac"),
        ("tab\t", "tab%09"),
        ("New York", "New York"),
        ("Zürich", "Zürich"),
        ("..", ".."),
        (True, "true"),
        (-7, "-7"),
        (date(2013, 1, 31), "2013-01-31"),
    ],
)
def test_values_are_written_as_hive_writes_them(value: object, name: str) -> None:
    column = pa.array([value]) if value is not None else pa.array([None], pa.string())
    assert split(rows(v=column), columns=["v"]) == {f"v={name}": [0]}


def test_times_are_directories_in_utc() -> None:
    times = [datetime(2013, 1, 1, 23, 59, 59, 999999, UTC), None, datetime(2013, 1, 2, 0, 0, tzinfo=UTC)]
    first, null, second = (
        "dt=2013-01-01/hour=23",
        "dt=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__",
        "dt=2013-01-02/hour=00",
    )
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ns", "America/New_York")):
        assert split(rows(t=pa.array(times).cast(kind)), time="t") == {first: [0], null: [1], second: [2]}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("y=%Y/m=%m/d=%d", "y=2013/m=03/d=09"), ("t=%Y%m%d-%H.%M", "t=20130309-17.05"), ("day=%j", "day=068")],
)
def test_a_pattern_says_how_fine_the_directories_are(pattern: str, name: str) -> None:
    times = pa.array([datetime(2013, 3, 9, 17, 5, 1), datetime(2013, 3, 9, 17, 5, 59)])
    assert split(rows(t=times), time="t", pattern=pattern) == {name: [0, 1]}


def test_what_the_path_says_is_not_in_the_file_and_the_event_time_is() -> None:
    batch = rows(carrier=["AA"], t=pa.array([date(2013, 1, 1)]))
    (by_carrier,) = FilePartitionConfig(columns=("carrier",)).split(batch, what="out")
    (by_day,) = FilePartitionConfig(time="t", pattern="dt=%Y-%m-%d").split(batch, what="out")
    (by_its_own,) = FilePartitionConfig(time="t", pattern="t=%Y-%m-%d").split(batch, what="out")
    assert (by_carrier[1].schema.names, by_day[1].schema.names) == (["t", "n"], ["carrier", "t", "n"])
    assert (by_day[0], by_its_own[0], by_its_own[1].schema.names) == ("dt=2013-01-01", "t=2013-01-01", ["carrier", "n"])


@pytest.mark.parametrize(
    ("batch", "settings", "said"),
    [
        (rows(a=["x"]), {"columns": ["b"]}, "no column 'b' .with format json: '_b'. to find a partition by; select it"),
        (rows(a=[1.5]), {"columns": ["a"]}, "column 'a' is double, which names no directory: cast it"),
        (rows(a=["2013"]), {"time": "a"}, "column 'a' is string, and no timestamp or date: cast it"),
        (rows(a=[date(2013, 1, 1)], dt=["x"]), {"time": "a"}, "a column 'dt', and the pattern .* makes another one"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(batch: pa.RecordBatch, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        split(batch, **settings)


def test_a_batch_for_too_many_partitions_is_refused_with_what_to_do() -> None:
    batch = rows(a=pa.array(range(11)))
    assert len(split(batch, columns=["a"], round_max=11)) == 11
    with pytest.raises(
        CommitTooLarge, match=r"writes to 11 partitions, and 10 are allowed: make round\.records_max sm"
    ):
        split(batch, columns=["a"], round_max=10)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "name either columns, or a time column"),
        ({"columns": ["a"], "time": "t"}, "name either columns, or a time column"),
        ({"columns": ["_a"]}, "'_a' cannot name a directory"),
        ({"columns": ["a/b"]}, "'a/b' cannot name a directory"),
        ({"columns": ["a", "a"]}, "a column is named twice"),
        ({"time": "t", "pattern": "%Y"}, "'%Y' is no pattern like"),
        ({"time": "t", "pattern": "dt=%Y/"}, "is no pattern like"),
        ({"time": "t", "pattern": "dt=%s"}, "is no pattern like"),
        ({"time": "t", "pattern": "dt=x"}, "is no pattern like"),
        ({"time": "t", "pattern": "_dt=%Y"}, "is no pattern like"),
        ({"time": "t", "pattern": "a=%d/dt=%Y/dt=%m"}, "'a=%d/dt=%Y/dt=%m' names 'dt' twice"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        FilePartitionConfig.parse(settings, source="a test")
