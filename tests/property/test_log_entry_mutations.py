"""An entry whose bytes were changed is damage, or it is what it was: nothing in between, and never a crash."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryHeader, encode, read_body, read_header
from scribengin.log.format.records import Record, body_of_records
from tests.property.entry_campaign import MUTATIONS, SIGNED, run_campaign

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


def signed(whole: bytes, body: bytes, **fields: int) -> bytes:
    """`body` under the header of `whole`, with both checksums right."""
    header = read_header(pa.py_buffer(whole))
    assert isinstance(header, EntryHeader)
    values = {name: getattr(header, name) for name in EntryHeader.__slots__}
    return EntryHeader(**values | {"body_crc": crc32c(body), "body_bytes": len(body)} | fields).to_bytes() + body


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


@given(BATCHES, CODECS, st.binary(min_size=64, max_size=300))
def test_noise_with_right_checksums_is_damage(batch: pa.RecordBatch, codec: str, noise: bytes) -> None:
    assert isinstance(read(signed(stored(batch, codec), noise[: len(noise) // 64 * 64])), Damage)


@given(BATCHES, st.integers(0, 2**64 - 1))
def test_a_length_that_was_made_up_allocates_nothing(batch: pa.RecordBatch, length: int) -> None:
    whole = stored(batch, "none")
    header = read_header(pa.py_buffer(whole))
    assert isinstance(header, EntryHeader)
    fields = {name: getattr(header, name) for name in EntryHeader.__slots__}
    lying = EntryHeader(**fields | {"body_bytes": length}).to_bytes() + whole[HEADER_BYTES:]
    found = read(lying)
    assert isinstance(found, Damage) or length == header.body_bytes


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_anything_is_allocated(codec: str) -> None:
    records = [Record(1, None, None, bytes(1024 * 1024))]
    whole = stored(body_of_records(records), codec)
    assert len(whole) < 10_000
    assert isinstance(read(whole), pa.RecordBatch)
    says = (1024 * 1024).to_bytes(8, "little")
    assert whole.count(says) >= 1
    body = whole[HEADER_BYTES:].replace(says, (8 * 2**30).to_bytes(8, "little"))
    before = pa.total_allocated_bytes()
    found = read(signed(whole, body))
    assert isinstance(found, Damage)
    assert "says that it expands to more than" in found.reason
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_bomb_whose_length_is_true_is_refused_by_a_bound(codec: str) -> None:
    whole = pa.py_buffer(stored(body_of_records([Record(1, None, None, bytes(4_000_000))]), codec))
    header = read_header(whole)
    assert isinstance(header, EntryHeader)
    body = whole.slice(HEADER_BYTES)
    assert isinstance(read_body(header, body, decoded_bytes_max=3_999_999), Damage)
    assert isinstance(read_body(header, body, decoded_bytes_max=4_001_000), pa.RecordBatch)


def test_records_without_what_every_record_has_are_damage() -> None:
    batch = body_of_records([Record(1, None, None, b"x"), Record(2, None, None, b"y")])
    for at, column in enumerate(batch.columns):
        holed = batch.set_column(at, batch.schema.field(at), pa.array([column[0].as_py(), None], column.type))
        assert isinstance(read(stored_as_is(holed)), Damage) == (batch.schema.field(at).name not in ("channel", "key"))


def stored_as_is(batch: pa.RecordBatch) -> bytes:
    whole = stored(body_of_records([Record(1, None, None, b"x"), Record(2, None, None, b"y")]), "none")
    body = batch.serialize().to_pybytes()
    return signed(whole, body + bytes(-len(body) % 64))


@pytest.mark.parametrize(
    ("seed", "entries"),
    [
        (1, 20_000),
        *(pytest.param(n, 200_000, marks=pytest.mark.full) for n in (1, 2, 3, 4)),
    ],
)
def test_mutated_entries_never_crash_a_reader_nor_pass_as_data(seed: int, entries: int, tmp_path: Path) -> None:
    report = tmp_path / "report"
    child = multiprocessing.get_context("spawn").Process(target=run_campaign, args=(seed, entries, report))
    child.start()
    child.join(250)
    child.kill()
    assert child.exitcode == 0, f"the reader's process ended with {child.exitcode}: a crash, or too slow"
    lines = report.read_text().splitlines()
    assert not [line for line in lines if "wrong" in line]
    assert lines[-1] == f"ended after {entries} entries"
    damaged = Counter(line.split(":")[0] for line in lines if ": damage: " in line)
    assert damaged.keys() == {mutation.__name__ for mutation in MUTATIONS}
    usable = {line.split(":")[0] for line in lines if ": usable: " in line}
    assert usable <= {mutation.__name__ for mutation in SIGNED}
