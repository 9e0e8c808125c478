"""Parquet files: the output's own columns. Merging rewrites row groups, and never makes a Python object of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.connectors.files.formats.compressing import Outlet
from scribengin.connectors.files.formats.writing import Content, FileEncoder, FileWriting, Write
from scribengin.errors import ConfigInvalid, DataflowError

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""About so much of a file stands in one row group, counted in memory."""


class ParquetWriting(FileWriting):
    """Parquet, each column compressed with `codec`. A file has one schema, and so has what is merged into one."""

    suffix = "parquet"

    def __init__(self, codec: str) -> None:
        """`codec`: none, snappy, gzip, zstd or lz4."""
        self._codec = codec

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        if not batch.num_columns:
            raise ConfigInvalid(f"{what}: the output has no columns beside those of its partitions; select some")

    def content(self, batch: pa.RecordBatch, *, what: str) -> pa.RecordBatch:
        self.check(batch, what=what)
        return batch

    def encoder(self, first: Content, write: Write) -> FileEncoder:
        return _ParquetEncoder(first.schema, self._codec, write)

    def join(self, contents: Sequence[Iterator[bytes]], write: Write) -> int:
        file = _opened(contents[0])
        encoder = _ParquetEncoder(file.schema_arrow, self._codec, write)
        taken = 0
        try:
            while encoder.is_of(file.schema_arrow):
                for batch in file.iter_batches():
                    encoder.append(batch)
                taken += 1
                if taken == len(contents):
                    break
                file = _opened(contents[taken])
            encoder.finish()
        finally:
            encoder.abandon()
        return taken

    def batches(self, blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        yield from _opened(blocks).iter_batches()


class _ParquetEncoder(FileEncoder):
    def __init__(self, schema: pa.Schema, codec: str, write: Write) -> None:
        self._schema = schema
        self._outlet = Outlet(write)
        self._writer = pq.ParquetWriter(pa.PythonFile(self._outlet, "w"), schema, compression=codec)
        self._waiting: list[pa.RecordBatch] = []

    def is_of(self, schema: pa.Schema) -> bool:
        """Whether the file has these columns, of these types."""
        return bool(self._schema.equals(schema))

    def takes(self, content: Content) -> bool:
        return self.is_of(content.schema)

    def append(self, content: Content) -> None:
        self._waiting.append(content)
        self.waiting_bytes += content.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> None:
        self._write_row_group()
        self._writer.close()

    def abandon(self) -> None:
        self._outlet.shut()

    def _write_row_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self.waiting_bytes = [], 0


def _opened(blocks: Iterator[bytes]) -> pq.ParquetFile:
    """A segment or a final file, read whole: a Parquet file is read from its end."""
    try:
        return pq.ParquetFile(pa.BufferReader(b"".join(blocks)))
    except pa.ArrowInvalid as error:
        raise DataflowError(f"a Parquet file of the sink is damaged: {error}; restore it from elsewhere") from None
