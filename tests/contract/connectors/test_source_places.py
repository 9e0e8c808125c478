"""Where a record stands, as an operator is told it who wants to open it. Memory registry and local files."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import PlannedRange, RoundLimits
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.formats import frames as frame_module
from scribengin.connectors.files.formats import growing, reading
from scribengin.connectors.files.formats import lines as line_module
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.source.columns import SCHEMA
from scribengin.connectors.kafka.source.reading import KafkaSplit, Reading
from scribengin.connectors.log.source import LogSource, LogSourceConfig
from scribengin.connectors.spark.contract import SparkTable
from scribengin.connectors.spark.source import TableSplit
from scribengin.dataflow.round.bad_records import Piece
from scribengin.log import LogNamespace
from scribengin.testing.memory.registry import MemoryEnsemble

RECORDS = [b"", "Grüße, 世界".encode(), bytes(b for b in range(256) if b != 10), b"x" * 70, b"\r", b"last"]


def planned(path: Path, **settings: Any) -> list[PlannedRange]:
    """All ranges of four records of what is there."""
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(path), "settle_s": 0, **settings}, source="a test")
    source = FileSource("in", config, SYSTEM_CLOCK)
    reader = source.open_reader(source.streams()[0])
    plans, position = [], reader.initial_position()
    while (plan := reader.plan(position, RoundLimits(4, 10**9))) is not None:
        plans.append(plan)
        position = plan.end
    return plans


def places(plans: Sequence[PlannedRange], schema: pa.Schema | None = None) -> list[str]:
    """Of all records of the ranges."""
    told: list[str] = []
    for plan in plans:
        piece = Piece.read("in", "0", plan, schema or next(plan.splits[0].read()).schema)
        told += piece.places(range(piece.rows.num_rows))
    return told


def lines(records: Sequence[bytes]) -> bytes:
    return b"".join(record + b"\n" for record in records)


def frames(records: Sequence[bytes]) -> bytes:
    return b"".join(len(record).to_bytes(4, "big") + record for record in records)


@pytest.mark.parametrize(
    ("name", "data", "settings", "called"),
    [
        ("a.txt", lines(RECORDS), {}, "line"),
        ("a.bin", frames(RECORDS), {"file_format": "binary"}, "frame"),
        ("a.txt.gz", gzip.compress(lines(RECORDS)), {}, "line"),
        ("a.bin.gz", gzip.compress(frames(RECORDS)), {"file_format": "binary"}, "frame"),
    ],
)
def test_a_record_of_a_file_is_told_by_its_line_or_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, settings: dict[str, Any], called: str
) -> None:
    monkeypatch.setattr(reading, "SPLIT_BYTES", 50)
    monkeypatch.setattr(growing, "_BLOCK_BYTES", 7)
    for module in (line_module, frame_module):
        monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    (tmp_path / name).write_bytes(data)
    plans = planned(tmp_path, **settings)
    assert sum(len(plan.splits) for plan in plans) > len(plans) > 1
    assert places(plans) == [f"{tmp_path / name}, {called} {number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("encode", "settings", "called"), [(lines, {}, "line"), (frames, {"file_format": "binary"}, "frame")]
)
def test_far_behind_in_a_file_it_is_told_by_its_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode: Any, settings: dict[str, Any], called: str
) -> None:
    monkeypatch.setattr(growing, "COUNTED_BYTES_MAX", 10)
    path = tmp_path / "a"
    path.write_bytes(encode(RECORDS))
    begins = [len(encode(RECORDS[:n])) for n in range(6)]
    told = [f"{path}, {called} {n}" for n in range(1, 5)] + [f"{path}, {called} at byte {at}" for at in begins[4:]]
    assert places(planned(tmp_path, **settings)) == told


def test_a_line_that_had_no_newline_when_it_was_read_counts(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2")
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(tmp_path), "settle_s": 0}, source="a test")
    source = FileSource("in", config, SYSTEM_CLOCK)
    reader = source.open_reader(source.streams()[0])
    first = reader.plan(reader.initial_position(), RoundLimits(9, 10**9))
    assert first is not None
    path.write_bytes(b"1\n2\n3\n")
    second = reader.plan(first.end, RoundLimits(9, 10**9))
    assert second is not None
    assert places([first, second]) == [f"{path}, line {n}" for n in (1, 2, 3)]


def test_a_row_of_parquet_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(10)}), path, row_group_size=3)
    assert places(planned(tmp_path, file_format="parquet")) == [f"{path}, row {n}" for n in range(1, 11)]


def test_a_record_of_a_log_is_told_by_its_dlsn(tmp_path: Path) -> None:
    with MemoryEnsemble().connect() as registry:
        LogNamespace.bind("/logs", tmp_path, registry=registry)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            namespace.create("in/0")
            with namespace.open_writer("in/0") as writer:
                for batch in (RECORDS[:2], RECORDS[2:]):
                    writer.write_bulk(pa.record_batch({"payload": pa.array(batch, pa.binary())})).result(60)
            with namespace.open_reader("in/0") as log_reader:
                there = [record.dlsn for record in log_reader.read(6)]
        config = LogSourceConfig.parse({"kind": "log", "logs": "in/*"}, source="a test")
        source = LogSource("in", config, registry, SYSTEM_CLOCK)
        reader = source.open_reader(source.streams()[0])
        position, plans = reader.initial_position(), []
        while (plan := reader.plan(position, RoundLimits(4, 10**9))) is not None:
            plans.append(plan)
            position = plan.end
        assert places(plans) == [f"log in/0, DLSN {d.segment}/{d.entry}/{d.slot}" for d in there]
        assert len(set(there)) == 6
        reader.close()
        source.close()


def test_a_record_of_a_topic_is_told_by_its_offset_also_behind_gaps() -> None:
    connection = KafkaConnectionConfig.parse({"bootstrap": "nobody:1"}, source="a test")
    split = KafkaSplit(Reading(connection, "read_committed", "keep"), "Grüße", "id", 3, 10, 90, 80, 800)
    nulls = {field.name: pa.nulls(2, field.type) for field in SCHEMA}
    rows = pa.table({**nulls, "offset": pa.array([17, 81], pa.int64())}, schema=SCHEMA)
    assert split.places([1, 4], rows) == [f"topic Grüße, partition 3, offset {at}" for at in (17, 81)]


def test_a_row_of_a_table_is_told_by_its_increasing_column_or_its_number() -> None:
    table = str(SparkTable.of("jdbc", {"password": "hidden"}))
    rows = pa.table({"id": [70, 80]})
    inner: Any = None  # what is read does not matter
    assert TableSplit(inner, table, "id", 5).places([0, 1], rows) == [
        f"Spark's format jdbc, id = {n}" for n in (70, 80)
    ]
    assert TableSplit(inner, table, None, 5).places([0, 1], rows) == [
        f"Spark's format jdbc, row {n} of those read" for n in (6, 7)
    ]


def test_what_cannot_be_read_again_is_told_by_its_position(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(lines(RECORDS))
    (_, plan) = planned(tmp_path)
    piece = Piece.read("in", "0", plan, next(plan.splits[0].read()).schema)
    (tmp_path / "a").unlink()
    (told,) = piece.places([1])
    assert told.startswith("record 1 after {")
