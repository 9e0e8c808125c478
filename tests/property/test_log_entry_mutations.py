"""An entry whose bytes were changed is damage, or it is what it was: nothing in between, and never a crash."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.log.entry import HEADER_BYTES, Damage, EntryHeader, encode, read_body, read_header
from scribengin.log.records import Record, body_of_records

RECORDS = st.builds(
    Record,
    txid=st.integers(0, 2**62),
    channel=st.none() | st.text(max_size=5),
    key=st.none() | st.binary(max_size=5),
    payload=st.binary(max_size=40),
)
BATCHES = st.lists(RECORDS, min_size=1, max_size=8).map(body_of_records)
CODECS = st.sampled_from(["none", "lz4", "zstd"])


def stored(batch: pa.RecordBatch, codec: str) -> bytes:
    encoded = encode(batch, codec=codec)
    header = encoded.place(entry=3, group_index=1, sequence=10, epoch=2)
    return header.to_bytes() + b"".join(bytes(memoryview(buffer)) for buffer in encoded.buffers)


def read(data: bytes) -> pa.RecordBatch | Damage:
    whole = pa.py_buffer(data)
    header = read_header(whole)
    if isinstance(header, Damage):
        return header
    return read_body(header, whole.slice(HEADER_BYTES, min(header.body_bytes, whole.size - HEADER_BYTES)))


@given(BATCHES, CODECS)
def test_any_batch_is_read_back_as_it_was_written(batch: pa.RecordBatch, codec: str) -> None:
    found = read(stored(batch, codec))
    assert isinstance(found, pa.RecordBatch)
    assert found.equals(batch)


@given(BATCHES, CODECS, st.data())
def test_a_flipped_bit_is_found(batch: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    changed = bytearray(stored(batch, codec))
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    assert isinstance(read(bytes(changed)), Damage)


@given(BATCHES, CODECS, st.data())
def test_a_cut_is_found(batch: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    whole = stored(batch, codec)
    assert isinstance(read(whole[: data.draw(st.integers(0, len(whole) - 1))]), Damage)


@given(BATCHES, CODECS, st.data())
@settings(max_examples=200)
def test_overwritten_bytes_are_found(batch: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    whole = stored(batch, codec)
    at = data.draw(st.integers(0, len(whole) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=64))
    changed = (whole[:at] + noise + whole[at + len(noise) :])[: len(whole)]
    found = read(changed)
    assert isinstance(found, Damage) or changed == whole


@given(st.binary(min_size=0, max_size=300))
def test_noise_is_damage(noise: bytes) -> None:
    assert isinstance(read(noise), Damage)


@given(BATCHES, st.integers(0, 2**64 - 1))
def test_a_length_that_was_made_up_allocates_nothing(batch: pa.RecordBatch, length: int) -> None:
    whole = stored(batch, "none")
    header = read_header(pa.py_buffer(whole))
    assert isinstance(header, EntryHeader)
    fields = {name: getattr(header, name) for name in EntryHeader.__slots__}
    lying = EntryHeader(**fields | {"body_bytes": length}).to_bytes() + whole[HEADER_BYTES:]
    found = read(lying)
    assert isinstance(found, Damage) or length == header.body_bytes
