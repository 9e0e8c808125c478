"""The framing of entries: 64 bytes of header with their own checksum, then an Arrow record batch with another."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from crc32c import crc32c

from scribengin.base.records import RECORD_SCHEMA
from scribengin.log.format.entry import (
    ALIGNMENT,
    BODY_SCHEMA,
    HEADER_BYTES,
    Damage,
    EncodedEntry,
    EntryHeader,
    EntryType,
    encode,
    read_body,
    read_header,
    to_records,
)
from scribengin.log.format.records import Record, body_of_records

BODY = body_of_records(
    [
        Record(txid=7, channel="a.b", key=b"k", payload=b"first"),
        Record(txid=9, channel=None, key=None, payload=b""),
        Record(txid=9, channel="c", key=b"", payload=b"\x00" * 100),
    ]
)
PLACE = {"entry": 5, "group_index": 3, "sequence": 1000, "epoch": 2}


def whole(encoded: EncodedEntry) -> pa.Buffer:
    return pa.py_buffer(b"".join(bytes(memoryview(buffer)) for buffer in encoded.buffers))


def test_the_header_stands_field_by_field_where_the_format_says() -> None:
    encoded = encode(BODY)
    raw = encoded.place(**PLACE).to_bytes()
    assert len(raw) == HEADER_BYTES == 64
    assert raw[0:4] == bytes([EntryType.RECORDS, 3, 1, 0])
    assert struct.unpack_from("<I", raw, 4)[0] == crc32c(raw[:4] + bytes(4) + raw[8:])
    assert struct.unpack_from("<qqq", raw, 8) == (1000, 7, 9)
    assert struct.unpack_from("<II", raw, 32) == (3, crc32c(whole(encoded)))
    assert struct.unpack_from("<QQQ", raw, 40) == (whole(encoded).size, 5, 2)


def test_a_header_is_the_same_bytes_in_every_version_of_scribengin() -> None:
    header = EntryHeader(
        type=5,
        group_index=1,
        codec=2,
        sequence=-1,
        first_txid=1,
        last_txid=2,
        records=3,
        body_crc=4,
        body_bytes=64,
        entry=6,
        epoch=7,
    )
    assert header.to_bytes().hex() == (
        "05010102620c8467ffffffffffffffff01000000000000000200000000000000"
        "0300000004000000400000000000000006000000000000000700000000000000"
    )
    assert read_header(pa.py_buffer(header.to_bytes())) == header


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_what_was_encoded_is_decoded(codec: str) -> None:
    encoded = encode(BODY, codec=codec)
    header = read_header(pa.py_buffer(encoded.place(**PLACE).to_bytes()))
    assert isinstance(header, EntryHeader)
    body = read_body(header, whole(encoded))
    assert isinstance(body, pa.RecordBatch)
    assert body.equals(BODY)
    assert body.schema == BODY_SCHEMA
    assert (header.first_txid, header.last_txid, header.records) == (7, 9, 3)


def test_a_body_is_mapped_and_not_copied() -> None:
    data = whole(encode(BODY))
    header = encode(BODY).place(**PLACE)
    body = read_body(header, data)
    assert isinstance(body, pa.RecordBatch)
    payload = body.column("payload").buffers()[2]
    assert data.address <= payload.address < data.address + data.size


def test_entries_are_a_multiple_of_64_bytes_so_that_the_next_is_aligned() -> None:
    for size in range(200):
        encoded = encode(body_of_records([Record(txid=1, channel=None, key=None, payload=bytes(size))]))
        assert encoded.place(**PLACE).size % ALIGNMENT == 0


def test_readers_see_a_record_without_what_is_internal() -> None:
    records = to_records(BODY)
    assert records.schema == RECORD_SCHEMA
    assert records.column("payload").to_pylist() == [b"first", b"", b"\x00" * 100]


def test_only_records_and_staged_records_carry_records() -> None:
    carrying = {kind for kind in EntryType if encode(BODY).as_type(kind).place(**PLACE).carries_records}
    assert carrying == {EntryType.RECORDS, EntryType.STAGED}
    control = encode(BODY).as_type(EntryType.CONTROL).place(**PLACE)
    assert control.end_sequence == control.sequence == 1000
    assert encode(BODY).place(**PLACE).end_sequence == 1003


def changed(header: EntryHeader, **fields: int) -> bytes:
    values = {name: getattr(header, name) for name in EntryHeader.__slots__} | fields
    return EntryHeader(**values).to_bytes()


@pytest.mark.parametrize(
    "fields",
    [{"type": 0}, {"type": 6}, {"codec": 3}, {"body_bytes": 0}, {"body_bytes": 65}, {"records": 0}],
)
def test_a_header_that_cannot_be_is_damage_even_if_its_checksum_holds(fields: dict[str, int]) -> None:
    assert isinstance(read_header(pa.py_buffer(changed(encode(BODY).place(**PLACE), **fields))), Damage)


def test_a_body_that_contradicts_its_header_is_damage_even_if_its_checksum_holds() -> None:
    encoded = encode(BODY)
    header = read_header(pa.py_buffer(changed(encoded.place(**PLACE), records=4)))
    assert isinstance(header, EntryHeader)
    assert read_body(header, whole(encoded)) == Damage("the body has 3 records, the header says 4")


def test_what_a_batch_holds_beyond_the_count_of_its_header_is_discarded() -> None:
    encoded = encode(BODY)
    header = read_header(pa.py_buffer(changed(encoded.place(**PLACE), records=2)))
    assert isinstance(header, EntryHeader)
    assert read_body(header, whole(encoded)) == BODY.slice(0, 2)


@pytest.mark.parametrize("cut", [0, 4, 8, 64])
def test_bytes_that_are_no_arrow_message_are_damage_even_if_their_checksum_holds(cut: int) -> None:
    body = whole(encode(BODY)).to_pybytes()
    wrong = body[:cut] + b"\xff" * (len(body) - cut)
    header = read_header(pa.py_buffer(changed(encode(BODY).place(**PLACE), body_crc=crc32c(wrong))))
    assert isinstance(header, EntryHeader)
    assert isinstance(read_body(header, pa.py_buffer(wrong)), Damage)


def test_an_entry_without_records_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode(BODY.slice(0, 0))
