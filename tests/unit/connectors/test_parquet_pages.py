"""What a small Parquet file may become in memory: told by the heads of its pages, before anything is decompressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.files.formats.parquet import ParquetSplit
from scribengin.connectors.files.formats.parquet_pages import pages
from scribengin.errors import DataflowError

MIB = 1 << 20
SCHEMA = pa.schema({"payload": pa.string()})


def batches(path: Path, *, rows: int, record_bytes_max: int = 16 * MIB) -> Iterator[pa.RecordBatch]:
    data = path.read_bytes()
    split = ParquetSplit(str(path), "", len(data), "", 0, rows, 0, SCHEMA, record_bytes_max)
    return split._rows(lambda start, end: data[start:end])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "brotli"])
def test_a_page_that_becomes_too_large_is_refused_before_it_is_decompressed(
    tmp_path: Path, codec: str, version: str
) -> None:
    path = tmp_path / "small.parquet"
    table = pa.table({"payload": ["x" * MIB] * 20})
    pq.write_table(table, path, use_dictionary=False, compression=codec, data_page_version=version)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(DataflowError) as refused:
        next(batches(path, rows=20, record_bytes_max=MIB))
    assert pa.default_memory_pool().max_memory() <= max(before, 8 * MIB)
    words = str(refused.value)
    assert str(path) in words
    assert "column 'payload'" in words
    assert "20,97" in words  # a little more than 20 MiB
    assert "takes 16,777,216 (16 times record_bytes_max)" in words
    assert "\n" not in words
    assert sum(batch.num_rows for batch in batches(path, rows=20, record_bytes_max=2 * MIB)) == 20


@pytest.mark.parametrize("codec", ["zstd", "none", "lz4"])
@pytest.mark.parametrize("as_dictionary", [True, False])
def test_a_long_value_that_stands_in_every_row_is_decoded_a_few_rows_at_once(
    tmp_path: Path, codec: str, as_dictionary: bool
) -> None:
    """A row took 130 bytes by the footer, and 8 MiB in memory."""
    path = tmp_path / "dictionary.parquet"
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array(["x" * 8 * MIB]))
    limits: dict[str, Any] = {"dictionary_pagesize_limit": 64 * MIB, "write_statistics": False}
    pq.write_table(pa.table({"payload": values}), path, compression=codec, store_schema=as_dictionary, **limits)
    found = next(batches(path, rows=65_536))
    assert found.schema == SCHEMA
    assert found.num_rows == 8


def test_values_that_begin_as_the_one_before_are_decoded_a_few_rows_at_once(tmp_path: Path) -> None:
    path = tmp_path / "prefixes.parquet"
    encodings = {"use_dictionary": False, "column_encoding": {"payload": "DELTA_BYTE_ARRAY"}}
    pq.write_table(pa.table({"payload": ["x" * MIB] * 200}), path, write_statistics=False, **encodings)
    found = list(batches(path, rows=200))
    assert sum(batch.num_rows for batch in found) == 200
    assert max(batch.nbytes for batch in found) <= 65 * MIB


def test_short_values_of_a_dictionary_are_decoded_as_many_at_once_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "honest.parquet"
    pq.write_table(pa.table({"payload": [f"word {at % 5000}" for at in range(100_000)]}), path)
    assert [batch.num_rows for batch in batches(path, rows=100_000)] == [65_536, 34_464]


@given(
    rows=st.lists(st.one_of(st.none(), st.text(max_size=50)), min_size=1, max_size=400),
    version=st.sampled_from(["1.0", "2.0"]),
    page_bytes=st.integers(10, 2000),
    dictionary=st.booleans(),
)
def test_heads_lead_through_the_whole_chunk(
    rows: list[str | None], version: str, page_bytes: int, dictionary: bool
) -> None:
    sink = pa.BufferOutputStream()
    layout: dict[str, Any] = {"data_page_version": version, "data_page_size": page_bytes, "write_batch_size": 10}
    pq.write_table(pa.table({"a": pa.array(rows, pa.string())}), sink, use_dictionary=dictionary, **layout)
    data = sink.getvalue().to_pybytes()
    chunk = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    found = list(pages(chunk, lambda start, end: data[start:end], file_bytes=len(data), url="x"))
    assert sum(page.values for page in found if page.kind != 2) == len(rows)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    assert found[-1].end == first + chunk.total_compressed_size
    # The footer counts the heads, too.
    heads = found[0].start - first + sum(after.start - page.end for page, after in pairwise(found))
    assert sum(page.size_bytes for page in found) + heads == chunk.total_uncompressed_size


@given(data=st.binary(max_size=300), claimed=st.integers(0, 1000))
def test_bytes_that_are_no_heads_are_damage_and_nothing_else(data: bytes, claimed: int) -> None:
    chunk = type("Chunk", (), {"data_page_offset": 0, "dictionary_page_offset": None, "total_compressed_size": claimed})
    with suppress(DataflowError):
        list(pages(chunk, lambda start, end: data[start:end], file_bytes=len(data), url="x"))
