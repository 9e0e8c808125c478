"""One pass over a segment's bytes: sound ones pass, damage is found wherever it is, and what lies behind it, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.log.format.entry import EntryType
from scribengin.log.format.records import TXID_NONE
from scribengin.log.metadata.check import Finding
from scribengin.log.scan.audit import TXID_UNKNOWN, SegmentCheck
from scribengin.log.store.contract import Tail
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.index import EntryPlace
from scribengin.testing.log_samples import SegmentForge, descriptor_of, records_entry

SEGMENT = descriptor_of()


def audited(
    directory: Path,
    data: bytes,
    end: Tail,
    *,
    start_txid: int = TXID_NONE,
    check_txids: bool = True,
    bodies: bool = True,
) -> tuple[SegmentCheck, list[EntryPlace], list[str]]:
    """The audit when it is done, the entries it yielded, and what it found wrong."""
    store = FileSegmentStore(directory)
    store.create_log(SEGMENT.directory)
    Path(store.path(SEGMENT.file)).write_bytes(data)
    view = store.open(SEGMENT.file)
    try:
        audit = SegmentCheck(view, SEGMENT, end, start_txid=start_txid, check_txids=check_txids, bodies=bodies)
        found = list(audit)
    finally:
        view.close()
    findings = [str(one) for one in found if isinstance(one, Finding)]
    return audit, [one for one in found if isinstance(one, EntryPlace)], findings


def forged() -> SegmentForge:
    """Five entries of two records each."""
    forge = SegmentForge()
    for number in range(5):
        forge.records(b"%d-one" % number, b"%d-two" % number)
    return forge


def test_a_sound_segment_has_no_findings(tmp_path: Path) -> None:
    forge = forged().staged(b"s1").staged(b"s2").control(5, 6).group(records_entry([b"a"]), records_entry([b"b"]))
    audit, entries, findings = audited(tmp_path, bytes(forge.data), forge.at)
    assert findings == []
    assert audit.entries == {"records": 7, "staged": 2, "control": 1}
    assert audit.records == 14
    assert [place.header.entry for place in entries] == list(range(10))
    assert (audit.first_txid, audit.last_txid) == (1, 1)


def test_what_lies_behind_the_visible_end_is_not_looked_at(tmp_path: Path) -> None:
    forge = forged()
    end = forge.at
    forge.staged(b"s")
    audit, _entries, findings = audited(tmp_path, bytes(forge.data) + b"torn" * 99, end)
    assert findings == []
    assert audit.entries == {"records": 5}


@pytest.mark.parametrize("bodies", [True, False])
@pytest.mark.parametrize("at", range(0, 64, 7))
def test_a_damaged_header_is_found_and_what_follows_is_read(tmp_path: Path, at: int, bodies: bool) -> None:
    forge = forged()
    data = bytearray(forge.data)
    data[forge.ends[1] + at] ^= 0x40
    audit, entries, findings = audited(tmp_path, bytes(data), forge.at, bodies=bodies)
    assert findings == [
        f"segment 1, entry 2 (byte {forge.ends[1]:,}): the checksum of the header does not hold; "
        f"it goes on with entry 3 at byte {forge.ends[2]:,}: 1 entry with 2 records lost"
    ]
    assert [place.header.entry for place in entries] == [0, 1, 3, 4]
    assert audit.records == 8


def test_a_damaged_body_costs_its_own_records_only(tmp_path: Path) -> None:
    forge = forged()
    data = bytearray(forge.data)
    data[forge.ends[2] - 30] ^= 1
    audit, _entries, findings = audited(tmp_path, bytes(data), forge.at)
    assert findings == [
        f"segment 1, entry 2 (byte {forge.ends[1]:,}): the checksum of the body does not hold; its 2 records are lost"
    ]
    assert audit.records == 8
    assert audited(tmp_path, bytes(data), forge.at, bodies=False)[2] == []


def test_every_damage_of_a_segment_is_found(tmp_path: Path) -> None:
    forge = forged()
    data = bytearray(forge.data)
    data[5] ^= 1
    data[forge.ends[1] - 30] ^= 1
    data[forge.ends[2] + 5] ^= 1
    data[forge.ends[3] + 5] ^= 1
    audit, _entries, findings = audited(tmp_path, bytes(data), forge.at)
    assert [finding.split(":")[0] for finding in findings] == [
        "segment 1, entry 0 (byte 0)",
        f"segment 1, entry 1 (byte {forge.ends[0]:,})",
        f"segment 1, entry 3 (byte {forge.ends[2]:,})",
    ]
    assert "2 entries with 4 records lost" in findings[-1]
    assert audit.records == 2


def test_a_file_that_is_too_short_says_what_is_missing(tmp_path: Path) -> None:
    forge = forged()
    for size, whole in ((0, 0), (forge.ends[2], 3), (forge.ends[2] + 64, 3), (len(forge.data) - 1, 4)):
        _audit, entries, findings = audited(tmp_path, bytes(forge.data[:size]), forge.at)
        assert [place.header.entry for place in entries if place.end <= size] == list(range(whole))
        assert findings
        assert all("lost" in finding for finding in findings)


def test_an_entry_that_is_missing_as_a_whole_is_a_gap(tmp_path: Path) -> None:
    forge = forged()
    data = bytes(forge.data[: forge.ends[0]] + forge.data[forge.ends[1] :])
    at = forge.at
    _audit, _entries, findings = audited(tmp_path, data, Tail(len(data), at.entries, at.last_txid, at.sequence))
    assert findings == [
        f"segment 1, entry 2 (byte {forge.ends[0]:,}): (epoch, entry, sequence id) is (1, 2, 4) and not (1, 1, 2)"
    ]


def test_an_entry_of_another_writer_does_not_belong_there(tmp_path: Path) -> None:
    forge, other = forged(), SegmentForge(epoch=7, at=forged().at)
    other.records(b"late")
    _audit, _entries, findings = audited(tmp_path, bytes(forge.data + other.data), other.at)
    assert findings == [
        f"segment 1, entry 5 (byte {forge.at.end:,}): (epoch, entry, sequence id) is (7, 5, 10) and not (1, 5, 10)"
    ]


@pytest.mark.parametrize(
    "end",
    [
        lambda at: Tail(at.end, at.entries + 1, at.last_txid, at.sequence),
        lambda at: Tail(at.end, at.entries, at.last_txid, at.sequence - 1),
        lambda at: Tail(at.end, at.entries, at.last_txid + 1, at.sequence),
    ],
    ids=["entries", "records", "transaction id"],
)
def test_what_was_said_of_the_end_is_held_against_it(tmp_path: Path, end: object) -> None:
    forge = forged()
    said: Tail = end(forge.at)  # type: ignore[operator]  # the lambdas above
    _audit, _entries, findings = audited(tmp_path, bytes(forge.data), said)
    assert len(findings) == 1
    assert findings[0].startswith(f"segment 1: its tail says {said.entries} entries, {said.end:,} bytes")


def test_without_the_segment_before_it_its_last_transaction_id_says_nothing(tmp_path: Path) -> None:
    forge = forged()
    said = Tail(forge.at.end, forge.at.entries, 500, forge.at.sequence)
    assert audited(tmp_path, bytes(forge.data), said, start_txid=TXID_UNKNOWN)[2] == []
    assert audited(tmp_path, bytes(forge.data), said, start_txid=500, check_txids=False)[2] == []


def test_transaction_ids_that_decrease_are_wrong_where_they_must_not(tmp_path: Path) -> None:
    forge = SegmentForge().group(records_entry([b"a"], txid=5)).group(records_entry([b"b"], txid=4))
    findings = audited(tmp_path, bytes(forge.data), forge.at)[2]
    assert findings == [f"segment 1, entry 1 (byte {forge.ends[0]}): its first transaction id is 4, after 5"]
    assert audited(tmp_path, bytes(forge.data), forge.at, check_txids=False)[2] == []


def test_a_control_record_that_names_other_entries_is_wrong(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"a").staged(b"s1").staged(b"s2").control(1, 1)
    findings = audited(tmp_path, bytes(forge.data), forge.at)[2]
    assert findings == [
        f"segment 1, entry 3 (byte {forge.ends[2]:,}): control entry 3 names entries (1, 1), staged are 1 to 2"
    ]


def test_staged_entries_at_the_end_of_a_recovered_segment_are_part_of_it(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"a").staged(b"s1").staged(b"s2")
    audit, _entries, findings = audited(tmp_path, bytes(forge.data), forge.at)
    assert findings == []
    assert audit.records == 3
    assert audit.entries[EntryType.STAGED.name.lower()] == 2


def test_the_search_finds_an_entry_behind_megabytes_of_noise(tmp_path: Path) -> None:
    forge = SegmentForge().records(b"a").records(bytes(3 * 1024 * 1024)).records(b"z")
    data = bytearray(forge.data)
    data[forge.ends[0] + 1] ^= 1
    audit, entries, findings = audited(tmp_path, bytes(data), forge.at)
    assert [place.header.entry for place in entries] == [0, 2]
    assert len(findings) == 1
    assert audit.records == 2
