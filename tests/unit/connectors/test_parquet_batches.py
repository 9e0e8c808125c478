"""How much of a row group is decoded at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors.files.formats.parquet import ParquetSplit, RowGroup, batch_rows

MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "size_bytes", "at_once"),
    [(1_000_000, 8 * MIB, 65_536), (1000, 1000 * MIB, 64), (10, 100_000 * MIB, 1), (0, 0, 65_536)],
)
def test_wide_rows_are_decoded_few_at_once(rows: int, size_bytes: int, at_once: int) -> None:
    assert batch_rows(RowGroup(5, rows, size_bytes)) == at_once


@pytest.mark.long
def test_a_row_group_of_wide_rows_is_not_one_batch(tmp_path: Path) -> None:
    path, payload = tmp_path / "wide.parquet", ["x" * MIB] * 200
    pq.write_table(pa.table({"payload": payload}), path, use_dictionary=False, compression="snappy")
    data = path.read_bytes()
    schema = pa.schema({"payload": pa.string()})
    split = ParquetSplit(str(path), "", len(data), "", 10, 190, 0, schema)
    found = list(split._rows(lambda start, end: data[start:end]))
    assert sum(batch.num_rows for batch in found) == 180
    assert max(batch.num_rows for batch in found) <= 64
