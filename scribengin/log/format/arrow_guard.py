"""What an Arrow message says about itself, read before Arrow acts on it.

Arrow checks that a message is well formed, but it allocates what a compressed buffer says that it expands to before it
expands it: a few bytes can ask for gigabytes. So this looks into the message first. It reads the few fields it needs
where the flatbuffers format puts them:

| where | what |
|---|---|
| message: int32 -1, int32 length of the metadata, metadata, body | the encapsulated message |
| metadata: table (0 version, 1 type of header, 2 header, 3 length of the body) | Message; type 3 is a record batch |
| header: table (0 rows, 1 nodes, 2 buffers, 3 compression) | RecordBatch; a buffer is (int64 offset, int64 length) |
| compression: table (0 codec: 0 LZ4 frame, 1 Zstandard) | BodyCompression |
| a compressed buffer: int64 length when expanded (-1: stored as it is), then the data | |

Nothing here needs to find everything that is wrong: what it lets pass, Arrow verifies.
"""

from __future__ import annotations

import struct

import pyarrow as pa

CODEC_NONE = -1
"""The codec of a message without compression; otherwise Arrow's number (0 LZ4, 1 Zstandard)."""

_PREFIX = struct.Struct("<iI")
_CONTINUATION = -1
_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
_BUFFERS, _COMPRESSION = 2, 3
_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_BUFFER = struct.Struct("<qq")


def refused_message(message: pa.Buffer, *, codec: int, decoded_bytes_max: int) -> str | None:
    """Why a message must not be handed to Arrow: it is no record batch, it is not compressed with `codec`, or it says
    that it expands to more than `decoded_bytes_max` bytes. None: it may."""
    data = memoryview(message)
    try:
        continuation, metadata_bytes = _PREFIX.unpack_from(data)
        body_at = _PREFIX.size + metadata_bytes
        if continuation != _CONTINUATION or body_at > len(data):
            return "it does not begin as an Arrow message does"
        return _refused(data[_PREFIX.size : body_at], data[body_at:], codec, decoded_bytes_max)
    except (struct.error, ValueError):
        return "its metadata is no Arrow metadata"


def _refused(metadata: memoryview, body: memoryview, codec: int, decoded_bytes_max: int) -> str | None:
    root = _U32.unpack_from(metadata)[0]
    type_at, header_at = _field(metadata, root, _HEADER_TYPE), _field(metadata, root, _HEADER)
    if type_at is None or header_at is None or _U8.unpack_from(metadata, type_at)[0] != _RECORD_BATCH:
        return "it is no record batch"
    batch = _target(metadata, header_at)
    found = _codec(metadata, _field(metadata, batch, _COMPRESSION))
    if found != codec:
        return f"its codec is {found}, its header says {codec} (-1: none, 0: LZ4, 1: Zstandard)"
    if codec == CODEC_NONE:
        return None  # nothing is expanded
    return _bomb(metadata, _field(metadata, batch, _BUFFERS), body, decoded_bytes_max)


def _bomb(metadata: memoryview, buffers_at: int | None, body: memoryview, decoded_bytes_max: int) -> str | None:
    if buffers_at is None:
        return "it has no buffers"
    vector = _target(metadata, buffers_at)
    count = _U32.unpack_from(metadata, vector)[0]
    left = decoded_bytes_max
    for offset, length in _BUFFER.iter_unpack(metadata[vector + 4 : vector + 4 + count * _BUFFER.size]):
        if not length:
            continue
        if offset < 0 or length < _I64.size or offset + length > len(body):
            return f"a buffer of {length} bytes at byte {offset} cannot be"
        expanded = _I64.unpack_from(body, offset)[0]
        if expanded < -1:
            return f"a buffer says that it expands to {expanded} bytes"
        left -= length if expanded == -1 else expanded
        if left < 0:
            return f"it says that it expands to more than {decoded_bytes_max} bytes, which is the most there can be"
    return None


def _codec(metadata: memoryview, compression_at: int | None) -> int:
    if compression_at is None:
        return CODEC_NONE
    compression = _target(metadata, compression_at)
    codec_at = _field(metadata, compression, 0)
    return 0 if codec_at is None else int(_U8.unpack_from(metadata, codec_at)[0])


def _field(metadata: memoryview, table: int, field: int) -> int | None:
    """Where a field of the table at `table` stands; None: it has its default."""
    vtable = table - _I32.unpack_from(metadata, table)[0]
    if vtable < 0:  # struct would count from the end
        raise ValueError("a table begins before the metadata")
    at = 4 + 2 * field
    if at >= _U16.unpack_from(metadata, vtable)[0]:
        return None
    offset = _U16.unpack_from(metadata, vtable + at)[0]
    return table + offset if offset else None


def _target(metadata: memoryview, at: int) -> int:
    return at + int(_U32.unpack_from(metadata, at)[0])
