"""The framing of an entry: a fixed 64-byte header, then an Arrow IPC record batch. The same bytes on disk and on the
wire.

| at | size | field |
|---|---|---|
| 0 | 1 | type: 1 records, 2 control (names one round), 3 end of stream, 4 keep-alive, 5 staged records |
| 1 | 1 | entries of the same group that stand before this one (a group is what one fsync covers) |
| 2 | 1 | version |
| 3 | 1 | codec: 0 none, 1 LZ4, 2 Zstandard |
| 4 | 4 | CRC-32C of the header, this field zero |
| 8 | 8 | sequence id of the first record |
| 16 | 8+8 | first and last transaction id |
| 32 | 4 | number of records (slots) |
| 36 | 4 | CRC-32C of the body as stored |
| 40 | 8 | length of the body as stored, padding included |
| 48 | 8 | entry id in the segment |
| 56 | 8 | the epoch of the segment's writer |

Little-endian. The body is padded with zeros to a multiple of 64 bytes, so that every entry begins at such a multiple
and a mapped body needs no copy. Nothing here raises on bad bytes: what is wrong with them comes back as `Damage`,
because recovery has to judge it, and only a reader turns it into DamagedEntry.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum

import pyarrow as pa
from crc32c import crc32c

from scribengin.base.records import PAYLOAD, RECORD_SCHEMA
from scribengin.base.text.counting import many
from scribengin.log.format.arrow_guard import CODEC_NONE, refused_message

ALIGNMENT = 64
HEADER_BYTES = 64
VERSION = 1
GROUP_ENTRIES_MAX = 256
"""An entry counts those before it in its group in one byte."""

BODY_SCHEMA = pa.schema(
    [
        pa.field("txid", pa.int64()),
        pa.field("type", pa.uint16()),
        pa.field("channel", pa.string()),
        pa.field("key", pa.binary()),
        pa.field(PAYLOAD, pa.binary()),
    ]
)
"""What an entry's body holds. It is fixed: an entry does not carry its schema. `type` is the record's message type, a
number that means something to whoever wrote it, and 0 where nobody said."""

_NEVER_NULL = [BODY_SCHEMA.get_field_index(name) for name in ("txid", "type", PAYLOAD)]

_HEADER = struct.Struct("<BBBBIqqqIIQQQ")
_CRC_AT = slice(4, 8)
_PADDING = bytes(ALIGNMENT)


class EntryType(IntEnum):
    RECORDS = 1
    CONTROL = 2
    END_OF_STREAM = 3
    KEEP_ALIVE = 4
    STAGED = 5


CARRIES_RECORDS = frozenset({EntryType.RECORDS, EntryType.STAGED})
"""The types whose records readers see, once the entry is visible."""

_CODECS: dict[str, int] = {"none": 0, "lz4": 1, "zstd": 2}
_CODEC_IDS = frozenset(_CODECS.values())
_ARROW_CODECS = {0: CODEC_NONE, 1: 0, 2: 1}
DECODED_BYTES_MAX = 5 * 2**30
"""No body expands to more, however its log is configured."""
_TYPES = frozenset(EntryType)


@dataclass(frozen=True, slots=True)
class Damage:
    """Why some bytes are no entry."""

    reason: str


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The 64 bytes before a body."""

    type: int
    group_index: int
    codec: int
    sequence: int
    first_txid: int
    last_txid: int
    records: int
    body_crc: int
    body_bytes: int
    entry: int
    epoch: int

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return HEADER_BYTES + self.body_bytes

    @property
    def carries_records(self) -> bool:
        """Whether readers see its records, once it is visible."""
        return self.type in CARRIES_RECORDS

    @property
    def end_sequence(self) -> int:
        """The sequence id of the record after this entry."""
        return self.sequence + self.records if self.carries_records else self.sequence

    def to_bytes(self) -> bytes:
        packed = bytearray(
            _HEADER.pack(
                self.type,
                self.group_index,
                VERSION,
                self.codec,
                0,
                self.sequence,
                self.first_txid,
                self.last_txid,
                self.records,
                self.body_crc,
                self.body_bytes,
                self.entry,
                self.epoch,
            )
        )
        packed[_CRC_AT] = crc32c(packed).to_bytes(4, "little")
        return bytes(packed)


@dataclass(frozen=True, slots=True)
class EncodedEntry:
    """A body that is ready to be written, wherever it will stand."""

    buffers: tuple[pa.Buffer | bytes, ...]
    codec: int
    records: int
    first_txid: int
    last_txid: int
    body_crc: int
    body_bytes: int
    type: int = EntryType.RECORDS

    @classmethod
    def of_stored(cls, header: EntryHeader, body: pa.Buffer) -> EncodedEntry:
        """An entry as it stands in a segment: its body as it is stored there, not encoded anew."""
        return cls(
            buffers=(body,),
            codec=header.codec,
            records=header.records,
            first_txid=header.first_txid,
            last_txid=header.last_txid,
            body_crc=header.body_crc,
            body_bytes=header.body_bytes,
            type=header.type,
        )

    def as_type(self, entry_type: EntryType) -> EncodedEntry:
        return replace(self, type=entry_type)

    def place(self, *, entry: int, group_index: int, sequence: int, epoch: int) -> EntryHeader:
        """The header it gets at that place."""
        return EntryHeader(
            type=self.type,
            group_index=group_index,
            codec=self.codec,
            sequence=sequence,
            first_txid=self.first_txid,
            last_txid=self.last_txid,
            records=self.records,
            body_crc=self.body_crc,
            body_bytes=self.body_bytes,
            entry=entry,
            epoch=epoch,
        )


def encode(batch: pa.RecordBatch, *, codec: str = "none") -> EncodedEntry:
    """Encode a batch of BODY_SCHEMA with at least one row. The two transaction ids are those of its first and last
    row."""
    if not batch.num_rows:
        raise ValueError("an entry has at least one record")
    body = batch.serialize() if codec == "none" else _compressed(batch, codec)
    padding = _PADDING[: -body.size % ALIGNMENT]
    txids = batch.column(0)
    return EncodedEntry(
        buffers=(body, padding),
        codec=_CODECS[codec],
        records=batch.num_rows,
        first_txid=txids[0].as_py(),
        last_txid=txids[-1].as_py(),
        body_crc=crc32c(padding, crc32c(body)),
        body_bytes=body.size + len(padding),
    )


def _compressed(batch: pa.RecordBatch, codec: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    _schema, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return message.serialize()


def read_header(data: memoryview | pa.Buffer, at: int = 0) -> EntryHeader | Damage:
    """The header at `at`, if its checksum and its fields hold. The length of the body is *not* held against `data`."""
    raw = memoryview(data)[at : at + HEADER_BYTES]
    if len(raw) < HEADER_BYTES:
        return Damage(f"{len(raw)} bytes are left where a header of {HEADER_BYTES} should be")
    (kind, group, version, codec, crc, *numbers) = _HEADER.unpack(raw)
    if crc32c(raw[8:], crc32c(_PADDING[:4], crc32c(raw[:4]))) != crc:
        return Damage("the checksum of the header does not hold")
    if version != VERSION or kind not in _TYPES or codec not in _CODEC_IDS:
        return Damage(f"version {version}, type {kind}, codec {codec}: written by a newer Scribengin?")
    header = EntryHeader(kind, group, codec, *numbers)
    if header.body_bytes % ALIGNMENT or not header.body_bytes or not header.records:
        return Damage(f"a body of {header.body_bytes} bytes with {many(header.records, 'record')} cannot be")
    return header


def read_body(
    header: EntryHeader, body: pa.Buffer, *, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> pa.RecordBatch | Damage:
    """The batch of BODY_SCHEMA in `body`, which lies where `header` says. Without compression nothing is copied.

    A compressed body that says it expands to more than `decoded_bytes_max` bytes is damage, and nothing is allocated.
    """
    if body.size != header.body_bytes:
        return Damage(f"the body has {body.size} of {header.body_bytes} bytes")
    if crc32c(body) != header.body_crc:
        return Damage("the checksum of the body does not hold")
    return decode_body(header, body, decoded_bytes_max=decoded_bytes_max)


def stored_entry(data: pa.Buffer, at: int = 0) -> EncodedEntry | Damage:
    """The entry that stands at `at`, whole: both its checksums hold. Its body is not decoded, nor copied."""
    header = read_header(data, at)
    if isinstance(header, Damage):
        return header
    left = data.size - at - HEADER_BYTES
    if left < header.body_bytes:
        return Damage(f"the body has {left} of {header.body_bytes} bytes")
    body = data.slice(at + HEADER_BYTES, header.body_bytes)
    if crc32c(body) != header.body_crc:
        return Damage("the checksum of the body does not hold")
    return EncodedEntry.of_stored(header, body)


def decode_body(
    header: EntryHeader, body: pa.Buffer, *, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> pa.RecordBatch | Damage:
    """As `read_body`, for a body whose checksum was verified before.

    A checksum says that nothing changed since it was made, not that whoever made it knew what they did. So everything
    is validated, offsets and UTF-8 too (2 ns a record): whoever uses the batch may then trust it.
    """
    refused = refused_message(body, codec=_ARROW_CODECS[header.codec], decoded_bytes_max=decoded_bytes_max)
    if refused is not None:
        return Damage(f"the body is no Arrow record batch of ours: {refused}")
    try:
        batch = pa.ipc.read_record_batch(body, BODY_SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:  # ArrowInvalid and friends; a truncated message is an OSError
        return Damage(f"the body is no Arrow record batch: {str(error).splitlines()[0]}")
    if batch.num_rows < header.records:
        return Damage(f"the body has {many(batch.num_rows, 'record')}, the header says {header.records}")
    if batch.num_rows > header.records:  # the surplus has no sequence ids: discarded, as Boomscooter's document has it
        batch = batch.slice(0, header.records)
    if any(batch.column(at).null_count for at in _NEVER_NULL):
        return Damage("the body has records without a transaction id, a type or a payload")
    return batch


def to_records(body: pa.RecordBatch) -> pa.RecordBatch:
    """A body as RECORD_SCHEMA; no copy."""
    columns = body.columns
    return pa.RecordBatch.from_arrays([columns[0], columns[2], columns[3], columns[4]], schema=RECORD_SCHEMA)
