"""Lines of text as records: where they end, within limits, whatever the blocks; and back into lines."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.files.formats import lines
from scribengin.connectors.files.formats.lines import LineScan, Mark, batches, cut, decode, encode
from scribengin.errors import DataflowError, RecordRefused

MANY = RoundLimits(10**6, 10**9)
TEXT = st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"")), max_size=12)


def scan(text: bytes, limits: RoundLimits, start: int = 0, *, tail: bool = False, block_bytes: int = 4) -> LineScan:
    scan = LineScan("a file", start, len(text), limits, tail_is_line=tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        scan.run(lambda begin, end: text[begin:end])
    return scan


def payloads(batch: pa.RecordBatch) -> list[bytes]:
    return list(batch.column("payload").to_pylist())


@given(
    found=TEXT,
    rest=st.binary(max_size=5),
    records_max=st.integers(1, 6),
    bytes_max=st.integers(1, 20),
    tail=st.booleans(),
)
def test_scans_one_after_the_other_find_every_line_once(
    found: list[bytes], rest: bytes, records_max: int, bytes_max: int, tail: bool
) -> None:
    rest = rest.replace(b"\n", b"")
    text = b"".join(line + b"\n" for line in found) + rest
    expected = found + ([rest] if tail and rest else [])
    at, read = 0, []
    while True:
        one = scan(text, RoundLimits(records_max, bytes_max), at, tail=tail)
        if not one.end.records:
            break
        piece = text[at : one.end.offset]
        assert one.end.records <= records_max
        assert len(piece) <= bytes_max or one.end.records == 1
        assert payloads(decode(piece)) == expected[len(read) : len(read) + one.end.records]
        read += payloads(decode(piece))
        at = one.end.offset
    assert read == expected
    assert one.complete


@given(found=TEXT, bytes_max=st.integers(1, 20), block_bytes=st.integers(1, 30))
def test_what_a_scan_finds_does_not_depend_on_the_blocks(found: list[bytes], bytes_max: int, block_bytes: int) -> None:
    text = b"".join(line + b"\n" for line in found)
    limits = RoundLimits(10**6, bytes_max)
    first, second = (scan(text, limits, block_bytes=size) for size in (block_bytes, 1000))
    assert (first.end.offset, first.end.records) == (second.end.offset, second.end.records)
    for found_by in (first, second):
        for piece in cut(0, found_by.marks, 8):
            assert piece.holds(text[piece.start : piece.end])
            assert not piece.holds(bytes(byte ^ 1 for byte in text[piece.start : piece.end]))


def test_a_scan_that_is_not_alone_leaves_a_line_that_is_too_large_to_the_next_round() -> None:
    scan = LineScan("a file", 0, 11, RoundLimits(10, 4), tail_is_line=False, alone=False)
    scan.run(lambda begin, end: b"0123456789\n"[begin:end])
    assert scan.end == Mark(0, 0)
    assert not scan.complete


def test_a_file_that_was_cut_while_it_was_read_is_an_error() -> None:
    scan = LineScan("a.txt", 0, 100, MANY, tail_is_line=False)
    with pytest.raises(DataflowError, match=r"a\.txt: it was cut to 4 bytes while it was read; it had 100"):
        scan.run(lambda begin, end: b"ab\nc"[begin:end])


@pytest.mark.parametrize("block_bytes", [1, 7, 1000])
@pytest.mark.parametrize("end", [b"", b"\nmore\n"])
def test_a_line_that_is_too_long_ends_a_scan_or_is_all_of_it(block_bytes: int, end: bytes) -> None:
    text = b"a\n" + b"\xff" * 11 + end
    for start, ends_at, long in ((0, 2, None), (2, 13 + len(end[:1]), (2, 13))):
        found = LineScan("a file", start, len(text), MANY, tail_is_line=True, record_bytes_max=10)
        found.run(lambda begin, stop: text[begin : min(stop, begin + block_bytes)])
        assert (found.end.offset, found.end.records, found.long) == (ends_at, 1, long)
        assert found.complete == (start == 2 and not end)
    fits = LineScan("a file", 0, len(text), MANY, tail_is_line=True, record_bytes_max=11)
    fits.run(lambda begin, stop: text[begin : min(stop, begin + block_bytes)])
    assert fits.complete


def test_pieces_are_cut_at_marks_and_cover_everything() -> None:
    marks = [Mark(10, 2), Mark(20, 3), Mark(25, 4), Mark(31, 9)]
    for start, size, expected in (
        (0, 1, [(0, 10, 2), (10, 20, 1), (20, 25, 1), (25, 31, 5)]),
        (5, 15, [(5, 20, 3), (20, 31, 6)]),
        (0, 1000, [(0, 31, 9)]),
    ):
        assert [(piece.start, piece.end, piece.records) for piece in cut(start, marks, size)] == expected
    assert cut(7, [], 10) == []


@given(found=TEXT, size=st.integers(1, 9), whole=st.booleans())
def test_a_file_read_block_by_block_has_the_same_lines(found: list[bytes], size: int, whole: bool) -> None:
    text = b"".join(line + b"\n" for line in found)
    text = text if whole or not found or not found[-1] else text[:-1]
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert [payload for batch in batches(blocks) for payload in payloads(batch)] == found


@given(TEXT)
def test_records_are_the_same_when_they_were_lines(found: list[bytes]) -> None:
    batch = pa.record_batch({"payload": pa.array([b"left out", *found, b"too"], pa.binary())}).slice(1, len(found))
    assert payloads(decode(bytes(encode(batch, what="a test")))) == found


def test_carriage_returns_and_empty_lines_are_kept() -> None:
    assert payloads(decode(b"a\r\n\n\xff\n")) == [b"a\r", b"", b"\xff"]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"payload": pa.array([b"a", None])}), "null is not"),
        (pa.record_batch({"payload": pa.array([b"a", b"b\nc"])}), "a payload holds a newline"),
        (pa.record_batch({"value": pa.array([1])}), "the columns value has no payload"),
    ],
)
def test_what_cannot_be_a_line_is_refused(batch: pa.RecordBatch, said: str) -> None:
    with pytest.raises(DataflowError, match=said):
        encode(batch, what="out")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_a_newline_is_found_in_the_rows_that_are_meant_and_not_beside_them(kind: pa.DataType) -> None:
    payloads = pa.array(["two\nlines", "Grüße", "", "\n"], kind)
    whole = pa.record_batch({"payload": payloads})
    assert bytes(encode(whole.slice(1, 2), what="f")) == "Grüße\n\n".encode()
    assert bytes(encode(whole.slice(1, 0), what="f")) == b""
    for refused in (whole, whole.slice(0, 1), whole.slice(3), whole.slice(1, 3)):
        with pytest.raises(RecordRefused, match="holds a newline"):
            encode(refused, what="f")
