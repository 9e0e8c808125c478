"""Parquet files. As a source: whole ones, planned from their footers, read by row groups.

As a sink: the output's own columns. Merging rewrites row groups, and never makes a Python object of a row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.base.names import given_twice
from scribengin.connectors.contract import RECORD_BYTES_MAX, RoundLimits
from scribengin.connectors.files.formats import reading
from scribengin.connectors.files.formats.compression import Outlet
from scribengin.connectors.files.formats.parquet_pages import PAGE_RECORDS, widest_row
from scribengin.connectors.files.formats.reading import (
    MARK_BYTES,
    FileReading,
    FileToRead,
    RangeFile,
    Scanned,
    cut_rows,
    damage,
    mark_of,
    read_planned,
    same_columns,
)
from scribengin.connectors.files.formats.writing import Content, FileEncoder, FileWriting, Write, WrittenFile
from scribengin.errors import ConfigInvalid, DataflowError
from scribengin.filesystems.contract import FileInfo

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_FOOTERS_KEPT = 256
_SCHEMAS_KEPT = 64
_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 4 * 1024 * 1024
"""So much of each column is read at once. A column of a row group may be larger than memory."""
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""About so much of a file stands in one row group, counted in memory."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows [first, first + rows) of a file, and their size when they are not compressed."""

    first: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file says of itself."""

    schema: pa.Schema
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class ParquetSplit:
    """The rows [first, end) of one file."""

    path: str
    identity: str
    file_bytes: int
    mark: str
    first: int
    end: int
    size_bytes: int
    schema: pa.Schema
    record_bytes_max: int = RECORD_BYTES_MAX

    @property
    def records(self) -> int:
        return self.end - self.first

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches of the source's schema. Raises DataflowError when the file is gone, changed or damaged."""
        read = partial(read_planned, self.path, self.identity)
        if mark_of(read(max(self.file_bytes - MARK_BYTES, 0), self.file_bytes)) != self.mark:
            raise self._changed()
        yield from self._rows(read)

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """File and row, counted from 1."""
        return [f"{self.path}, row {self.first + index + 1}" for index in indices]

    def _rows(self, read: Callable[[int, int], bytes]) -> Iterator[pa.RecordBatch]:
        with damage(self.path, f"Parquet in rows {self.first} to {self.end}"):
            source = pa.PythonFile(RangeFile(read, self.file_bytes), "r")
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            left = self.records
            for number, group in enumerate(_footer(file).groups):
                at = group.first
                if not (at < self.end and self.first < at + group.rows):
                    continue
                for batch in file.iter_batches(self._rows_at_once(file, number, group, read), row_groups=[number]):
                    begin = max(self.first - at, 0)
                    rows = batch.slice(begin, min(left, max(batch.num_rows - begin, 0)))
                    at += batch.num_rows
                    if rows.num_rows:
                        left -= rows.num_rows
                        yield as_schema(rows, self.schema)
                    if not left:
                        return
        raise self._changed()

    def _rows_at_once(
        self, file: pq.ParquetFile, number: int, group: RowGroup, read: Callable[[int, int], bytes]
    ) -> int:
        widest = widest_row(
            file,
            number,
            read,
            file_bytes=self.file_bytes,
            url=self.path,
            page_bytes_max=PAGE_RECORDS * self.record_bytes_max,
        )
        return batch_rows(group, widest)

    def _changed(self) -> DataflowError:
        return DataflowError(
            f"{self.path} changed after it was planned: rows {self.first} to {self.end} are not what they were; put "
            "back what it was"
        )


def batch_rows(group: RowGroup, widest: int = 0) -> int:
    """How many rows are decoded at once: by what their footer says, they take about _BATCH_BYTES. Rows of a group whose
    sizes differ much may take more: the footer tells only the sum. `widest`: what one may take by parquet_pages.py."""
    mean = group.size_bytes / max(group.rows, 1)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(widest, mean, 1.0))))


class ParquetReading(FileReading):
    """Files that have the columns of `schema`, and no others."""

    grows = False

    def __init__(self, schema: Callable[[], pa.Schema], record_bytes_max: int = RECORD_BYTES_MAX) -> None:
        """`schema` is asked when the first file is looked at."""
        self._schema = schema
        self._record_bytes_max = record_bytes_max
        self._footers: OrderedDict[tuple[str, FileInfo], tuple[Footer, str]] = OrderedDict()

    def is_ready(self, file: FileToRead) -> bool:
        """Its last bytes are written last."""
        return (file.url, file.info) in self._footers or is_complete(file)

    def scan(self, file: FileToRead, offset: int, limits: RoundLimits, *, alone: bool) -> Scanned:
        footer, mark = self._footer(file)
        splits: list[ParquetSplit] = []
        records = size = 0
        for group in footer.groups:
            first = max(offset + records, group.first)
            rows, bytes_a_row = group.first + group.rows - first, max(1, group.size_bytes // max(group.rows, 1))
            if rows <= 0:
                continue
            fit = min(rows, limits.records_max - records, (limits.bytes_max - size) // bytes_a_row)
            if fit < 1 and alone and not records:
                fit = 1
            if fit < 1:
                break
            splits += self._splits(file, mark, first, first + fit, bytes_a_row)
            records, size = records + fit, size + fit * bytes_a_row
            if fit < rows:
                break
        end = offset + records
        left = footer.rows - end
        share = file.size_bytes / max(footer.rows, 1)
        left_bytes = max(int(left * share), int(left > 0))
        return Scanned(end, records, size, tuple(splits), left <= 0, int(records * share), left_bytes)

    def _splits(self, file: FileToRead, mark: str, first: int, end: int, bytes_a_row: int) -> list[ParquetSplit]:
        pieces = cut_rows(first, end, max(1, reading.SPLIT_BYTES // bytes_a_row))
        schema, where = self._schema(), (file.url, file.info.identity, file.size_bytes, mark)
        return [
            ParquetSplit(*where, begin, stop, (stop - begin) * bytes_a_row, schema, self._record_bytes_max)
            for begin, stop in pieces
        ]

    def _footer(self, file: FileToRead) -> tuple[Footer, str]:
        """What the file says of itself, and its mark."""
        key = (file.url, file.info)
        if key not in self._footers:
            found = read_footer(file)
            wanted = self._schema()
            if not same_columns(found.schema, wanted):
                raise DataflowError(
                    f"{file.url} has other columns than the source: {_differences(found.schema, wanted)}; give files "
                    "of another kind a directory, and a source, of their own"
                )
            self._footers[key] = found, file.mark(file.size_bytes)
            if len(self._footers) > _FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return self._footers[key]


def is_complete(file: FileToRead) -> bool:
    """Whether a Parquet file ends as one. Raises DataflowError for one that nobody writes any more and does not."""
    end = file.read(max(file.size_bytes - len(_MAGIC), 0), file.size_bytes)
    if end == _MAGIC:
        return True
    if end == _ENCRYPTED:
        raise DataflowError(f"{file.url} is an encrypted Parquet file, and those are not read; decrypt it")
    if file.settled:
        raise DataflowError(
            f"{file.url} does not end as a Parquet file, at byte {file.size_bytes}: it is none, or was never finished; "
            "move it away. A writer should give it a name that begins with _ or . until it is complete"
        )
    return False


def read_footer(file: FileToRead) -> Footer:
    """What a complete file says of itself. Raises DataflowError for damage and for columns of one name,
    FileNotFoundError."""
    with damage(file.url, f"Parquet in the footer that ends at byte {file.size_bytes}"):
        footer = _footer(pq.ParquetFile(pa.PythonFile(RangeFile(file.read, file.size_bytes), "r")))
    if (doubled := _twice(footer.schema)) is not None:
        raise DataflowError(
            f"{file.url} has two columns named '{doubled}', and columns are told by their names: give one another name"
        )
    return footer


def _footer(file: pq.ParquetFile) -> Footer:
    metadata, first, groups = file.metadata, 0, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        groups.append(RowGroup(first, group.num_rows, group.total_byte_size))
        first += group.num_rows
    return Footer(plain_schema(file.schema_arrow), tuple(groups))


def _twice(fields: Iterable[pa.Field]) -> str | None:
    """A name that two of the fields have, or two fields of a struct in them."""
    fields = list(fields)
    inner = (_twice(map(field.type.field, range(field.type.num_fields))) for field in fields)
    return given_twice(field.name for field in fields) or next(filter(None, inner), None)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without metadata, and without what writers choose for their own memory: dictionaries, large offsets."""
    return pa.schema([pa.field(field.name, plain_type(field.type), field.nullable) for field in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The same for one type, and all in it."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type), f.nullable) for f in kind])
    return _PLAIN.get(kind, kind)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with its columns in the order and in the types of `schema`."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _differences(found: pa.Schema, wanted: pa.Schema) -> str:
    here, there = ({field.name: str(field.type) for field in schema} for schema in (found, wanted))
    told = [f"{name} is missing" for name in there if name not in here]
    told += [f"{name} is too many" for name in here if name not in there]
    told += [
        f"{name} is {here[name]} and not {there[name]}" for name in there if here.get(name, there[name]) != there[name]
    ]
    return ", ".join(told)


class ParquetWriting(FileWriting):
    """Parquet, each column compressed with `codec`. A file has one schema, and so has what is merged into one."""

    suffix = "parquet"

    def __init__(self, codec: str) -> None:
        """`codec`: none, snappy, gzip, zstd or lz4."""
        self._codec = codec

    def check(self, batch: pa.RecordBatch, *, what: str) -> None:
        if not batch.num_columns:
            raise ConfigInvalid(f"{what}: the output has no columns beside those of its partitions; select some")
        if (odd := _not_held(batch.schema)) is not None:
            raise ConfigInvalid(
                f"{what}: column '{odd.name}' is {odd.type}, which Parquet does not hold: cast it, or leave it out"
            )

    def content(self, batch: pa.RecordBatch, *, what: str) -> pa.RecordBatch:
        self.check(batch, what=what)
        return batch

    def encoder(self, first: Content, write: Write) -> FileEncoder:
        return _ParquetEncoder(first.schema, self._codec, write)

    def join(self, files: Sequence[WrittenFile], write: Write) -> int:
        schema, batches = _opened(files[0])
        encoder = _ParquetEncoder(schema, self._codec, write)
        taken = 0
        try:
            while encoder.is_of(schema):
                for batch in batches:
                    encoder.append(batch)
                taken += 1
                if taken == len(files):
                    break
                schema, batches = _opened(files[taken])
            encoder.finish()
        finally:
            encoder.abandon()
        return taken

    def batches(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        return _opened(file)[1]


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _not_held(schema: pa.Schema) -> pa.Field | None:
    """A column that cannot stand in a Parquet file: Arrow knows when it begins one."""
    for field in schema:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowException:
            return field
    return None


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
        self._waiting = []
        self.waiting_bytes = 0


def _opened(file: WrittenFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A segment or a final file, read whole: a Parquet file is read from its end. Raises DataflowError for damage, as
    its batches do."""
    with damage(file.path, "Parquet in its footer"):
        opened = pq.ParquetFile(pa.BufferReader(b"".join(file.blocks)))
        plain_schema(opened.schema_arrow)  # which asks for all names
    return opened.schema_arrow, _rows_of(opened, file.path)


def _rows_of(file: pq.ParquetFile, path: str) -> Iterator[pa.RecordBatch]:
    with damage(path, "Parquet in its rows"):
        yield from file.iter_batches()
