"""What a Parquet file's pages become when they are decompressed, told by the heads that stand before them.

Arrow makes room for a page as its head says, and looks at the page after that: 30 kB of a file became 970 MiB of
memory. And a page may hold a value once that stands in every row. So the heads are read first (a struct of Thrift's
compact protocol each), a page that is too large is refused, and rows are decoded as many at once as surely fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.errors import DataflowError

PAGE_RECORDS = 16
"""A page may take as much as so many of the largest records. Writers end a page at 1 MiB, or after some 1,000 rows."""
_WINDOWS = (16 * 1024, 16 * 1024 * 1024)
"""A head is a few dozen bytes, but for what it says of the smallest and largest value."""
_AHEAD_BYTES = 256 * 1024
"""Where pages are small, so much has the heads of many."""
_NESTED_MAX = 8
_DICTIONARY_VALUES_MAX = 1_000_000
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
_LENGTH = struct.Struct("<I")
_CODECS = {"LZ4": "lz4_raw"}

Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class ParquetPage:
    """One page: where its bytes are in the file, how many they become, what it is, and how its values are written."""

    start: int
    end: int
    size_bytes: int
    kind: int
    encoding: int
    values: int


def widest_row(file: pq.ParquetFile, group: int, read: Read, *, file_bytes: int, url: str, page_bytes_max: int) -> int:
    """How many bytes a row of that row group may take where a value is written once and stands in many rows.

    Raises DataflowError for a page that takes more than `page_bytes_max`, and for heads that are none.
    """
    metadata, width = file.metadata.row_group(group), 0
    for number in range(metadata.num_columns):
        chunk = metadata.column(number)
        longest = 0
        for page in pages(chunk, read, file_bytes=file_bytes, url=url):
            if page.size_bytes > page_bytes_max:
                raise DataflowError(
                    f"{url}: a page of column '{chunk.path_in_schema}', at byte {page.start}, takes "
                    f"{page.size_bytes:,} bytes when it is decompressed, and the source takes {page_bytes_max:,} "
                    f"({PAGE_RECORDS} times record_bytes_max); write the file with smaller pages, or make that larger"
                )
            longest = max(longest, _longest_repeated(page, chunk, file.schema.column(number).length, read))
        width += longest * -(-chunk.num_values // max(metadata.num_rows, 1))
    return width


def pages(chunk: Any, read: Read, *, file_bytes: int, url: str) -> Iterator[ParquetPage]:
    """The pages of a column chunk, as its footer tells of it. Raises DataflowError for heads that are none."""
    at = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        at = min(at, chunk.dictionary_page_offset) or at
    end = at + chunk.total_compressed_size
    read = _ReadAhead(read, end)
    while at < end:
        page = _page_at(at, read, file_bytes)
        if page is None:
            raise DataflowError(f"{url}: damaged Parquet at byte {at}: no head of a page; restore the file")
        yield page
        at = page.end


def _page_at(at: int, read: Read, file_bytes: int) -> ParquetPage | None:
    for window in _WINDOWS:
        data = read(at, min(at + window, file_bytes))
        try:
            head = _Compact(data)
            fields = head.struct()
            size, stored, start = fields[2], fields[3], at + head.at
            of_values = next(fields[key] for key in (5, 7, 8) if key in fields) if fields[1] != 1 else {}
            encoding = of_values.get(4 if 8 in fields else 2, 0)
            if size < 0 or stored < 0:
                return None
            return ParquetPage(start, start + stored, size, fields[1], encoding, of_values.get(1, 0))
        except IndexError:  # it does not end here
            continue
        except (KeyError, StopIteration, TypeError, AttributeError, ValueError):
            return None
    return None


def _longest_repeated(page: ParquetPage, chunk: Any, fixed_bytes: int, read: Read) -> int:
    """The longest value of a page that may stand in many rows, 0 where each takes room in its page."""
    if page.encoding == _DELTA_BYTE_ARRAY:
        return page.size_bytes  # a value begins as the one before it, and only the rest is written
    if page.kind != _DICTIONARY_PAGE:
        return 0
    if chunk.physical_type != "BYTE_ARRAY":
        return max(fixed_bytes, 0)
    if page.values > _DICTIONARY_VALUES_MAX:
        return page.size_bytes
    try:
        return _longest(_decompressed(read(page.start, page.end), chunk.compression, page.size_bytes), page.values)
    except (pa.ArrowException, OSError, ValueError, struct.error):  # Arrow will say what it is
        return page.size_bytes


def _decompressed(data: bytes, compression: str, size_bytes: int) -> Any:
    if compression == "UNCOMPRESSED":
        return data
    return memoryview(pa.decompress(data, size_bytes, codec=_CODECS.get(compression, compression.lower())))


def _longest(data: Any, values: int) -> int:
    at = longest = 0
    for _value in range(values):
        (size,) = _LENGTH.unpack_from(data, at)
        at += 4 + size
        if size > longest:
            longest = size
    return longest


class _ReadAhead:
    """Ranges of a file, of which many lie close together before `end`."""

    def __init__(self, read: Read, end: int) -> None:
        self._read = read
        self._end = end
        self._at = 0
        self._held = b""

    def __call__(self, start: int, end: int) -> bytes:
        if not self._at <= start <= end <= self._at + len(self._held):
            self._at = start
            self._held = self._read(start, max(end, min(start + _AHEAD_BYTES, self._end)))
        return self._held[start - self._at : end - self._at]


class _Compact:
    """Reads one struct. Raises IndexError where the bytes end before, ValueError for what no head has."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The values of its fields, by their numbers. Of texts: None."""
        if depth > _NESTED_MAX:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = self._value(head & 0x0F, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 8:
                size = self._unsigned()
                self.at += size
                if self.at > len(self._data):
                    raise IndexError
                return None
            case 12:
                return self.struct(depth + 1)
        raise ValueError(f"a head has no field of type {kind}")

    def _number(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte
