"""The index of a segment is a hint: right, missing, short or wrong, lookups find the same entries."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.log.format.entry import encode
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.read.catalog import SegmentReader
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.index import INTERVAL_BYTES, SegmentIndex
from scribengin.testing.log_samples import SegmentForge, descriptor_of

SEGMENT = descriptor_of().model_copy(update={"completed_ms": 1})
ENTRIES = 600
RECORDS = 3


@pytest.fixture(scope="module")
def forge() -> SegmentForge:
    made = SegmentForge()
    for entry in range(ENTRIES):
        records = [
            Record(txid=10 * entry + n, channel=None, key=None, payload=bytes(300 + entry % 7)) for n in range(RECORDS)
        ]
        made.group(encode(body_of_records(records)))
    return made


@pytest.fixture
def store(tmp_path: Path, forge: SegmentForge) -> FileSegmentStore:
    made = FileSegmentStore(tmp_path)
    made.create_log(SEGMENT.directory)
    Path(made.path(SEGMENT.file)).write_bytes(forge.data)
    return made


def check_lookups(store: FileSegmentStore, forge: SegmentForge) -> None:
    reader = SegmentReader("a-log", store, SEGMENT)
    for end_entry in (ENTRIES, ENTRIES // 2):
        end = forge.ends[end_entry - 1]
        for entry in range(0, ENTRIES, 37):
            place = reader.find_entry(entry, end)
            by_sequence = reader.find_sequence(entry * RECORDS + 1, end)
            by_txid = reader.find_txid(10 * entry - 5, end)
            if entry < end_entry:
                assert place is not None
                assert place.header.entry == entry
                assert place.end == forge.ends[entry]
                assert by_sequence == by_txid == place
            else:
                assert place is by_sequence is by_txid is None
    reader.close()


def good_index(store: FileSegmentStore, forge: SegmentForge) -> bytes:
    view = store.open(SEGMENT.file)
    index = SegmentIndex(view, b"")
    index.before_entry(ENTRIES, len(forge.data))
    view.close()
    return index.to_bytes()


def test_a_missing_index_is_rebuilt_and_kept(store: FileSegmentStore, forge: SegmentForge) -> None:
    assert store.load_index(SEGMENT.file) == b""
    check_lookups(store, forge)
    kept = store.load_index(SEGMENT.file)
    assert len(forge.data) // INTERVAL_BYTES - 1 <= len(kept) // 32 <= len(forge.data) // INTERVAL_BYTES
    assert kept == good_index(store, forge)


@pytest.mark.parametrize("size", [1, 32, 33, 64, 65])
def test_a_short_index_is_extended(store: FileSegmentStore, forge: SegmentForge, size: int) -> None:
    good = good_index(store, forge)
    store.save_index(SEGMENT.file, good[:size])
    check_lookups(store, forge)
    assert store.load_index(SEGMENT.file) == good


@pytest.mark.parametrize("at", range(0, 96, 8))
def test_a_wrong_index_changes_no_answer(store: FileSegmentStore, forge: SegmentForge, at: int) -> None:
    wrong = bytearray(good_index(store, forge))
    wrong[at] ^= 0x40
    store.save_index(SEGMENT.file, bytes(wrong))
    check_lookups(store, forge)
    check_lookups(store, forge)


def test_noise_is_no_index(store: FileSegmentStore, forge: SegmentForge) -> None:
    store.save_index(SEGMENT.file, os.urandom(640))
    check_lookups(store, forge)


def test_a_directory_that_may_only_be_read_costs_time_and_nothing_else(
    store: FileSegmentStore, forge: SegmentForge
) -> None:
    Path(store.path(SEGMENT.file)).with_suffix(f".idx-{os.getpid()}").mkdir()  # so that keeping an index fails
    check_lookups(store, forge)
    assert store.load_index(SEGMENT.file) == b""


@pytest.mark.parametrize("entry", [0, 5, ENTRIES // 2])
def test_who_begins_near_the_front_reads_little_of_what_is_behind_it(
    store: FileSegmentStore, forge: SegmentForge, monkeypatch: pytest.MonkeyPatch, entry: int
) -> None:
    reader = SegmentReader("a-log", store, SEGMENT)
    read_up_to = 0
    read = reader.view.read

    def noted(offset: int, length: int) -> pa.Buffer:
        nonlocal read_up_to
        read_up_to = max(read_up_to, offset + length)
        return read(offset, length)

    monkeypatch.setattr(reader.view, "read", noted)
    place = reader.find_entry(entry, len(forge.data))
    assert place is not None
    assert place.header.entry == entry
    assert read_up_to <= place.end + 2 * INTERVAL_BYTES < len(forge.data)
    reader.close()
