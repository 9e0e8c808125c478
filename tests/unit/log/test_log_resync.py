"""Behind damage, the next good entry is found, and nothing is taken for one that is part of a payload."""

from __future__ import annotations

import pytest

from scribengin.log.scan.resync import next_good_entry
from scribengin.log.store.contract import Tail
from scribengin.log.store.file import FileView
from scribengin.log.store.index import EntryPlace
from scribengin.testing.log_samples import SegmentForge


def found_behind(forge: SegmentForge, data: bytes, tmp_path_name: str, *, entry: int) -> EntryPlace | None:
    """What is found when the entry `entry` of the forged segment turns out to be damaged."""
    with open(tmp_path_name, "wb") as file:
        file.write(data)
    view = FileView(tmp_path_name)
    try:
        offset = forge.ends[entry - 1] if entry else 0
        return next_good_entry(view, forge.epoch, offset=offset, entry=entry, end=forge.at)
    finally:
        view.close()


def damaged_at(forge: SegmentForge, *offsets: int) -> bytes:
    data = bytearray(forge.data)
    for offset in offsets:
        data[offset] ^= 0xFF
    return bytes(data)


@pytest.fixture
def file(tmp_path: object) -> str:
    return f"{tmp_path}/segment.log"


def test_the_entry_after_a_damaged_header_is_found(file: str) -> None:
    forge = SegmentForge().records(b"0").records(b"1", b"2").records(b"3").records(b"4")
    found = found_behind(forge, damaged_at(forge, forge.ends[0] + 20), file, entry=1)
    assert found is not None
    assert (found.offset, found.header.entry, found.header.sequence) == (forge.ends[1], 2, 3)


def test_good_entries_between_two_damaged_ones_are_found(file: str) -> None:
    forge = SegmentForge().records(b"0").records(b"1").records(b"2").records(b"3").records(b"4")
    found = found_behind(forge, damaged_at(forge, 20, forge.ends[2] + 20), file, entry=0)
    assert found is not None
    assert (found.offset, found.header.entry) == (forge.ends[0], 1)


def test_behind_the_last_entry_there_is_none(file: str) -> None:
    forge = SegmentForge().records(b"0").records(b"1")
    assert found_behind(forge, damaged_at(forge, forge.ends[0] + 20), file, entry=1) is None


def test_nothing_behind_the_visible_end_is_found(file: str) -> None:
    forge = SegmentForge().records(b"0").records(b"1")
    visible = forge.at
    forge.records(b"invisible")
    forge.at = visible
    assert found_behind(forge, damaged_at(forge, forge.ends[0] + 20), file, entry=1) is None


def aligned(entries: bytes) -> bytes:
    """A payload in which some 64-byte boundary of the file falls on the entries, wherever the payload begins."""
    return b"".join(bytes(1) + entries for _ in range(64))


@pytest.mark.parametrize("copied", [2, 5, 40])
def test_entries_inside_of_a_payload_are_none(file: str, copied: int) -> None:
    other = SegmentForge()
    for n in range(copied):
        other.records(b"copied %d" % n)
    forge = SegmentForge().records(b"0").records(b"1")
    forge.records(aligned(bytes(other.data))).records(b"3").records(b"4")
    found = found_behind(forge, damaged_at(forge, forge.ends[1] + 20), file, entry=2)
    assert found is not None
    assert (found.offset, found.header.entry) == (forge.ends[2], 3)


def test_what_belongs_to_another_writer_is_none(file: str) -> None:
    old = SegmentForge(epoch=1).records(b"0").records(b"1").records(b"2")
    forge = SegmentForge(epoch=2).records(b"0")
    data = damaged_at(forge, 20) + bytes(old.data[old.ends[0] :])
    forge.at = Tail(len(data), 3, 1, 3)
    assert found_behind(forge, data, file, entry=0) is None


def test_a_view_of_many_chunks_is_searched_to_its_end(file: str) -> None:
    forge = SegmentForge().records(b"0").records(bytes(9_000_000)).records(b"2")
    found = found_behind(forge, damaged_at(forge, forge.ends[0] + 20), file, entry=1)
    assert found is not None
    assert found.offset == forge.ends[1]
