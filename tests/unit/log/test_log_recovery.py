"""Where an unfinished segment ends: recovery's decision, row by row, and a torn tail at every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.log import StagedRange
from scribengin.log.format.entry import EntryType
from scribengin.log.format.records import TXID_NONE
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.scan.unfinished import Found, Refusal, decide, scan
from scribengin.log.store.contract import Tail
from scribengin.log.store.file import FileSegmentStore
from scribengin.testing.log_samples import SegmentForge, descriptor_of, records_entry

SEGMENT = descriptor_of()
PAYLOADS = (b"some", b"records")


def scanned(directory: Path, data: bytes, segment: SegmentDescriptor = SEGMENT) -> Found:
    store = FileSegmentStore(directory)
    store.create_log(segment.directory)
    Path(store.path(segment.file)).write_bytes(data)
    view = store.open(segment.file)
    try:
        return scan(view, segment, start_txid=TXID_NONE)
    finally:
        view.close()


def named(first_entry: int, last_entry: int, *, segment: int = 1, directory: str = "log-1") -> StagedRange:
    return StagedRange(
        log="a-log",
        directory=directory,
        segment=segment,
        first_entry=first_entry,
        last_entry=last_entry,
        records=1,
        bytes=1,
    )


def ends_at(end: Tail | Refusal) -> int:
    assert isinstance(end, Tail), end
    return end.end


def refused(end: Tail | Refusal) -> str:
    assert isinstance(end, Refusal), end
    return end.reason


def test_records_whose_checksums_hold_are_part_of_the_log(tmp_path: Path) -> None:
    forge = SegmentForge().records(*PAYLOADS).records(b"more").group(records_entry([b"a"]), records_entry([b"b"]))
    found = scanned(tmp_path, forge.data)
    assert decide(SEGMENT, found, None, None) == forge.at
    assert forge.at.sequence == 5


def test_an_empty_segment_ends_where_it_began(tmp_path: Path) -> None:
    assert decide(SEGMENT, scanned(tmp_path, b""), None, None) == Tail(0, 0, TXID_NONE, 0)


def test_staged_entries_that_the_commit_log_names_are_part_of_the_log(tmp_path: Path) -> None:
    forge = SegmentForge().records(*PAYLOADS).staged(b"s1").staged(b"s2")
    assert decide(SEGMENT, scanned(tmp_path, forge.data), None, named(1, 2)) == forge.at


@pytest.mark.parametrize(
    "other",
    [None, named(0, 0), named(1, 2, segment=7), named(1, 2, directory="an-older-log-of-that-name")],
    ids=["nothing", "an earlier round", "another segment", "another log"],
)
def test_staged_entries_that_it_does_not_name_are_rolled_back(tmp_path: Path, other: StagedRange | None) -> None:
    forge = SegmentForge().records(*PAYLOADS)
    visible = forge.at
    forge.staged(b"s1").staged(b"s2")
    assert decide(SEGMENT, scanned(tmp_path, forge.data), None, other) == visible


def test_a_committed_round_is_recognised_by_its_control_record(tmp_path: Path) -> None:
    forge = SegmentForge().staged(b"s1").staged(b"s2").control(0, 1)
    committed = forge.at
    forge.staged(b"s3")
    found = scanned(tmp_path, forge.data)
    assert decide(SEGMENT, found, None, named(0, 1)) == committed
    assert decide(SEGMENT, found, None, named(3, 3)) == forge.at


@pytest.mark.parametrize("range_named", [named(1, 1), named(1, 3), named(0, 2), named(5, 6)])
def test_a_committed_round_that_is_not_there_as_named_is_refused(tmp_path: Path, range_named: StagedRange) -> None:
    forge = SegmentForge().records(*PAYLOADS).staged(b"s1").staged(b"s2")
    assert "have committed" in refused(decide(SEGMENT, scanned(tmp_path, forge.data), None, range_named))


def test_a_torn_tail_is_cut_at_every_byte_of_the_last_entry(tmp_path: Path) -> None:
    forge = SegmentForge().records(*PAYLOADS)
    before = forge.at
    forge.records(b"the last entry")
    for size in range(before.end, forge.at.end):
        assert decide(SEGMENT, scanned(tmp_path, forge.data[:size]), None, None) == before, size


@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x01"])
def test_a_torn_tail_is_cut_where_only_some_bytes_of_the_last_entry_reached_the_disk(
    tmp_path: Path, fill: bytes
) -> None:
    forge = SegmentForge().records(*PAYLOADS)
    before = forge.at
    forge.records(b"the last entry")
    for at in range(before.end, forge.at.end):
        torn = forge.data[:at] + fill + forge.data[at + 1 :]
        if torn != forge.data:
            assert decide(SEGMENT, scanned(tmp_path, torn), None, None) == before, at


def test_a_torn_staged_entry_is_rolled_back_with_its_round(tmp_path: Path) -> None:
    forge = SegmentForge().records(*PAYLOADS)
    before = forge.at
    forge.staged(b"s1").staged(b"s2")
    assert decide(SEGMENT, scanned(tmp_path, forge.data[:-1]), None, None) == before


def test_a_torn_entry_of_a_committed_round_is_refused(tmp_path: Path) -> None:
    forge = SegmentForge().records(*PAYLOADS).staged(b"s1").staged(b"s2")
    assert "have committed" in refused(decide(SEGMENT, scanned(tmp_path, forge.data[:-1]), None, named(1, 2)))


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_damage_before_a_later_group_is_refused_and_names_its_place(tmp_path: Path, broken: int) -> None:
    forge = SegmentForge().records(b"0").records(b"1").records(b"2").records(b"3")
    data = bytearray(forge.data)
    data[forge.ends[broken] - 1] ^= 1
    found = scanned(tmp_path, bytes(data))
    start = forge.ends[broken - 1] if broken else 0
    assert f"byte {start} (entry {broken})" in refused(decide(SEGMENT, found, None, None))
    assert found.later_group == forge.ends[broken]


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_hole_inside_the_last_group_is_cut(tmp_path: Path, broken: int) -> None:
    forge = SegmentForge().records(b"safe")
    before = forge.at.end
    forge.group(*(records_entry([b"%d" % n]) for n in range(4)))
    start, end = [before, *forge.ends[1:]][broken], forge.ends[1 + broken]
    data = forge.data[:start] + bytes(end - start) + forge.data[end:]
    assert ends_at(decide(SEGMENT, scanned(tmp_path, bytes(data)), None, None)) == start


def test_a_hole_inside_a_group_before_a_later_one_is_refused(tmp_path: Path) -> None:
    forge = SegmentForge().group(*(records_entry([b"%d" % n]) for n in range(4))).records(b"later")
    data = forge.data[: forge.ends[0]] + bytes(forge.ends[1] - forge.ends[0]) + forge.data[forge.ends[1] :]
    assert "damage at" in refused(decide(SEGMENT, scanned(tmp_path, bytes(data)), None, None))


def test_a_log_without_fsync_is_cut_at_its_first_hole(tmp_path: Path) -> None:
    segment = descriptor_of(fsync=False)
    forge = SegmentForge().records(b"0").records(b"1").records(b"2")
    data = forge.data[: forge.ends[0]] + bytes(forge.ends[1] - forge.ends[0]) + forge.data[forge.ends[1] :]
    tail = forge.at
    assert ends_at(decide(segment, scanned(tmp_path, bytes(data), segment), tail, None)) == forge.ends[0]


def test_less_than_readers_were_shown_is_refused(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"0").records(b"1")
    found = scanned(tmp_path, forge.data[:-1])
    assert f"readers were shown {forge.at.end} bytes" in refused(decide(SEGMENT, found, forge.at, None))


def test_another_writers_entries_are_not_mistaken_for_ours(tmp_path: Path) -> None:
    ours, theirs = SegmentForge().records(b"0"), SegmentForge(epoch=2).records(b"0").records(b"1")
    data = ours.data + theirs.data[theirs.ends[0] :]
    assert decide(SEGMENT, scanned(tmp_path, data), None, None) == ours.at


def test_what_no_writer_does_is_refused(tmp_path: Path) -> None:
    records_after_staged = SegmentForge().staged(b"s").records(b"r")
    assert "among staged" in refused(decide(SEGMENT, scanned(tmp_path, records_after_staged.data), None, None))
    wrong_control = SegmentForge().staged(b"s").control(0, 1)
    assert "control entry 1" in refused(decide(SEGMENT, scanned(tmp_path, wrong_control.data), None, None))
    control_of_nothing = SegmentForge().records(b"r").control(0, 0)
    assert "control entry 1" in refused(decide(SEGMENT, scanned(tmp_path, control_of_nothing.data), None, None))


def test_entries_that_readers_pass_over_do_not_count_as_records(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"r").group(records_entry([b""], EntryType.KEEP_ALIVE))
    end = decide(SEGMENT, scanned(tmp_path, forge.data), None, None)
    assert isinstance(end, Tail)
    assert (end.entries, end.sequence) == (2, 1)


def test_a_group_that_does_not_begin_where_it_says_is_damage(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"0")
    before = forge.at
    forge.group(records_entry([b"1"]), first_index=2)
    assert decide(SEGMENT, scanned(tmp_path, forge.data), None, None) == before


def entry_that_holds_a_segment() -> tuple[SegmentForge, Tail]:
    """A log with one record, then one whose payload is a segment, written by the same epoch, aligned as entries are."""
    inner = SegmentForge()
    for n in range(6):
        inner.records(b"%d" % n)
    for padding in range(64):
        forge = SegmentForge().records(b"safe")
        before = forge.at
        forge.records(bytes(padding) + bytes(inner.data))
        if (forge.data.index(inner.data, before.end) - before.end) % 64 == 0:
            return forge, before
    raise AssertionError("no padding aligns the payload")


def test_a_torn_entry_that_holds_a_segment_is_cut_however_much_of_it_is_there(tmp_path: Path) -> None:
    forge, before = entry_that_holds_a_segment()
    for size in range(before.end + 64, forge.at.end, 64):
        found = scanned(tmp_path, forge.data[:size])
        assert decide(SEGMENT, found, None, None) == before, size
    for size in range(before.end + 128, forge.at.end, 64):
        data = forge.data[: size - 8] + b"\xff" * 8 + forge.data[size:]
        assert decide(SEGMENT, scanned(tmp_path, bytes(data)), None, None) == before, size


def test_damage_to_an_entry_that_holds_a_segment_is_refused_when_a_later_group_stands_behind_it(tmp_path: Path) -> None:
    forge, before = entry_that_holds_a_segment()
    later = forge.at.end
    forge.records(b"later")
    data = forge.data[: before.end + 100] + b"\xff" * 8 + forge.data[before.end + 108 :]
    found = scanned(tmp_path, bytes(data))
    assert found.later_group == later
    assert "damage at" in refused(decide(SEGMENT, found, None, None))
