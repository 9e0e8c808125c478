"""Finding records by key: for every 256 KiB or so of a segment, the least and the greatest key in it.

Boomscooter's document argues for just that: where keys almost ascend, as times and counters do, the two are enough to
find the few blocks that may hold a key; where they do not, a lookup reads more, and is still right.

A segment's key index is made at the first lookup, from the segment alone, and kept beside it once it is completed:
whoever never asks for keys pays nothing when writing. Unlike the index of positions it cannot be checked against a
header, so it carries a checksum and the size of its segment; one that is missing, short or wrong is made again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from scribengin.log.format.dlsn import DLSN
from scribengin.log.read.catalog import LogCatalog, SegmentReader
from scribengin.log.store.index import EntryPlace

_T = TypeVar("_T")
_BLOCK_BYTES = 256 * 1024
_KEY_BYTES = 64
"""Of longer keys only the beginning is kept. If a <= b, then their beginnings are in the same order, or equal."""
_PREFIX = struct.Struct("<IQ")
_SCHEMA = pa.schema(
    [
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("low", pa.binary()),
        pa.field("high", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """The bytes [offset, end) of a segment, which begin with the entry `entry`, and the least and greatest beginning
    of a key in them (None: there is no key)."""

    entry: int
    offset: int
    end: int
    low: bytes | None
    high: bytes | None

    def may_hold(self, key: bytes) -> bool:
        return self.low is not None and self.high is not None and self.low <= key[:_KEY_BYTES] <= self.high


def to_bytes(blocks: Sequence[KeyBlock], end: int) -> bytes:
    """The key index of a segment of `end` bytes, as it is kept: CRC-32C of the rest, `end`, an Arrow IPC stream."""
    columns = [[getattr(block, name) for block in blocks] for name in _SCHEMA.names]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(batch)
    rest: bytes = end.to_bytes(8, "little") + sink.getvalue().to_pybytes()
    return crc32c(rest).to_bytes(4, "little") + rest


def from_bytes(kept: bytes, end: int) -> list[KeyBlock] | None:
    """What `to_bytes` made of a segment of `end` bytes; None if this is anything else."""
    if len(kept) < _PREFIX.size or _PREFIX.unpack_from(kept) != (crc32c(kept[4:]), end):
        return None
    rows = pa.ipc.open_stream(kept[_PREFIX.size :]).read_all().to_pylist()
    return [KeyBlock(**row) for row in rows]


def positions_of_key(catalog: LogCatalog, key: bytes, *, newest_first: bool = False) -> Iterator[DLSN]:
    """Where the visible records with that key stand, in order, or the newest first.

    Raises DamagedEntry when it has to look into damage, LogNotFound.
    """
    first = catalog.state().head.first
    for segment in catalog.kept(newest_first=newest_first):
        reader = catalog.reader(segment)
        end = catalog.end(segment)
        blocks = [block for block in _blocks(reader, end.end) if block.may_hold(key)]
        for block in _ordered(blocks, newest_first):
            found = [dlsn for dlsn in _in_block(reader, block, key) if dlsn >= first]
            yield from _ordered(found, newest_first)


def _ordered(things: Sequence[_T], newest_first: bool) -> Iterator[_T]:
    return reversed(things) if newest_first else iter(things)


def _in_block(reader: SegmentReader, block: KeyBlock, key: bytes) -> Iterator[DLSN]:
    for place in reader.entries(block.offset, block.end, block.entry):
        if place.header.carries_records:
            same = pc.equal(reader.body(place).column("key"), pa.scalar(key, pa.binary()))
            for slot in pc.indices_nonzero(same).to_pylist():
                yield DLSN(reader.segment.segment, place.header.entry, slot)


def _blocks(reader: SegmentReader, end: int) -> list[KeyBlock]:
    """The blocks up to `end`: as they were kept, or made now, and then kept if the segment is completed."""
    if reader.segment.in_progress:
        return _made(reader, end)
    blocks = from_bytes(reader.load_keys(), end)
    if blocks is None:
        blocks = _made(reader, end)
        reader.save_keys(to_bytes(blocks, end))
    return blocks


def _made(reader: SegmentReader, end: int) -> list[KeyBlock]:
    blocks: list[KeyBlock] = []
    block: list[EntryPlace] = []
    for place in reader.entries(0, end, 0):
        block.append(place)
        if place.end - block[0].offset >= _BLOCK_BYTES or place.end == end:
            blocks.append(_block(reader, block))
            block = []
    return blocks


def _block(reader: SegmentReader, places: Sequence[EntryPlace]) -> KeyBlock:
    bounds = [_bounds(reader, place) for place in places if place.header.carries_records]
    lows = [low for low, _high in bounds if low is not None]
    highs = [high for _low, high in bounds if high is not None]
    return KeyBlock(
        entry=places[0].header.entry,
        offset=places[0].offset,
        end=places[-1].end,
        low=min(lows, default=None),
        high=max(highs, default=None),
    )


def _bounds(reader: SegmentReader, place: EntryPlace) -> tuple[bytes | None, bytes | None]:
    keys = reader.body(place).column("key")
    if keys.null_count == len(keys):
        return None, None
    bounds = pc.min_max(keys)
    return bounds["min"].as_py()[:_KEY_BYTES], bounds["max"].as_py()[:_KEY_BYTES]
