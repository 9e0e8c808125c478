"""DLSN: its order, its 25 bytes, its strings."""

from __future__ import annotations

import base64
from typing import Literal

import pytest

from scribengin.errors import LogError
from scribengin.log import DLSN

VECTOR = bytes.fromhex("01000000000000000100000000000000020000000000000003")


def test_segments_come_before_entries_and_entries_before_slots() -> None:
    places = [DLSN(1, 0, 0), DLSN(1, 0, 9), DLSN(1, 1, 0), DLSN(2, 0, 0), DLSN(10, 0, 0)]
    assert sorted(places[n] for n in (4, 2, 0, 3, 1)) == places
    assert DLSN.INVALID < DLSN.INITIAL == DLSN(1, 0, 0)


def test_version_1_is_one_byte_and_three_big_endian_numbers() -> None:
    assert DLSN(1, 2, 3).to_bytes() == VECTOR
    assert DLSN.from_bytes(VECTOR) == DLSN(1, 2, 3)
    assert DLSN.from_bytes(DLSN.INVALID.to_bytes()) == DLSN.INVALID


def test_version_0_with_its_200_bytes_is_still_read() -> None:
    old = b"\x00" + VECTOR[1:] + bytes(200 - len(VECTOR))
    assert DLSN.from_bytes(old) == DLSN(1, 2, 3)
    assert DLSN.parse(base64.b64encode(old).decode()) == DLSN(1, 2, 3)


def test_both_versions_are_written_and_a_strict_reader_takes_one() -> None:
    """DistributedLog's TestDLSN: a version 1 string is refused by a parser of version 0."""
    versions: tuple[Literal[0, 1], Literal[0, 1]] = (0, 1)
    for version, other in (versions, versions[::-1]):
        written = DLSN(1, 2, 3).to_bytes(version)
        assert len(written) == (25 if version else 200)
        assert DLSN.from_bytes(written) == DLSN.from_bytes(written, version=version) == DLSN(1, 2, 3)
        assert DLSN.parse(DLSN(1, 2, 3).to_base64(version)) == DLSN(1, 2, 3)
        with pytest.raises(LogError, match=f"of version {other}"):
            DLSN.from_bytes(written, version=other)


def test_the_constants_and_what_comes_next() -> None:
    assert (DLSN.INITIAL, DLSN.INVALID) == ((1, 0, 0), (0, -1, -1))
    assert DLSN.NON_INCLUSIVE_LOWER_BOUND == (1, 0, -1)
    assert DLSN.INVALID < DLSN.NON_INCLUSIVE_LOWER_BOUND < DLSN.INITIAL
    assert DLSN.NON_INCLUSIVE_LOWER_BOUND.next_record() == DLSN.INITIAL
    assert DLSN(3, 4, 5).next_record() == DLSN(3, 4, 6)
    assert DLSN(3, 4, 5).next_segment() == DLSN(4, 0, 0)


@pytest.mark.parametrize("text", [DLSN(1, 2, 3).to_base64(), str(DLSN(1, 2, 3)), "1/2/3"])
def test_every_printed_form_is_read_back(text: str) -> None:
    assert DLSN.parse(text) == DLSN(1, 2, 3)


def test_it_prints_as_distributedlog_prints_it() -> None:
    assert str(DLSN.INITIAL) == "DLSN{logSegmentSequenceNo=1, entryId=0, slotId=0}"
    assert DLSN.parse("DLSN{logSegmentSequenceNo=0, entryId=-1, slotId=-1}") == DLSN.INVALID


@pytest.mark.parametrize(
    "text",
    ["", "!", "1/2", "1/2/x", base64.b64encode(VECTOR[:24]).decode(), base64.b64encode(b"\x02" + VECTOR[1:]).decode()],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LogError, match="no DLSN"):
        DLSN.parse(text)


def test_a_position_in_json_has_three_numbers() -> None:
    assert DLSN(**DLSN(4, 5, 6).to_json()) == DLSN(4, 5, 6)
    assert DLSN(4, 5, 6).to_json() == {"segment": 4, "entry": 5, "slot": 6}
